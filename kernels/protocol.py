"""How things are timed, as data that goes into every record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernels.statistics import RatioInterval, ratio_interval
from solver.problem import CACHES

OVERSPENT = 4
FEWEST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Protocol:
    """CUDA events around replays of a CUDA graph that holds many launches.

    cache           cold: inputs and output rotated over ``l2_multiple`` times the L2; where
                    ``max_sets`` sets, or as many as ``memory_share`` of the device's memory
                    holds, are too few for that, the L2 is flushed (by reading) before each
                    replay, outside the timed region. warm: one set.
    warmup_ms       replays thrown away before anything is timed
    replay_us       least time of one replay, reached by repeating the rotation
    min_rounds      replays of each side at least, ``max_rounds`` at most
    budget_ms       GPU time after which no further round starts, once ``min_rounds`` are
                    done or OVERSPENT times the budget is gone
    rest            idle time after each batch of replays, as a multiple of the GPU time that it
                    took: a GPU that works without a pause is slowed down by its power cap after
                    some 100 ms, and then a time is not that of a launch by itself
    half_width      a comparison repeats until its interval's half-width is this fraction
    confidence      of that interval
    """

    cache: str = "cold"
    warmup_ms: float = 10.0
    replay_us: float = 200.0
    min_rounds: int = 15
    max_rounds: int = 400
    budget_ms: float = 120.0
    rest: float = 0.0
    half_width: float = 0.02
    confidence: float = 0.95
    l2_multiple: int = 3
    max_sets: int = 128
    memory_share: float = 0.5

    def __post_init__(self) -> None:
        if self.cache not in CACHES:
            raise ValueError(f"cache must be {' or '.join(CACHES)}, got {self.cache!r}")

    def with_cache(self, cache: str) -> Protocol:
        """The same protocol, cold or warm."""
        return replace(self, cache=cache)

    def to_dict(self) -> dict[str, Any]:
        """The protocol under its own field names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SustainedProtocol:
    """Each side in turn for ``hold_ms`` of GPU time, at the clock and power that it holds.

    warmup_ms    GPU time, both sides in turn, before the first hold
    settle_ms    GPU time of the same side before a hold, which is not counted
    hold_ms      GPU time of a hold; a time is the mean over its launches
    least_holds  of each side, ``most_holds`` at most; the order alternates
    half_width   a comparison ends once its interval's half-width is this fraction
    confidence   of that interval
    """

    warmup_ms: float = 2000.0
    settle_ms: float = 250.0
    hold_ms: float = 1000.0
    least_holds: int = 6
    most_holds: int = 12
    half_width: float = 0.01
    confidence: float = 0.95

    def to_dict(self) -> dict[str, Any]:
        """The protocol under its own field names."""
        return asdict(self)


BENCH = Protocol()
VERIFY = Protocol(warmup_ms=50.0, budget_ms=400.0, rest=1.0, max_rounds=1000)
SAMPLE = Protocol(warmup_ms=2.0, replay_us=400.0, min_rounds=5, max_rounds=50, budget_ms=6.0)
CHOICE = Protocol(warmup_ms=2.0, min_rounds=12, max_rounds=50, budget_ms=8.0, rest=1.0)
REGRET = Protocol(replay_us=300.0, min_rounds=21, max_rounds=61, budget_ms=24.0, rest=2.0)
"""Of a race in which all candidates run to its end. Replays of one kernel differ by about 1 %, so
that the median of 21 paired ones is off by 0.3 % or less, small beside a regret of 1 to 3 %. CHOICE
would not do: it drops a candidate after 5 rounds, and tells no more of it."""
TRACE = Protocol(warmup_ms=3.0, replay_us=300.0, min_rounds=15, max_rounds=41, budget_ms=15.0)
"""Of many configurations in a row, each traced and timed beside the kernel that ships."""
NORM = Protocol(warmup_ms=1.0, min_rounds=11, max_rounds=11, budget_ms=5000.0)
"""Of races of norm_activation: some thirty candidates in turn, each replayed as often."""
NORM_VERIFY = Protocol(warmup_ms=50.0, min_rounds=400, max_rounds=400, budget_ms=2000.0, rest=1.0)
"""Of a handful of norm_activation kernels in turn. Percentiles need the rounds: of 400 replays the
99th percentile has four beyond it."""
SUSTAINED = SustainedProtocol()


def finished(
    protocol: Protocol, rounds: int, spent_ms: float, ratios: Sequence[float]
) -> tuple[bool, RatioInterval | None]:
    """Whether to stop after ``rounds`` rounds, and the ratio's interval where one is sought.

    ``ratios`` has one value per round for a comparison and is empty for a single side. The
    interval's note is set where the rounds or the budget ended before it was narrow enough.
    """
    exhausted = None
    overspent = spent_ms >= OVERSPENT * protocol.budget_ms and rounds >= FEWEST_ROUNDS
    enough = rounds >= protocol.min_rounds or overspent
    if rounds >= protocol.max_rounds:
        exhausted = f"{rounds} rounds"
    elif spent_ms >= protocol.budget_ms:
        exhausted = f"{spent_ms:.0f} ms of timing"
    if not ratios:
        return enough and (exhausted is not None or spent_ms >= protocol.budget_ms / 2), None
    interval = ratio_interval(ratios, protocol.confidence)
    if not enough:
        return False, interval
    if interval.half_width <= protocol.half_width:
        return True, interval
    if exhausted is None:
        return False, interval
    note = f"half-width {interval.half_width:.1%} after {exhausted}"
    return True, replace(interval, note=note)


def rotation_sets(
    set_bytes: int, l2_bytes: int, protocol: Protocol, most: int | None = None
) -> tuple[int, bool]:
    """How many input sets to rotate, and whether the L2 must be flushed between replays.

    ``set_bytes`` is what one launch touches of A, B and C, ``most`` how many sets memory holds
    (None: enough). Two sets at least when cold, so that a launch never finds the tail of its
    own last run, unless the L2 is flushed.
    """
    if protocol.cache == "warm":
        return 1, False
    needed = max(2, -(-protocol.l2_multiple * l2_bytes // set_bytes))
    held = protocol.max_sets if most is None else max(1, min(protocol.max_sets, most))
    return min(needed, held), needed > held
