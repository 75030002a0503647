"""The launches whose programs are read off a norm_activation kernel: few, small, and with much in
each: rings that go round several times, a last unit that is cut, a round in which some groups have
no work, persistent blocks and counted ones, another depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernels.norm.compile import compile_key
from kernels.norm.plan import NormPlan, units_per_block
from solver.device import load_profile
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_legality import why_illegal
from solver.ring.stream import Stream, StreamUnit
from solver.ring.teams import Teams

BLOCKS = 2  # of a persistent launch
TURNS = 2  # that a ring goes round, and more
ROUNDS = 2  # of a counted block


@dataclass(frozen=True, slots=True)
class NormLaunch:
    """A launch and its block that is read."""

    plan: NormPlan
    block: int

    @property
    def units(self) -> range:
        """The block's units of work, by number (``Schedule`` of norm_types.cuh)."""
        each = units_per_block(self.plan.config)
        total = block.units_of(self.plan.problem, self.plan.config)
        if not each:
            return range(self.block, total, self.plan.grid)
        return range(self.block * each, min(total, (self.block + 1) * each))

    def rows_of(self, unit: int) -> range:
        """The rows of a unit."""
        problem, config = self.plan.problem, self.plan.config
        each = config.teams
        if config.has_ring:
            each = block.chunking(problem, config).rows_per_unit
        return range(unit * each, min(problem.rows, (unit + 1) * each))

    def chunks_of(self, unit: int) -> list[range]:
        """The bytes of x, from its start, of each chunk of a unit, as often as it comes; none
        without a ring."""
        problem, config = self.plan.problem, self.plan.config
        if not config.has_ring:
            return []
        found = block.chunking(problem, config)
        rows = self.rows_of(unit)
        start, end = rows.start * problem.row_bytes, rows.stop * problem.row_bytes
        if found.chunks_per_unit == 1:
            return [range(start, end)]
        size = config.chunk_bytes
        chunks = [range(at, min(end, at + size)) for at in range(start, end, size)]
        return chunks * (2 if config.hold == "reload" else 1)


def described(launch: NormLaunch) -> Teams:
    """The description of a launch's blocks."""
    problem, config = launch.plan.problem, launch.plan.config
    sums = 2 if problem.norm == "layer" else 1
    if not config.has_ring:
        return Teams(config.consumers, config.team, sums)
    return Stream(
        warps=config.consumers,
        team=config.team,
        sums=sums,
        producers=config.producers,
        groups=config.groups,
        depth=config.depth,
        copies=config.copies,
        barrier=config.barrier,
        hold=config.hold,
        chunked=block.chunking(problem, config).chunks_per_unit > 1,
        bulk_stores=config.stores == "bulk",
    )


def units_of(launch: NormLaunch) -> list[StreamUnit]:
    """The units of the block that is read, as the description has them."""
    return [
        StreamUnit(len(launch.rows_of(unit)), tuple(map(len, launch.chunks_of(unit))))
        for unit in launch.units
    ]


def small_launches(problem: NormProblem, config: NormConfig) -> Iterator[NormLaunch]:
    """The launches of the kernel that a legal configuration of a problem has."""
    key = compile_key(problem, config)
    degree = 1 if problem.activation == "poly" else 0
    seen = set()
    for depth, rounds, last in (
        (config.depth, 0, True),
        (config.depth, ROUNDS, False),
        (config.depth + 1, 0, True),
        (max(2, config.depth - 1), ROUNDS, True),
    ):
        made = replace(config, rounds=rounds, depth=depth if config.has_ring else 0)
        problem_ = replace(problem, degree=degree, rows=_rows(problem, made, last))
        if compile_key(problem_, made) != key or why_illegal(problem_, made, load_profile("h200")):
            continue
        if (made, last) in seen:
            continue
        seen.add((made, last))
        plan = small_plan(problem_, made)
        yield NormLaunch(plan, plan.grid - 1 if last else 0)


def small_plan(problem: NormProblem, config: NormConfig) -> NormPlan:
    """The launch of a legal configuration in few blocks: BLOCKS of them where they are
    persistent."""
    units, each = block.units_of(problem, config), units_per_block(config)
    grid = -(-units // each) if each else min(BLOCKS, units)
    return NormPlan(problem, config, grid, config.threads, block.smem_bytes(problem, config), 1)


def _rows(problem: NormProblem, config: NormConfig, last: bool) -> int:
    """Rows with which a persistent block goes round its rings, and more, and of the block that is
    read the last unit is cut and, if it is the ``last``, some groups end a round without work."""
    if not config.has_ring:
        return int(config.teams * BLOCKS * ROUNDS - (config.teams > 1))
    found = block.chunking(problem, config)
    rounds = config.rounds or -(-(TURNS * config.depth + 1) // found.chunks_per_unit)
    units: int = BLOCKS * rounds * config.groups
    if last:
        units -= config.groups // 2 * (BLOCKS if not config.rounds else 1)
    rows: int = units * found.rows_per_unit - (found.rows_per_unit > 1)
    return max(1, rows)
