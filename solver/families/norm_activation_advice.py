"""Whether a norm_activation problem is worth dividing warps for.

By races beside it where the device has some (``source`` is ``races``), else by the family's model
where it has constants (``model``), else by figures of its kernel of like warps (``figures``). The
three steps are of those figures in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from solver.advice import thresholds as given
from solver.advice.advise import (
    AGAINST,
    SOURCES,
    SPECIALISE,
    UNDECIDED,
    Advice,
    Verdict,
    advise,
)
from solver.advice.figures import L2, MEMORY, KernelFigures
from solver.advice.finding import Reason
from solver.advice.rates import rates_of
from solver.advice.thresholds import Range
from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_crowding import rows_on_sm
from solver.families.norm_activation_forecast import Forecast
from solver.families.norm_activation_raced import ranges
from solver.families.norm_activation_rivals import (
    BETWEEN,
    BEYOND,
    DEFAULT_RIVAL,
    MODEL,
    RIVALS,
    Basis,
    Comparison,
    compare,
)
from solver.limits import check_choice, check_integer
from solver.words import listing

LEAST_WARPS, MOST_WARPS = 4, 64
"""What may fit on an SM: no kernel of like warps has fewer, no SM holds more."""
GRID = "the fitted problems of the grid measured on one H200, 2026-11-30"
_RANGE = f"measured over predicted gain of eight in ten of {GRID}"
_RACES = "the model's times over what it was off by in races of"
RESTS_ON: dict[Basis, str] = {
    MODEL: f"the family's model; {_RANGE}",
    BETWEEN: f"{_RACES} as much arithmetic, or of less and of more; {_RANGE} that have the latter "
    "beside them",
    BEYOND: f"{_RACES} other degrees, all more or all less; {_RANGE} that have such beside them",
}
MEASURE = "verification"
"""What decides an undecided verdict: the kinds raced on the GPU."""
VETOES = ("short_kernel", "too_little_data", "served_by_l2")
"""Reasons that hold whatever the model says: it knows no launch so short so well."""


@dataclass(frozen=True, slots=True)
class NormAdvice:
    """The advice for a problem, the kernel that it is about, and the fastest kernel of each kind;
    none where the advice is by figures. ``notes``: what times overrule, in words."""

    advice: Advice
    config: NormConfig
    kernels: tuple[Forecast, ...]
    notes: tuple[str, ...] = ()


def advise_problem(
    problem: NormProblem,
    device: DeviceProfile,
    cache: str = "cold",
    *,
    warps_per_sm: int | None = None,
    rival: str = DEFAULT_RIVAL,
    unseen: bool = False,
) -> NormAdvice:
    """Whether divided warps beat the fastest kernel of a rival's kinds; the plain one where none of
    them is legal.

    ``cache`` warm: x is in the L2, where all of the launch's data fits. ``warps_per_sm``: something
    else takes up the SM, so that so many fit. ``unseen``: as if the problem itself had not been
    raced. Raises InvalidProblem for no rows, InvalidInput for fewer warps than any kernel has,
    Unsupported for a device that advice is not for.
    """
    family.check_rows(problem.rows)
    check_choice("rival", rival, tuple(RIVALS))
    if warps_per_sm is not None:
        check_integer("warps_per_sm", warps_per_sm, LEAST_WARPS, MOST_WARPS)
    rates_of(device)  # refuses a device that advice is not for
    kernel, figures = _like_warps(problem, device, cache, warps_per_sm, rival)
    by_figures = advise(figures, device)
    if family.NAME not in device.models:
        return NormAdvice(by_figures, kernel, ())
    found = compare(problem, device, cache, warps_per_sm, rival, unseen=unseen)
    advice = _by_forecasts(by_figures, found, ranges(found.basis), rival)
    kernels = tuple(found.kernels.values())
    return NormAdvice(advice, found.rival.config, kernels, _notes(advice, by_figures))


def verdict_of(gain: float, off: Range) -> Verdict:
    """What a predicted gain is worth saying, by measured over predicted gains (``off``).

    A verdict is given where divided warps do the opposite, by more than a tie, in at most one
    problem in ten; where both may be given, that of the expected gain's sign.
    """
    yes = gain * off.low >= 1 - given.TIE.value
    no = gain * off.high <= 1 + given.TIE.value
    if yes and no:
        return SPECIALISE if gain * off.expected > 1 else AGAINST
    return SPECIALISE if yes else AGAINST if no else UNDECIDED


def _by_forecasts(
    by_figures: Advice, found: Comparison, off: Mapping[str, Range], rival: str
) -> Advice:
    """The verdict by kernels' predicted times, with the steps by figures beside it."""
    reasons = [each for each in by_figures.reasons if each.reason in VETOES]
    said = AGAINST if found.gain is None else verdict_of(found.gain, off[rival])
    if said == AGAINST:
        reasons.append(Reason("slower", _words(found)))
    if reasons:
        reasons += [each for each in by_figures.reasons if each not in reasons]
        said = AGAINST
    ring = found.kernels.get("ring")
    return replace(
        by_figures,
        verdict=said,
        reasons=tuple(reasons),
        missing=(MEASURE,) if said == UNDECIDED else (),
        present_us=_times(off["time"], found.rival.time_us),
        gain=None if found.gain is None else _times(off[rival], found.gain),
        gain_rests_on=RESTS_ON[found.basis],
        alternative_gain=None
        if ring is None
        else _times(off["ring"], found.rival.time_us / ring.time_us),
        alternative_rests_on=RESTS_ON[found.basis],
        source=found.source,
    )


