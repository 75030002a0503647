"""Whether a norm_activation problem is worth dividing warps for.

By the family's model where the device has its constants (``source`` is ``model``), else by figures
of its kernel of like warps (``figures``). The three steps are of those figures in either case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from solver.advice import thresholds as given
from solver.advice.advise import AGAINST, BY_MODEL, SPECIALISE, Advice, advise
from solver.advice.figures import L2, MEMORY, KernelFigures
from solver.advice.finding import Reason
from solver.advice.rates import rates_of
from solver.advice.thresholds import Range
from solver.device import DeviceProfile
from solver.errors import InvalidProblem
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_crowding import reserved_smem_bytes
from solver.families.norm_activation_forecast import Forecast, forecasts
from solver.families.norm_activation_legality import registers_for
from solver.families.norm_activation_space import legal_configs
from solver.limits import check_choice, check_integer
from solver.occupancy import sm_limits

RIVALS = {
    "like_warps": ("strong", "ring"),
    "strong": ("strong",),
    "plain": ("plain",),
}
"""What divided warps are held against: the kinds whose fastest it is."""
DEFAULT_RIVAL = "like_warps"
LEAST_WARPS, MOST_WARPS = 4, 64
"""What may fit on an SM: no kernel of like warps has fewer, no SM holds more."""
GRID = "the 77 fitted problems of the grid measured on one H200, 2026-11-30"
GAIN_OFF = {
    "like_warps": Range(0.94, 1.0, 1.06),
    "strong": Range(0.68, 1.0, 1.07),
    "plain": Range(0.86, 1.0, 1.19),
}
"""Measured over predicted gain against each rival: nine in ten of GRID; plain without those of 4
warps an SM, where only narrow plain kernels were measured."""
RING_OFF = Range(0.93, 1.0, 1.0)
"""The same of rings of like warps against the best of like warps."""
TIME_OFF = Range(0.87, 1.0, 1.24)
"""Measured over predicted time of the rivals: nine in ten of GRID."""
BY_MODEL_SOURCE = f"the family's model; measured over predicted gain of nine in ten of {GRID}"
VETOES = ("short_kernel", "too_little_data", "served_by_l2")
"""Reasons that hold whatever the model says: it knows no launch so short so well."""


@dataclass(frozen=True, slots=True)
class NormAdvice:
    """The advice for a problem, the kernel that it is about, and by the model the fastest kernel of
    each kind; none where the advice is by figures."""

    advice: Advice
    config: NormConfig
    kernels: tuple[Forecast, ...]


def advise_problem(
    problem: NormProblem,
    device: DeviceProfile,
    cache: str = "cold",
    *,
    warps_per_sm: int | None = None,
    rival: str = DEFAULT_RIVAL,
) -> NormAdvice:
    """Whether divided warps beat the fastest kernel of a rival's kinds; the plain one where none of
    them is legal.

    ``cache`` warm: x is in the L2, where all of the launch's data fits. ``warps_per_sm``: something
    else takes up the SM, so that so many fit. Raises InvalidProblem for no rows, InvalidInput for
    fewer warps than any kernel has, Unsupported for a device that advice is not for.
    """
    if problem.rows == 0:
        raise InvalidProblem("rows", "must be at least 1: no rows are no launch")
    check_choice("rival", rival, tuple(RIVALS))
    if warps_per_sm is not None:
        check_integer("warps_per_sm", warps_per_sm, LEAST_WARPS, MOST_WARPS)
    rates_of(device)  # refuses a device that advice is not for
    kernel = _like_warps(problem, device, warps_per_sm, rival)
    by_figures = advise(_figures(problem, kernel, device, cache, warps_per_sm), device)
    if family.NAME not in device.models:
        return NormAdvice(by_figures, kernel, ())
    found = forecasts(problem, device, cache, warps_per_sm)
    rivals = [found[kind] for kind in RIVALS[rival] if kind in found] or [found["plain"]]
    best = min(rivals, key=lambda each: each.time_us)
    advice = _by_model(by_figures, best, found, GAIN_OFF[rival])
    return NormAdvice(advice, best.config, tuple(found.values()))


def _by_model(
    by_figures: Advice, rival: Forecast, found: Mapping[str, Forecast], off: Range
) -> Advice:
    """The model's verdict, with the steps by figures beside it."""
    reasons = [each for each in by_figures.reasons if each.reason in VETOES]
    divided, ring = found.get("specialised"), found.get("ring")
    ratio = 0.0 if divided is None else rival.time_us / divided.time_us
    if ratio < given.MODEL_GAIN.value:
        reasons.append(Reason("slower_by_model", _words(divided, rival)))
    if reasons:
        reasons += [each for each in by_figures.reasons if each not in reasons]
    return replace(
        by_figures,
        verdict=AGAINST if reasons else SPECIALISE,
        reasons=tuple(reasons),
        missing=(),
        present_us=_times(TIME_OFF, rival.time_us),
        gain=None if divided is None else _times(off, ratio),
        gain_rests_on=BY_MODEL_SOURCE,
        alternative_gain=None if ring is None else _times(RING_OFF, rival.time_us / ring.time_us),
        alternative_rests_on=BY_MODEL_SOURCE,
        source=BY_MODEL,
    )


