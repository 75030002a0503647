"""Which rows a calibration measures: some two hundred that tell most, and fresh ones to judge by.

Candidates are rows of the problems that a ground truth has (``solver.sweep_design``): shapes and
forms that nothing is fitted to stay held out here too, and are what is judged by. Half of the rows
cover the candidates at random; the others are taken one after another, each the one that narrows
the constants most, given those before it (a Bayesian D-optimal design about the start's constants).
Few kernels are used, since each has to be compiled. Pure, and seeded.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.calibration.least_squares import jacobian_of
from solver.calibration.rows import FAMILY, Floats, Integers, log_times, with_constants
from solver.config import Config
from solver.device import DeviceProfile
from solver.families.sm90_gemm import CompileKey, compile_key
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem
from solver.split import held_out_forms, is_held_out
from solver.suites import load_suite
from solver.sweep_design import SEED as PROBLEMS_SEED
from solver.sweep_design import SweepRow, Visit, cold_problems, cold_rows, paper_rows

SEED = 1
ROWS = 200
COVERING = 0.6
"""The part of the rows that covers; the others are the most telling."""
EACH = 6
"""Rows of one problem at most: they err together."""
KERNELS = 96
"""Kernels at most, of which covering rows use up to two thirds."""
REPEATED = 20
ROW_SPREAD = 0.1
"""What a row is off by for reasons that no constant is of, as far as the design cares."""

PAPER_PART = 0.25
"""Of the covering rows."""
PROBLEMS = {"paper": 24, "llm": 24, "odd": 8, "varied": 10, "unaligned": 6}
FRESH_PROBLEMS = {"paper": 8, "llm": 10, "odd": 3, "varied": 3, "unaligned": 2}
DESIGN_ROWS, TOP_ROWS = 20, 4
FRESH_ROWS = 2
"""Rows of each fresh problem: one of the model's first, one drawn to cover."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of one problem that may be measured: configuration columns, shape [R] each."""

    suite: str
    problem: Problem
    cold: bool
    columns: dict[str, Integers]

    def __len__(self) -> int:
        return len(self.columns["tile_m"])

    @property
    def measured_us(self) -> Floats:
        """None of them is measured: not a number, [R]."""
        return np.full(len(self), np.nan)

    def config(self, row: int) -> Config:
        """A row's configuration."""
        return Config(FAMILY, **{name: int(self.columns[name][row]) for name in CONFIG_FIELDS})

    def key(self, row: int) -> CompileKey:
        """The kernel that a row launches."""
        return compile_key(self.config(row), self.problem.dtype, self.problem.kernel_layout)


@dataclass(frozen=True, slots=True)
class CalibrationDesign:
    """Rows to measure: to fit to, fresh ones to judge by, and which are measured twice, by their
    place in ``rows``."""

    rows: tuple[SweepRow, ...]
    fitted: tuple[int, ...]
    fresh: tuple[int, ...]
    repeated: tuple[int, ...]
    seed: int

    def visits(self) -> tuple[Visit, ...]:
        """All rows problem by problem in a seeded order, then the repeated ones."""
        rng = random.Random(f"visits {self.seed}")
        found = []
        for turn, places in ((0, range(len(self.rows))), (1, self.repeated)):
            groups: dict[Any, list[int]] = {}
            for place in places:
                groups.setdefault(self.rows[place].group, []).append(place)
            visits = [Visit(turn, tuple(group)) for group in groups.values()]
            rng.shuffle(visits)
            found += visits
        return tuple(found)


def draw_problems(
    counts: Mapping[str, int], seed: int, *, held_out: bool
) -> list[tuple[str, Problem]]:
    """Problems by suite, drawn of those whose shape is (not) held out; fewer where there are."""
    suites = {"paper": tuple(load_suite("paper"))} | cold_problems(PROBLEMS_SEED)
    drawn = []
    for suite, count in counts.items():
        able = [p for p in suites[suite] if is_held_out(p.m, p.n, p.k) is held_out]
        rng = random.Random(f"problems {seed} {suite} {held_out}")
        drawn += [(suite, p) for p in rng.sample(able, min(count, len(able)))]
    return drawn


def candidates_of(
    problems: Sequence[tuple[str, Problem]],
    device: DeviceProfile,
    seed: int,
    design_rows: int = DESIGN_ROWS,
    top_rows: int = TOP_ROWS,
) -> list[Candidates]:
    """The rows of problems that a ground truth would have, fewer of each."""
    paper: dict[Problem, list[SweepRow]] = {}
    if any(suite == "paper" for suite, _ in problems):
        for row in paper_rows(device):
            paper.setdefault(row.problem, []).append(row)
    found = []
    for suite, problem in problems:
        rows = (
            paper[problem]
            if suite == "paper"
            else cold_rows(suite, problem, device, design_rows, top_rows, seed)
        )
        values = [row.config.to_dict() for row in rows]
        columns = {
            name: np.array([each[name] for each in values], dtype=np.int64)
            for name in CONFIG_FIELDS
        }
        found.append(Candidates(suite, problem, suite != "paper", columns))
    return found


def trainable(candidates: Candidates) -> Candidates:
    """Without rows of forms that nothing is fitted to."""
    kept = ~held_out_forms(candidates.columns)
    columns = {name: column[kept] for name, column in candidates.columns.items()}
    return Candidates(candidates.suite, candidates.problem, candidates.cold, columns)


