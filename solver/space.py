"""The space of one question: what is legal, what the user's constraints leave, both priced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from solver.conflict import find_conflict
from solver.constraints import NONE, POWER, Constraints, row_column
from solver.device import PROFILES_VARIABLE, DeviceProfile
from solver.errors import InvalidInput, InvalidProblem, ProofError, Unsupported, UnusableProfile
from solver.families import paper, sm90_gemm, sm90_gemm_power
from solver.families.norm_activation import NormProblem
from solver.families.registry import family_of
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.table import DYNAMIC, STATIC, Table, part_columns
from solver.units import ENERGY_MAX, JOULES_PER_TICK, TICKS_PER_US

UNPUBLISHED = {"registers_per_thread": "registers", POWER: "power"}
"""What constraints bound that the published model does not have, and in words."""
TICKS_MAX = 2**62
"""Bound on every time, so that sums of two fit 64 bits."""


@dataclass(frozen=True, slots=True)
class Pricing:
    """What decides prices besides problem and device: the model, its settings, the SMs."""

    model: str = "calibrated"
    cache: str = "cold"
    divergence: float = 1.0


@dataclass(frozen=True, slots=True)
class Space:
    """``legal`` holds every legal configuration, ``allowed`` those within the constraints.

    Both are priced for the CTAs that the constraints leave.
    """

    legal: Table
    allowed: Table
    constraints: Constraints

    @classmethod
    def whole(cls, table: Table) -> Space:
        """A space without constraints."""
        return cls(table, table, NONE)

    @property
    def excluded(self) -> int:
        """Legal configurations that the constraints rule out."""
        return self.legal.size - self.allowed.size


def tabulate(
    problem: Problem | NormProblem,
    device: DeviceProfile,
    model: str,
    *,
    cache: str = "cold",
    divergence: float = 1.0,
    grids: Ticks | None = None,
) -> Table:
    """The priced legal space for a model name; the published model knows no caches, the
    calibrated one no ``divergence`` (of a warp's threads: a factor on compute time).

    ``grids`` are the counts of CTAs a launch may have, any without. Raises Unsupported where
    the device has no family for the calibrated model, UnusableProfile where its constants give
    some row a time that is no number or beyond 64 bits.
    """
    if model == "paper" and not isinstance(problem, Problem):
        raise Unsupported("model", "paper is of matrix products alone; calibrated is of both")
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            if isinstance(problem, Problem) and model == "paper":
                return paper.tabulate(problem, device, divergence=divergence, grids=grids)
            return family_of(problem).tabulate(problem, device, cache == "cold", grids)
    except ArithmeticError as error:  # of profiles that ship none has such constants
        raise UnusableProfile(
            PROFILES_VARIABLE,
            f"constants of the profile of {device.name} ({device.title}) give no time that can be "
            f"counted: {error}",
        ) from error


def check_range(table: Table, extent: str = "m") -> None:
    """Raise InvalidProblem where some time is beyond what 64-bit ticks hold with room to spare,
    about the field ``extent``."""
    longest = float(_longest(table).max(initial=0)) + float(table.kernels.setup.max(initial=0))
    if longest >= TICKS_MAX:
        raise InvalidProblem(
            extent,
            f"some configuration may take {longest / TICKS_PER_US:.3g} µs on so few "
            f"SMs; times are counted up to {TICKS_MAX / TICKS_PER_US:.3g} µs",
        )


def _longest(table: Table) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A time, in ticks, that no row of each work exceeds by more than its kernel's set-up."""
    w = table.works
    step = sum(part.astype(float) for part in (w.load, w.jitter, w.latency, w.math))
    longest: np.ndarray[Any, np.dtype[np.float64]] = (
        w.waves * (w.units * (w.iterations * step + w.epilogue)) + w.fixed.astype(float) + w.store
    )
    return longest


def with_countable_energy(table: Table) -> Table:
    """The table; without columns of power where some energy is beyond what is counted."""
    power = table.works.power
    if not power:
        return table
    most = power[STATIC] * _longest(table) + power[DYNAMIC]
    if most.max(initial=0) < ENERGY_MAX:
        return table
    return replace(table, works=replace(table.works, power={}))


def require_power(table: Table, device: DeviceProfile, field: str) -> None:
    """Raise Unsupported, or InvalidProblem where energies are too large, about the user's ``field``
    unless the table has columns of power."""
    if table.works.power:
        return
    if table.family != sm90_gemm.NAME:
        raise Unsupported(field, f"{table.family} has no model of power; {sm90_gemm.NAME} has one")
    if sm90_gemm_power.TABLE in device.models:
        raise InvalidProblem(
            field,
            "some configuration may take more energy than is counted, "
            f"{ENERGY_MAX * JOULES_PER_TICK / 1e3:.0f} kJ a launch",
        )
    raise Unsupported(
        field,
        f"the power of {device.name} has not been measured: on one, `python -m kernels.power` does "
        "that, and `python -m bench.power_fit --write` makes constants of it (docs/energy.md)",
    )


def check_restriction(space: Space) -> None:
    """The rows allowed are the legal rows within all bounds, with the same parameters, in order.

    Raises ProofError where they are not.
    """
    if space.allowed is space.legal and not space.constraints.bounds:
        return
    legal, allowed = space.legal, space.allowed
    work, kernel = legal.rows(np.arange(len(legal.first)))
    kept = np.ones(len(work), dtype=bool)
    for bound in space.constraints.bounds:
        kept &= bound.holds(row_column(legal, bound.variable, work, kernel))
    mine = allowed.rows(np.arange(len(allowed.first)))
    for part, theirs, rows, others in (
        (legal.works, allowed.works, work[kept], mine[0]),
        (legal.kernels, allowed.kernels, kernel[kept], mine[1]),
    ):
        pairs = zip(part_columns(part).values(), part_columns(theirs).values(), strict=True)
        if len(rows) != len(others) or any(
            not np.array_equal(column[rows], other[others]) for column, other in pairs
        ):
            raise ProofError("the rows allowed are not the legal ones within the constraints")


def legal_table(
    problem: Problem | NormProblem,
    device: DeviceProfile,
    pricing: Pricing,
    constraints: Constraints,
) -> Table:
    """Every legal configuration, priced for the CTAs that the constraints leave."""
    table = tabulate(
        problem,
        device,
        pricing.model,
        cache=pricing.cache,
        divergence=pricing.divergence,
        grids=constraints.grids(device.limit("sms")),
    )
    return with_countable_energy(table)


def build_space(
    problem: Problem | NormProblem,
    device: DeviceProfile,
    pricing: Pricing,
    constraints: Constraints,
) -> Space:
    """The space of a question.

    Raises Unsatisfiable with a minimal core where the constraints leave nothing, InvalidProblem
    where nothing is legal without them.
    """
    if pricing.model == "paper":
        for bound in constraints.bounds:
            if bound.variable in UNPUBLISHED:
                raise InvalidInput(
                    bound.path.rpartition(".")[0],
                    "is known in model calibrated alone; the published model has no "
                    + UNPUBLISHED[bound.variable],
                )

    def priced(constraints: Constraints) -> Table:
        return legal_table(problem, device, pricing, constraints)

    legal = priced(constraints)
    extent = family_of(problem).extent
    check_range(legal, extent)
    if not legal.size:
        why = ""
        if legal.family == sm90_gemm.NAME:
            most = sm90_gemm.UNITS_MAX
            why = f": even the largest tiles make more units of work of C than {most} (2^31 - 1)"
        raise InvalidProblem(
            extent, f"no configuration of {legal.family} is legal for this problem{why}"
        )
    if constraints.on_power is not None:
        require_power(legal, device, constraints.on_power.rpartition(".")[0])
    allowed = constraints.restrict(legal)
    if not allowed.size:
        raise find_conflict(priced(NONE), legal, constraints, priced)
    return Space(legal, allowed, constraints)
