"""Divided warps against a rival: the fastest of each kind, by races beside the problem or by the
model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from solver.advice.advise import BY_MODEL, BY_RACES, Source
from solver.device import DeviceProfile
from solver.families.norm_activation import KINDS, NormProblem
from solver.families.norm_activation_forecast import Forecast, forecasts
from solver.families.norm_activation_raced import Corrected, corrected

RIVALS = {
    "like_warps": ("strong", "ring"),
    "strong": ("strong",),
    "plain": ("plain",),
}
"""What divided warps are held against: the kinds whose fastest it is."""
DEFAULT_RIVAL = "like_warps"
RIVAL_WORDS = {
    "like_warps": "the fastest of like warps, a ring of theirs included",
    "strong": "the fastest strong kernel, without a ring",
    "plain": "the fastest plain kernel",
}
DIVIDED = "specialised"
Basis = Literal["between", "beyond", "model"]
BETWEEN: Basis = "between"
BEYOND: Basis = "beyond"
MODEL: Basis = "model"
BASES = (BETWEEN, BEYOND, MODEL)
"""What forecasts are by: races on both sides of the problem's arithmetic, races all on one side of
it, the model alone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The fastest kernel of each kind, the rival's among them, and what their times are by."""

    basis: Basis
    rival: Forecast
    kernels: Mapping[str, Forecast]

    @property
    def source(self) -> Source:
        """As an answer says it."""
        return BY_MODEL if self.basis == MODEL else BY_RACES

    @property
    def divided(self) -> Forecast | None:
        """The fastest of divided warps; None where none is legal."""
        return self.kernels.get(DIVIDED)

    @property
    def gain(self) -> float | None:
        """The rival's time over that of divided warps."""
        return None if self.divided is None else self.rival.time_us / self.divided.time_us


def compare(
    problem: NormProblem,
    device: DeviceProfile,
    cache: str,
    warps_per_sm: int | None,
    rival: str,
    *,
    raced: bool = True,
    unseen: bool = False,
) -> Comparison:
    """By races where the rival and divided warps were raced beside the problem, else by the model.

    The rival is the plain kernel where none of its kinds is legal. ``raced`` False: by the model
    whatever was raced; ``unseen`` as ``corrected`` has it. Raises Unsupported for a device without
    the model's constants.
    """
    if raced and (times := corrected(problem, device, warps_per_sm, unseen=unseen)):
        kinds = _kinds(times)
        beside = _fastest(kinds, rival)
        if beside is not None and DIVIDED in kinds:
            return Comparison(BETWEEN if times.between else BEYOND, beside, kinds)
    found = forecasts(problem, device, cache, warps_per_sm)
    return Comparison(MODEL, _fastest(found, rival) or found["plain"], found)


def _kinds(times: Corrected) -> dict[str, Forecast]:
    by_time = sorted(zip(times.time_us.tolist(), times.configs, strict=True), reverse=True)
    fastest = {config.kind: Forecast(config, time_us) for time_us, config in by_time}
    return {kind: fastest[kind] for kind in KINDS if kind in fastest}


def _fastest(found: Mapping[str, Forecast], rival: str) -> Forecast | None:
    kinds = [found[kind] for kind in RIVALS[rival] if kind in found]
    return min(kinds, key=lambda each: each.time_us, default=None)