def make_design(
    device: DeviceProfile, widths: Mapping[str, float], seed: int = SEED, rows: int = ROWS
) -> CalibrationDesign:
    """The design about a device's constants as they are known before."""
    pool = [
        each
        for each in map(
            trainable, candidates_of(draw_problems(PROBLEMS, seed, held_out=False), device, seed)
        )
        if len(each)
    ]
    chosen = [_row(pool, place) for place in choose(pool, device, widths, rows, seed)]
    fresh = [
        _row([each], (0, row))
        for each in candidates_of(
            draw_problems(FRESH_PROBLEMS, seed, held_out=True), device, seed, 1, 1
        )
        for row in _fresh_rows(each, seed)
    ]
    every = (*chosen, *fresh)
    rng = random.Random(f"repeated {seed}")
    again = rng.sample(range(len(chosen)), min(REPEATED, len(chosen)))
    return CalibrationDesign(
        every,
        tuple(range(len(chosen))),
        tuple(range(len(chosen), len(every))),
        tuple(sorted(again)),
        seed,
    )


def _fresh_rows(candidates: Candidates, seed: int) -> list[int]:
    rng = random.Random(f"fresh {seed} {candidates.problem}")
    return sorted(rng.sample(range(len(candidates)), min(FRESH_ROWS, len(candidates))))


def _row(pool: Sequence[Candidates], place: tuple[int, int]) -> SweepRow:
    group = pool[place[0]]
    cache = "cold" if group.cold else "warm"
    return SweepRow(group.suite, cache, "calibration", group.problem, group.config(place[1]))


def choose(
    pool: Sequence[Candidates],
    device: DeviceProfile,
    widths: Mapping[str, float],
    rows: int,
    seed: int,
    kernels: int = KERNELS,
) -> list[tuple[int, int]]:
    """(group, row) of the rows to fit to; fewer where the pool has no more."""
    places = [(g, r) for g, group in enumerate(pool) for r in range(len(group))]
    keys = [pool[g].key(r) for g, r in places]
    chosen = _covering(pool, places, keys, round(COVERING * rows), kernels * 2 // 3, seed)
    sensitivity = _sensitivity(pool, device, widths)
    chosen += _telling(sensitivity, places, keys, chosen, rows - len(chosen), kernels)
    return sorted(places[index] for index in chosen)


def _covering(
    pool: Sequence[Candidates],
    places: Sequence[tuple[int, int]],
    keys: Sequence[CompileKey],
    count: int,
    kernels: int,
    seed: int,
) -> list[int]:
    """Rows at random, PAPER_PART of them the paper's, of at most so many kernels."""
    order = list(range(len(places)))
    random.Random(f"covering {seed}").shuffle(order)
    left = {True: count - round(PAPER_PART * count), False: round(PAPER_PART * count)}
    used: set[CompileKey] = set()
    chosen = []
    for index in order:
        cold = pool[places[index][0]].cold
        if left[cold] and (len(used) < kernels or keys[index] in used):
            left[cold] -= 1
            used.add(keys[index])
            chosen.append(index)
    return chosen


def _sensitivity(
    pool: Sequence[Candidates], device: DeviceProfile, widths: Mapping[str, float]
) -> Floats:
    """d log(time) / d log(constant) of every row, in the constants' widths, over ROW_SPREAD."""
    before = {name: device.constant(FAMILY, name) for name in widths}

    def moved(x: Floats) -> Floats:
        values = {n: v * float(np.exp(d)) for (n, v), d in zip(before.items(), x, strict=True)}
        return log_times(pool, with_constants(device, values, "design"))

    at = np.zeros(len(before))
    scaled: Floats = jacobian_of(moved, at, moved(at)) * np.array(list(widths.values()))
    return scaled / ROW_SPREAD


def _telling(
    sensitivity: Floats,
    places: Sequence[tuple[int, int]],
    keys: Sequence[CompileKey],
    chosen: Sequence[int],
    count: int,
    kernels: int,
) -> list[int]:
    """Further rows, each the one that lowers the constants' joint uncertainty most."""
    group = np.array([g for g, _ in places])
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    kernel = np.array([numbers[key] for key in keys])
    free = np.ones(len(places), dtype=bool)
    free[list(chosen)] = False
    used = set(kernel[list(chosen)].tolist())
    given = sensitivity[list(chosen)]
    covariance = np.linalg.inv(np.eye(sensitivity.shape[1]) + given.T @ given)
    per_group = np.bincount(group[list(chosen)], minlength=int(group.max()) + 1)
    found: list[int] = []
    while len(found) < count:
        able = free & (per_group[group] < EACH)
        if len(used) >= kernels:
            able &= np.isin(kernel, list(used))
        if not able.any():
            break
        told = np.einsum("rp,pq,rq->r", sensitivity, covariance, sensitivity)
        index = int(np.where(able, told, -1.0).argmax())
        row = sensitivity[index]
        pull = covariance @ row
        covariance -= np.outer(pull, pull) / (1 + row @ pull)
        free[index] = False
        used.add(int(kernel[index]))
        per_group[group[index]] += 1
        found.append(index)
    return found