def _notes(advice: Advice, by_figures: Advice) -> tuple[str, ...]:
    """What the kernel's figures have against dividing its warps where times say otherwise."""
    if advice.verdict == AGAINST or not by_figures.reasons:
        return ()
    names = listing([reason.reason for reason in by_figures.reasons])
    return (
        f"By the kernel's figures alone the answer would be no ({names}); kernels' times, by "
        f"{SOURCES[advice.source]}, go before them.",
    )


def _words(found: Comparison) -> str:
    if found.divided is None:
        return "No kernel of divided warps is legal here."
    return (
        f"By {SOURCES[found.source]} the best kernel of divided warps takes "
        f"{found.divided.time_us:.4g} µs, the best {found.rival.config.kind} one "
        f"{found.rival.time_us:.4g}."
    )


def _times(off: Range, value: float) -> Range:
    return Range(off.low * value, off.expected * value, off.high * value)


def _like_warps(
    problem: NormProblem, device: DeviceProfile, cache: str, warps_per_sm: int | None, rival: str
) -> tuple[NormConfig, KernelFigures]:
    """The legal kernel without a ring whose resident warps are most, and its figures; of the
    rival's kind where one is legal, a strong one before a plain one, which reads rows again."""
    rows = rows_on_sm(problem, device, warps_per_sm)
    wanted = rows.is_one_of("kind", "plain" if rival == "plain" else "strong")
    warps = rows.resident * rows.config["consumers"]
    place = int(np.argmax(np.where(rows.has_ring, 0, warps + MOST_WARPS * wanted)))
    config = NormConfig.from_columns({name: int(c[place]) for name, c in rows.config.items()})
    passes, in_flight = family.PLAIN_PASSES[problem.norm], None
    if config.kind == "strong":  # how far a plain kernel's loops are unrolled is the compiler's
        in_flight = block.vectors_of(problem, config) * config.vector_bytes * family.WARP
        passes = 1
    fits = problem.storage_bytes <= device.limit("l2_bytes")
    return config, KernelFigures(
        threads_per_block=config.threads,
        registers_per_thread=int(rows.registers[place]),
        grid_blocks=block.units_of(problem, config),
        read_bytes=passes * (problem.rows + 1) * problem.row_bytes,
        written_bytes=problem.rows * problem.row_bytes,
        smem_per_block_bytes=int(rows.smem_bytes[place]),
        data_in=L2 if cache == "warm" and fits else MEMORY,
        flops=2.0 * problem.fmas,
        bytes_in_flight_per_warp=in_flight,
        resident_warps=None if warps_per_sm is None else float(warps[place]),
    )