def _words(divided: Forecast | None, rival: Forecast) -> str:
    if divided is None:
        return "No kernel of divided warps is legal here."
    return (
        f"By the model the best kernel of divided warps takes {divided.time_us:.4g} us, the best "
        f"{rival.config.kind} one {rival.time_us:.4g}."
    )


def _times(off: Range, value: float) -> Range:
    return Range(off.low * value, off.expected * value, off.high * value)


def _like_warps(
    problem: NormProblem, device: DeviceProfile, warps_per_sm: int | None, rival: str
) -> NormConfig:
    """The legal kernel without a ring whose resident warps are most; of the rival's kind where one
    is legal, a strong one before a plain one, which reads rows three times."""
    wanted = "plain" if rival == "plain" else "strong"
    likes = [
        config
        for config in takewhile(lambda c: not c.has_ring, legal_configs(problem, device))
        if reserved_smem_bytes(problem, config, warps_per_sm, device) is not None
    ]
    return max(likes, key=lambda config: (config.kind == wanted, _warps(problem, config, device)))


def _warps(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> int:
    registers = registers_for(config, family.words_of(problem, config))
    smem = family.smem_bytes(problem, config)
    blocks = family.resident_blocks(config, registers, smem, sm_limits(device))
    return blocks * config.warps


def _figures(
    problem: NormProblem,
    config: NormConfig,
    device: DeviceProfile,
    cache: str,
    warps_per_sm: int | None,
) -> KernelFigures:
    passes, in_flight = 3, None  # how far a plain kernel's loops are unrolled is the compiler's
    if config.kind == "strong":
        in_flight = family.vectors_of(problem, config) * config.vector_bytes * family.WARP
        passes = 1
    fits = problem.storage_bytes <= device.limit("l2_bytes")
    held = None
    if warps_per_sm is not None:
        blocks = warps_per_sm // config.warps
        held = float(min(blocks * config.warps, _warps(problem, config, device)))
    return KernelFigures(
        threads_per_block=config.threads,
        registers_per_thread=registers_for(config, family.words_of(problem, config)),
        grid_blocks=family.units_of(problem, config),
        read_bytes=passes * (problem.rows + 1) * problem.row_bytes,
        written_bytes=problem.rows * problem.row_bytes,
        smem_per_block_bytes=family.smem_bytes(problem, config),
        data_in=L2 if cache == "warm" and fits else MEMORY,
        flops=2.0 * problem.fmas,
        bytes_in_flight_per_warp=in_flight,
        resident_warps=held,
    )
