"""Which (problem, configuration) pairs a ground-truth sweep measures: pure, and seeded.

Three parts. ``paper``: the published protocol of arXiv 2506.11209 whole, its suite's problems with
A and B in the L2 and its four tilings, with one DMA warp and with two. ``design``: for the LLM
suite and further shapes, cold, configurations drawn so that they cover the legal space. ``top``:
the model's first ones for the same problems. A seeded part of all rows is measured a second time.

Nothing is random but by the seed; prices are integers, so that machines whose floating-point
functions differ in a last digit agree but for a row at a bound, which ``sha256`` would tell.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.families import paper
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey, compile_key
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.shapes import odd_problems, unaligned_problems, varied_problems
from solver.space import tabulate
from solver.suites import load_suite
from solver.table import Table
from solver.units import TICKS_PER_US

DESIGN_ROWS = 150
TOP_ROWS = 20
SEED = 2
REPEATED = 0.05
"""The part of all rows that is measured twice."""

FURTHER = {"odd": 22, "varied": 24, "unaligned": 14}
"""How many shapes of each generator of ``solver.shapes`` join the LLM suite."""

SLOWEST = 8.0
"""Rows predicted to take longer than this many times the best say nothing about picks."""
SLOWEST_US = 4000.0
LEAST_SLOWEST = 2.0
"""Where the best takes so long that SLOWEST times it would pass SLOWEST_US, the bound is that, but
never below LEAST_SLOWEST times the best."""

STRATA = 4
"""Parts of equal ratio into which times from the best to the bound are cut."""
DRAWS = 8
"""Rows among which the one of the least used values is taken."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One pair to measure. ``role``: paper | design | top; ``cache``: cold | warm."""

    suite: str
    cache: str
    role: str
    problem: Problem
    config: Config

    @property
    def group(self) -> tuple[str, str, Problem]:
        """What rows share that are measured together."""
        return self.suite, self.cache, self.problem

    @property
    def key(self) -> CompileKey:
        """The kernel that it launches."""
        return compile_key(self.config, self.problem.dtype, self.problem.kernel_layout)


