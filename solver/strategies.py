"""One joint solve against layered ones: what each finds, and how long it takes.

Liu and Grover (arXiv 2506.11209) suggest to simulate first, so as to prune, and to solve
inside what is left. Here a layer is all that shares LAYER_FIELDS. The layered strategies play
one configuration of each layer, keep the N layers whose one is fastest and pick and prove
inside these; the joint one picks and proves over the whole space.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.bench import PASSES, Progress, reference_ms
from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.engine import Engine
from solver.errors import ProofError
from solver.pick import Row, best_rows
from solver.problem import Problem
from solver.proof import Prover
from solver.recurrence import Pipeline, Ticks
from solver.report import naming
from solver.simulator import simulate_rows
from solver.space import Space, tabulate
from solver.table import Mask, Table
from solver.units import us_from_ticks

LAYER_FIELDS = ("tile_m", "tile_n", "tile_k", "math_warpgroups")
PLAIN = {"split_k": 1, "raster_group": 1, "mma_in_flight": 0, "cluster_m": 1, "cluster_n": 1}
"""What the configuration that stands for its layer has, where the layer has such a one."""

KEPT = (1, 4, 16)
"""How many layers a layered strategy solves in."""

PLAYED_ITERATIONS_MAX = 512
"""Of a longer run no more k-iterations are played; the rest follows at the pace reached."""

SEARCHED_ROWS_MAX = 200
"""Rows up to which Z3 is also asked without a candidate."""

STRATEGIES = ("joint", *(f"layered_{kept}" for kept in KEPT), "z3_alone")


@dataclass(frozen=True, slots=True)
class Layers:
    """The L layers of a table with W works, and the row that stands for each.

    ``of`` [W] is each work's layer; ``work`` and ``kernel`` [L] are the rows.
    """

    of: Ticks
    work: Ticks
    kernel: Ticks


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one strategy found for one problem, among how many configurations, in what time."""

    config: Config
    time: int
    configurations: int
    simulate_ms: float
    solve_ms: float

    @property
    def total_ms(self) -> float:
        """Simulating and solving."""
        return self.simulate_ms + self.solve_ms


@dataclass(frozen=True, slots=True)
class Comparison:
    """All strategies on one problem, once.

    ``ranking`` [L] lists the layers, the fastest played first; ``optimum_rank`` is the place
    in it, from 1, of the joint optimum's layer. ``played_whole`` is the share of layers
    whose run was not cut. ``outcomes`` has no ``z3_alone`` where the layer is too large.
    """

    problem: Problem
    configurations: int
    ranking: Ticks
    optimum_rank: int
    played_whole: float
    tabulate_ms: float
    outcomes: Mapping[str, Outcome]

    def gap(self, strategy: str) -> float:
        """The predicted time a strategy found over the optimum's, less one."""
        return self.outcomes[strategy].time / self.outcomes["joint"].time - 1

    def is_optimum(self, strategy: str) -> bool:
        """Whether it found the very configuration of the joint solve."""
        return self.outcomes[strategy].config == self.outcomes["joint"].config


def build_layers(table: Table) -> Layers:
    """The layers of a table, each with its plain row of the deepest ring, else its first row."""
    fields = np.stack([table.works.config[name] for name in LAYER_FIELDS], axis=1)
    distinct, of = np.unique(fields, axis=0, return_inverse=True)
    work, kernel = table.rows(np.arange(len(table.first)))
    plain = np.ones(len(work), dtype=bool)
    for name, value in PLAIN.items():
        of_works, column = table.column(f"config.{name}")
        plain &= column[work if of_works else kernel] == value
    depth = np.where(plain, table.kernels.slots[kernel], 0)
    ranked = np.lexsort((-depth, of[work]))  # stable: of equals the first
    _, at = np.unique(of[work[ranked]], return_index=True)
    stands = ranked[at]
    assert len(stands) == len(distinct)
    return Layers(of, work[stands], kernel[stands])


