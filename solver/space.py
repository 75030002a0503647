"""The space of one question: what is legal, what the user's constraints leave, both priced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.conflict import find_conflict
from solver.constraints import NONE, Constraints
from solver.device import DeviceProfile
from solver.errors import InvalidInput, InvalidProblem, ProofError, Unsupported
from solver.families import paper, sm90_gemm
from solver.families.norm_activation import NormProblem
from solver.families.registry import family_of
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.table import Table, part_columns
from solver.units import TICKS_PER_US

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
    the device has no family for the calibrated model.
    """
    if model == "paper":
        if not isinstance(problem, Problem):
            raise Unsupported("model", "paper is of matrix products alone; calibrated is of both")
        return paper.tabulate(problem, device, divergence=divergence, grids=grids)
    return family_of(problem).tabulate(problem, device, cache == "cold", grids)


def check_range(table: Table, extent: str = "m") -> None:
    """Raise InvalidProblem where some time is beyond what 64-bit ticks hold with room to spare,
    about the field ``extent``."""
    w = table.works
    step = (w.load + w.jitter + w.latency + w.math).astype(float)
    longest = w.waves * (w.units * (w.iterations * step + w.epilogue)) + w.fixed + w.store
    if longest.max(initial=0) >= TICKS_MAX:
        raise InvalidProblem(
            extent,
            f"some configuration may take {float(longest.max()) / TICKS_PER_US:.3g} µs on so few "
            f"SMs; times are counted up to {TICKS_MAX / TICKS_PER_US:.3g} µs",
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
        of_works, column = legal.column(bound.variable)
        kept &= bound.holds(column)[work if of_works else kernel]
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
            if bound.variable == "registers_per_thread":
                raise InvalidInput(
                    bound.path.rpartition(".")[0],
                    "is known in model calibrated alone; the published model has no registers",
                )

    def priced(grids: Ticks | None) -> Table:
        return tabulate(
            problem,
            device,
            pricing.model,
            cache=pricing.cache,
            divergence=pricing.divergence,
            grids=grids,
        )

    grids = constraints.grids(device.limit("sms"))
    legal = priced(grids)
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
    allowed = constraints.restrict(legal)
    if not allowed.size:
        raise find_conflict(legal if grids is None else priced(None), constraints)
    return Space(legal, allowed, constraints)