@dataclass(frozen=True, slots=True)
class Visit:
    """Rows of one problem that are measured one after another; ``turn`` is 0, or 1 for the
    second time."""

    turn: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Design:
    """The rows of a sweep, in order; a row's id is its index. ``repeated`` are the ids of those
    that are measured a second time, ascending."""

    device: str
    seed: int
    design_rows: int
    rows: tuple[SweepRow, ...]
    repeated: tuple[int, ...] = field(repr=False)

    @cached_property
    def sha256(self) -> str:
        """Hash of every row and of which are repeated."""
        digest = hashlib.sha256()
        for row in self.rows:
            values = (row.suite, row.cache, row.role)
            fields = (*row.problem.to_dict().values(), *row.config.to_dict().values())
            digest.update((repr((*values, *fields)) + "\n").encode())
        digest.update(repr(self.repeated).encode())
        return digest.hexdigest()

    def visits(self, shard: int = 0, shards: int = 1) -> tuple[Visit, ...]:
        """What a shard measures, in order.

        Problems come in a seeded order, of which a shard has every ``shards``-th; so do the rows
        of each. When all have been visited, the repeated rows follow, in orders of their own, so
        that the GPU has another history when it meets them again.
        """
        rng = random.Random(f"order {self.seed}")
        groups: dict[Any, list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(row.group, []).append(index)
        order = list(groups.values())
        rng.shuffle(order)
        mine = order[shard::shards]
        repeated = set(self.repeated)
        again = [[i for i in ids if i in repeated] for ids in mine]
        rng = random.Random(f"again {self.seed} {shard} {shards}")
        rng.shuffle(again)
        for ids in (*mine, *again):
            rng.shuffle(ids)
        turns = [(turn, ids) for turn, visits in enumerate((mine, again)) for ids in visits if ids]
        return tuple(Visit(turn, tuple(ids)) for turn, ids in turns)


def make_design(
    device: str = "h200",
    design_rows: int = DESIGN_ROWS,
    seed: int = SEED,
    top_rows: int = TOP_ROWS,
) -> Design:
    """The whole design for a device profile: ``design_rows`` covering configurations of each cold
    problem and the model's first ``top_rows``; fewer where the space is smaller."""
    profile = load_profile(device)
    rows = paper_rows(profile)
    for suite, problems in cold_problems(seed).items():
        for problem in problems:
            rows += cold_rows(suite, problem, profile, design_rows, top_rows, seed)
    count = round(REPEATED * len(rows))
    repeated = random.Random(f"repeated {seed}").sample(range(len(rows)), count)
    return Design(device, seed, design_rows, tuple(rows), tuple(sorted(repeated)))


def cold_problems(seed: int) -> dict[str, tuple[Problem, ...]]:
    """The LLM suite and FURTHER shapes, none twice, by suite."""
    suites = {"llm": load_suite("llm")}
    seen = set(suites["llm"])
    for name, make in (
        ("odd", odd_problems),
        ("varied", varied_problems),
        ("unaligned", unaligned_problems),
    ):
        # Twice as many as are wanted, since some are the LLM suite's own.
        fresh = [p for p in dict.fromkeys(make(seed, 2 * FURTHER[name])) if p not in seen]
        suites[name] = tuple(fresh[: FURTHER[name]])
        seen.update(fresh)
    return suites


def paper_config(tile_m: int, tile_n: int, dma_warps: int, profile: DeviceProfile) -> Config:
    """The published kernel in this family's terms: one MATH warpgroup for its one MATH warp, each
    product waited for before its slot is given back (``mma_in_flight`` 0), no cluster, no split,
    tiles in plain order, and as many stages as fit up to 8."""

    def config(stages: int) -> Config:
        return Config(family.NAME, tile_m, tile_n, paper.TILE_K, stages, dma_warps=dma_warps)

    limit = profile.limit("smem_per_block_bytes")
    element_bytes = Problem(1, 1, 1).element_bytes
    stages = range(1, paper.STAGES_MAX + 1)
    return config(
        max(s for s in stages if family.smem_bytes(config(s).to_dict(), element_bytes) <= limit)
    )


def paper_rows(profile: DeviceProfile) -> list[SweepRow]:
    """The published protocol: every problem of its suite with every tiling and DMA warp count."""
    configs = [
        paper_config(tile_m, tile_n, dma_warps, profile)
        for tile_m in paper.TILES
        for tile_n in paper.TILES
        for dma_warps in paper.DMA_WARPS
    ]
    return [
        SweepRow("paper", "warm", "paper", problem, config)
        for problem in load_suite("paper")
        for config in configs
    ]


def cold_rows(
    suite: str,
    problem: Problem,
    profile: DeviceProfile,
    design_rows: int,
    top_rows: int,
    seed: int,
) -> list[SweepRow]:
    """The rows of one cold problem, which depend on nothing but it, the model and the seed."""
    table = tabulate(problem, profile, "calibrated")
    top = [row.config for row in best_rows(table, top_rows)] if top_rows else []
    rng = random.Random(f"design {seed} {problem}")
    design = covering(table, design_rows, rng, top)
    return [
        SweepRow(suite, "cold", role, problem, config)
        for role, configs in (("top", top), ("design", design))
        for config in configs
    ]


def slowest_ticks(best: int) -> float:
    """The longest predicted time, in ticks, that a drawn row may have where the best has this."""
    return min(SLOWEST * best, max(LEAST_SLOWEST * best, SLOWEST_US * TICKS_PER_US))


def columns_of(table: Table, work: Ticks, kernel: Ticks) -> dict[str, Ticks]:
    """Configuration fields of rows, those alone of which there are several values."""
    columns = {name: column[work] for name, column in table.works.config.items()}
    columns |= {name: column[kernel] for name, column in table.kernels.config.items()}
    return {name: column for name, column in columns.items() if len(np.unique(column)) > 1}


class _Use:
    """How often each value of each variable has been used, in even shares of its variable."""

    def __init__(self, columns: Mapping[str, Ticks]) -> None:
        self._columns = columns
        self._share = {
            name: dict.fromkeys(np.unique(column).tolist(), 0) for name, column in columns.items()
        }

    def levels(self) -> list[tuple[str, int]]:
        """Every value with its variable."""
        return [(name, value) for name, values in self._share.items() for value in values]

    def share(self, level: tuple[str, int]) -> int:
        """What a value has had so far."""
        name, value = level
        return self._share[name][value]

    def crowding(self, row: int) -> int:
        """What a row's values have had so far, together."""
        return sum(self._share[name][int(c[row])] for name, c in self._columns.items())

    def add(self, row: int) -> None:
        """Count a row's values as used once more."""
        for name, column in self._columns.items():
            self._share[name][int(column[row])] += len(self._share[name])


def covering(table: Table, count: int, rng: random.Random, taken: Sequence[Config]) -> list[Config]:
    """``count`` configurations that cover a legal space evenly, none of ``taken`` among them.

    Each next one has the value, of any variable, that falls shortest of an even share, and comes
    from the next part of the range of predicted times in turn (STRATA); of several drawn so, the
    one whose other values fall shortest too is taken. So every value that is legal occurs, and
    fast and slow rows are had alike. A value of which every row is slower than ``slowest_ticks``
    occurs once, in its fastest row.
    """
    work, kernel = table.rows(np.arange(len(table.first)))
    time, _ = price(table, work, kernel)
    best = int(time.min())
    bound = slowest_ticks(best)
    stratum = np.searchsorted(best * (bound / best) ** (np.arange(1, STRATA) / STRATA), time)
    columns = columns_of(table, work, kernel)
    use = _Use(columns)
    levels = use.levels()
    near = time <= bound
    rows_of = {level: np.flatnonzero(near & (columns[level[0]] == level[1])) for level in levels}
    free = np.ones(len(time), dtype=bool)
    chosen: list[Config] = []
    known = set(taken)
    while levels and len(chosen) < count:
        least = min(map(use.share, levels))
        level = rng.choice([each for each in levels if use.share(each) == least])
        pool = rows_of[level] = rows_of[level][free[rows_of[level]]]
        if pool.size:
            part = pool[stratum[pool] == len(chosen) % STRATA]
            pool = part if part.size else pool
            draws = [int(pool[rng.randrange(len(pool))]) for _ in range(DRAWS)]
            row = min(draws, key=use.crowding)
        else:
            levels.remove(level)
            far = np.flatnonzero(free & (columns[level[0]] == level[1]))
            if least or not far.size:
                continue
            row = int(far[np.argmin(time[far])])
        free[row] = False
        config = table.config(int(work[row]), int(kernel[row]))
        if config not in known:
            chosen.append(config)
            use.add(row)
    return chosen
