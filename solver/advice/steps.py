"""The three questions that practitioners ask before they divide a kernel's warps."""

from __future__ import annotations

from solver.advice import thresholds as given
from solver.advice.finding import NO, UNKNOWN, YES, Outcome, Reason, Step, refused
from solver.advice.gain import unexplained
from solver.advice.situation import Situation

WAITS, STAGES, BUFFERS = "waits_on_loads", "stages", "buffers"


def waits_on_loads(s: Situation) -> Step:
    """Does it wait on loads? By use of units, by measured stalls, else by bytes in flight."""
    figures = {
        "time_us": s.figures.time_us,
        "longer_stage_us": s.roof_us,
        "long_scoreboard_fraction": s.figures.long_scoreboard_fraction,
        "resident_warps": s.warps,
        "in_flight_bytes_low": s.in_flight_bytes.low,
        "in_flight_bytes_high": s.in_flight_bytes.high,
        "needed_bytes": s.needed_bytes,
    }
    limits = (given.BUSY, given.STALLED, given.LATENCY, given.EXPLAINED)
    if reasons := _used_up(s):
        return refused(WAITS, reasons, figures, limits)
    outcome, words, missing = _by_stalls(s) or _by_bytes_in_flight(s)
    if outcome == NO:
        measured = s.figures.long_scoreboard_fraction is not None
        name = "does_not_wait" if measured else "latency_hidden"
        return refused(WAITS, [Reason(name, words)], figures, limits)
    return Step(WAITS, outcome, words, figures, limits, missing=missing)


Found = tuple[Outcome, str, tuple[str, ...]]


def _used_up(s: Situation) -> list[Reason]:
    """Units without which nothing gets faster, and that have little left to give."""
    f, most = s.figures, given.BUSY.value
    used = {
        "device memory": f.memory_fraction,
        "the SM's busiest unit": f.compute_fraction,
        "the schedulers": f.issue_fraction,
    }
    found = [
        Reason("used_up", f"{unit} is used at {share:.0%}: dividing the warps adds none of it.")
        for unit, share in used.items()
        if share is not None and share >= most
    ]
    if (
        f.time_us is not None
        and s.compute_us is not None
        and s.loads_known
        and f.time_us * most <= s.roof_us
    ):
        found.append(
            Reason(
                "used_up",
                f"The launch takes {f.time_us:.4g} µs, its longer stage alone {s.roof_us:.4g}: "
                f"over {most:.0%} of the time is that stage's.",
            )
        )
    return found


def _by_stalls(s: Situation) -> Found | None:
    waiting, barrier = s.figures.long_scoreboard_fraction, s.figures.barrier_fraction or 0.0
    if waiting is None:
        return None
    if waiting >= given.STALLED.value:
        return YES, f"Warps spend {waiting:.0%} of their time waiting for loads.", ()
    if waiting + barrier >= given.STALLED.value:
        return None  # who waits at a barrier may wait for others' loads
    return NO, f"Warps spend {waiting:.0%} of their time waiting for loads.", ()


def _by_bytes_in_flight(s: Situation) -> Found:
    low, high = s.in_flight_bytes.low, s.in_flight_bytes.high
    have = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
    words = (
        f"{s.warps:.3g} resident warps of an SM have {have} B in flight; {s.needed_bytes:,.0f} "
        "keep loads at the pace of the longer stage"
    )
    if not s.loads_known:
        return UNKNOWN, "The L2 served what was loaded, which the figures don't say.", ()
    if low >= s.needed_bytes:
        if (
            s.figures.time_us is not None
            and s.figures.long_scoreboard_fraction is None
            and s.figures.time_us * given.LATENCY.value > s.roof_us
        ):
            return (
                UNKNOWN,
                f"{words}: enough, and yet the launch takes {s.figures.time_us:.4g} µs where its "
                f"longer stage takes {s.roof_us:.4g}.",
                ("long_scoreboard_fraction",),
            )
        return NO, f"{words}: occupancy hides the latency.", ()
    if s.compute_us is None:
        return UNKNOWN, f"{words}, were there no arithmetic.", ("flops",)
    if high < s.needed_bytes:
        if unexplained(s):
            return (
                UNKNOWN,
                f"{words}, and yet the launch takes {s.figures.time_us:.4g} µs: more than its "
                "stages would, one after the other and every load waited for.",
                ("long_scoreboard_fraction",),
            )
        return YES, f"{words}.", ()
    return UNKNOWN, f"{words}.", ("bytes_in_flight_per_warp",)


def stages(s: Situation) -> Step:
    """Are there two stages, not too unequal, with enough data between them?"""
    chunk = s.figures.chunk_bytes or given.LARGEST_CHUNK_BYTES
    chunks = s.figures.read_bytes / s.sms / chunk
    figures: dict[str, float | str | None] = {
        "load_us": s.load_us,
        "compute_us": s.compute_us,
        "chunk_bytes": chunk,
        "chunks_per_sm": chunks,
    }
    limits = (given.UNEQUAL, given.CHUNKS)
    if not s.loads_known:
        words = "The L2 served what was loaded, which the figures don't say."
        return Step(STAGES, UNKNOWN, words, figures, limits)
    reasons = []
    if s.compute_us is not None:
        least, most = sorted((s.load_us, s.compute_us))
        ratio = least / most if most else 0.0
        figures["ratio"] = ratio
        if ratio <= given.UNEQUAL.value:
            reasons.append(
                Reason(
                    "unequal_stages",
                    f"Loading takes {s.load_us:.4g} µs and computing {s.compute_us:.4g}: the "
                    f"shorter stage is {ratio:.1%} of the longer, and overlap saves no more than "
                    "it.",
                )
            )
    if chunks < given.CHUNKS.value:
        reasons.append(
            Reason(
                "too_little_data",
                f"An SM reads {chunks:.3g} chunks of {chunk:,} B: a pipeline of so "
                "few is mostly filled and drained.",
            )
        )
    if reasons:
        return refused(STAGES, reasons, figures, limits)
    if s.compute_us is None:
        words = "How long computing takes is not known."
        return Step(STAGES, UNKNOWN, words, figures, limits, missing=("flops",))
    words = f"Loading takes {s.load_us:.4g} µs and computing {s.compute_us:.4g}."
    return Step(STAGES, YES, words, figures, limits)


def buffers(s: Situation) -> Step:
    """Do the buffers leave enough resident warps?"""
    room, own = s.room, s.figures.smem_per_block_bytes
    left = room.blocks * s.figures.block_warps
    figures = {
        "chunk_bytes": room.chunk_bytes,
        "ring_bytes": room.ring_bytes,
        "smem_per_block_bytes": own,
        "smem_per_sm_bytes": s.rates.sm.smem_bytes,
        "resident_warps": s.warps,
        "warps_beside_buffers": left,
        "warps_wanted": s.wanted_warps,
    }
    words = (
        f"With a ring of {room.ring_bytes:,} B beside a block's own {own:,} B an SM keeps {left} "
        f"warps that compute; {s.wanted_warps:.3g} are wanted"
    )
    if left < s.wanted_warps:
        reason = Reason("scarce_shared_memory", f"{words}.")
        return refused(BUFFERS, [reason], figures, (given.WARPS,))
    return Step(BUFFERS, YES, f"{words}.", figures, (given.WARPS,))