def play(table: Table, work: Ticks, kernel: Ticks) -> tuple[Ticks, Mask]:
    """(time, whether it was played whole) of each row by the event simulator. Ticks, [R].

    Of a run longer than PLAYED_ITERATIONS_MAX the first part is played, and half of that part
    too: what is left takes as long for each k-iteration as the second half did.
    """
    rows = table.pipeline(work, table.kernels.slots[kernel])
    long, short = _cut(rows, PLAYED_ITERATIONS_MAX), _cut(rows, PLAYED_ITERATIONS_MAX // 2)
    both = [
        np.concatenate([getattr(long, name), getattr(short, name)]) for name in Pipeline.__slots__
    ]
    ends, _ = simulate_rows(Pipeline(*both))
    end, half = np.split(ends, 2)
    total, steps, half_steps = (p.iterations * p.units for p in (rows, long, short))
    whole = steps == total
    pace = (end - half) / np.maximum(steps - half_steps, 1)
    end = np.where(whole, end, end + np.rint((total - steps) * pace).astype(np.int64))
    return table.launch_ticks(work, table.kernels.setup[kernel], end), whole


def compare(problem: Problem, device: DeviceProfile, prover: Prover) -> Comparison:
    """Every strategy on one problem, in the calibrated model. Raises ProofError as ``prove``."""
    clock = _Clock()
    table = tabulate(problem, device, "calibrated")
    tabulate_ms = clock.lap_ms()
    best = _solve(table, prover)
    outcomes = {"joint": Outcome(best.config, best.time, table.size, 0.0, clock.lap_ms())}

    layers = build_layers(table)
    played, whole = play(table, layers.work, layers.kernel)
    ranking = np.argsort(played, kind="stable")
    simulate_ms = clock.lap_ms()
    for kept in KEPT:
        inside = _keep(table, layers, ranking[:kept])
        row = _solve(inside, prover)
        outcomes[f"layered_{kept}"] = Outcome(
            row.config, row.time, inside.size, simulate_ms, clock.lap_ms()
        )
    first = outcomes["layered_1"]
    if first.configurations <= SEARCHED_ROWS_MAX:
        clock.lap_ms()
        inside = _keep(table, layers, ranking[:1])
        found = inside.config(*prover.search(inside))
        if found != first.config:
            raise ProofError(f"Z3's own search found {found} in a layer, the pick {first.config}")
        outcomes["z3_alone"] = dataclasses.replace(first, solve_ms=clock.lap_ms())
    return Comparison(
        problem=problem,
        configurations=table.size,
        ranking=ranking,
        optimum_rank=1 + int(np.flatnonzero(ranking == layers.of[best.work])[0]),
        played_whole=float(whole.mean()),
        tabulate_ms=tabulate_ms,
        outcomes=outcomes,
    )


def bench_strategies(
    problems: Sequence[Problem], device: str = "h200", *, progress: Progress | None = None
) -> dict[str, Any]:
    """Every strategy on every problem, three times; of each strategy the best pass is reported.

    Times are wall milliseconds, without those of the table, which all strategies share. Gaps
    are of predicted times: the strategy's over the joint solve's, less one.
    """
    profile = load_profile(device)
    prover = Prover()
    Engine(prover).warm([device])
    passes: list[list[Comparison]] = []
    for number in range(PASSES):
        compared = []
        for at, problem in enumerate(problems):
            with naming(problem):
                compared.append(compare(problem, profile, prover))
            if progress:
                progress(number * len(problems) + at + 1, PASSES * len(problems))
        passes.append(compared)
    best = {name: _best_pass(passes, name) for name in STRATEGIES}
    some = passes[0]
    return {
        "device": device,
        "cores": len(os.sched_getaffinity(0)),
        "shapes": len(problems),
        "layer": list(LAYER_FIELDS),
        "layers_p50": float(np.median([len(row.ranking) for row in some])),
        "optimum_layer_rank_max": max(row.optimum_rank for row in some),
        "played_iterations_max": PLAYED_ITERATIONS_MAX,
        "played_whole": float(np.mean([row.played_whole for row in some])),
        "searched_rows_max": SEARCHED_ROWS_MAX,
        "tabulate_p50_ms": min(float(np.median([r.tabulate_ms for r in rows])) for rows in passes),
        "strategies": {name: _figures(best[name], name) for name in STRATEGIES},
        "with_candidate_p50_ms": _with_candidate_ms(best["layered_1"]),
        "reference_ms": reference_ms(),
        "by_shape": [
            _shape(some[i], {name: best[name][i] for name in STRATEGIES})
            for i in range(len(problems))
        ],
    }


class _Clock:
    def __init__(self) -> None:
        self._since = time.perf_counter()

    def lap_ms(self) -> float:
        """Milliseconds since the last lap."""
        since, self._since = self._since, time.perf_counter()
        return (self._since - since) * 1e3


def _solve(table: Table, prover: Prover) -> Row:
    """The pick of a table, proved."""
    best = best_rows(table)[0]
    prover.prove(Space.whole(table), [best])
    return best


def _keep(table: Table, layers: Layers, kept: Ticks) -> Table:
    """The rows of some layers alone."""
    kernels = np.ones(len(table.kernels.slots), dtype=bool)
    return table.restrict(np.isin(layers.of, kept), kernels)


def _cut(rows: Pipeline, most: int) -> Pipeline:
    """The first part of each run, of at most so many k-iterations: whole units, or part of one."""
    iterations = np.minimum(rows.iterations, most)
    units = np.minimum(rows.units, most // iterations)
    return dataclasses.replace(rows, iterations=iterations, units=units)


def _best_pass(passes: Sequence[Sequence[Comparison]], strategy: str) -> Sequence[Comparison]:
    """The pass in which a strategy's median time was least."""

    def median_ms(rows: Sequence[Comparison]) -> float:
        times = [row.outcomes[strategy].total_ms for row in rows if strategy in row.outcomes]
        return float(np.median(times)) if times else 0.0

    return min(passes, key=median_ms)


def _with_candidate_ms(rows: Sequence[Comparison]) -> float | None:
    """Median time of layered_1's solve where z3_alone was asked of the same configurations."""
    times = [row.outcomes["layered_1"].solve_ms for row in rows if "z3_alone" in row.outcomes]
    return float(np.median(times)) if times else None


def _figures(rows: Sequence[Comparison], strategy: str) -> dict[str, Any]:
    """A strategy's figures over the problems it was asked; of the others it has none."""
    asked = [row for row in rows if strategy in row.outcomes]
    if not asked:
        return {"shapes": 0}
    outcomes = [row.outcomes[strategy] for row in asked]
    gaps = [row.gap(strategy) for row in asked]
    figures: dict[str, Any] = {
        "shapes": len(asked),
        "configurations_p50": float(np.median([o.configurations for o in outcomes])),
        "optimum": sum(row.is_optimum(strategy) for row in asked) / len(asked),
        "geomean_gap": math.exp(math.fsum(math.log1p(gap) for gap in gaps) / len(gaps)) - 1,
        "worst_gap": max(gaps),
    }
    for name in ("total_ms", "simulate_ms", "solve_ms"):
        times = [getattr(outcome, name) for outcome in outcomes]
        part = name.removesuffix("total_ms").removesuffix("ms")
        figures |= {f"{part}p{p}_ms": float(np.percentile(times, p)) for p in (50, 99)}
    return figures


def _shape(about: Comparison, best: Mapping[str, Comparison]) -> dict[str, Any]:
    """One problem's line: what each strategy found, timed in its best pass.

    ``optimum_apart`` is what the optimum has that no row standing for a layer has.
    """
    problem, optimum = about.problem, about.outcomes["joint"].config
    found = {}
    for name, row in best.items():
        if name in row.outcomes:
            outcome = row.outcomes[name]
            found[name] = {
                "configurations": outcome.configurations,
                "time_us": us_from_ticks(outcome.time),
                "gap": row.gap(name),
                "optimum": row.is_optimum(name),
                "simulate_ms": outcome.simulate_ms,
                "solve_ms": outcome.solve_ms,
            }
    return {
        **problem.to_dict(),
        "configurations": about.configurations,
        "layers": len(about.ranking),
        "optimum_layer_rank": about.optimum_rank,
        "optimum_apart": {
            name: getattr(optimum, name)
            for name, value in PLAIN.items()
            if getattr(optimum, name) != value
        },
        "played_whole": about.played_whole,
        "strategies": found,
    }
