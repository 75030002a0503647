"""Which pairs a ground-truth sweep measures: all of them legal, and the whole space touched."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from solver.config import Config
from solver.device import load_profile
from solver.families import paper
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm_registers import register_table
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.space import tabulate
from solver.suites import load_suite
from solver.sweep_design import (
    DESIGN_ROWS,
    FURTHER,
    LEAST_SLOWEST,
    REPEATED,
    SEED,
    SLOWEST,
    SLOWEST_US,
    TOP_ROWS,
    Design,
    SweepRow,
    cold_problems,
    cold_rows,
    columns_of,
    make_design,
    paper_rows,
    slowest_ticks,
)
from solver.table import Table
from solver.units import TICKS_PER_US

ROOT = Path(__file__).resolve().parents[2]
H200 = load_profile("h200")


@cache
def design() -> Design:
    return make_design()


def by_problem() -> dict[tuple[str, str, Problem], list[SweepRow]]:
    groups: dict[tuple[str, str, Problem], list[SweepRow]] = {}
    for row in design().rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def cold_groups() -> Iterator[tuple[Problem, list[SweepRow]]]:
    for (_, cache_state, problem), rows in by_problem().items():
        if cache_state == "cold":
            yield problem, rows


def whole_space(problem: Problem) -> tuple[Table, Ticks, Ticks]:
    table = tabulate(problem, H200, "calibrated")
    return table, *table.rows(np.arange(len(table.first)))


def test_it_has_the_papers_protocol_and_enough_rows_of_every_cold_problem() -> None:
    counts = Counter(row.role for row in design().rows)
    assert counts["paper"] == 4096
    groups = list(cold_groups())
    assert len(groups) == len(load_suite("llm")) + 60
    assert sum(FURTHER.values()) == 60
    for _, rows in groups:
        assert Counter(row.role for row in rows) == {"design": DESIGN_ROWS, "top": TOP_ROWS}


def test_no_pair_is_planned_twice_but_the_repeats() -> None:
    rows = design().rows
    assert len(set(rows)) == len(rows)
    repeated = design().repeated
    assert len(set(repeated)) == len(repeated) == round(REPEATED * len(rows))
    assert {rows[index].suite for index in repeated} == {"llm", "paper", *FURTHER}


def test_every_row_is_legal() -> None:
    for (_, _, problem), rows in by_problem().items():
        legality.check(rows[0].config, problem, H200)
        dicts = [row.config.to_dict() for row in rows]
        columns = {
            name: np.array([each[name] for each in dicts]) for name in dicts[0] if name != "family"
        }
        registers = np.array([register_table().of(row.key) for row in rows])
        block = legality.BlockLimits.of(H200)
        for limit in (  # what check asks of one configuration, of all of a problem's at once
            *legality.domain_limits(columns),
            *legality.launch_limits(columns, problem, H200.limit("sms")),
            *legality.kernel_limits(columns, problem.element_bytes, block, registers),
        ):
            assert np.all(limit.holds), (problem, limit.field, limit.rule)


def test_every_legal_value_of_every_variable_occurs() -> None:
    for problem, rows in cold_groups():
        table, work, kernel = whole_space(problem)
        for name, column in columns_of(table, work, kernel).items():
            used = {getattr(row.config, name) for row in rows if row.role == "design"}
            assert used == set(np.unique(column).tolist()), (problem, name)


def test_values_are_used_about_evenly_and_so_are_times() -> None:
    problem = Problem(4096, 4096, 4096)
    rows = [row.config for row in by_problem()["llm", "cold", problem] if row.role == "design"]
    for name in ("tile_k", "dma_warps", "mma_in_flight", "tile_m"):
        used = Counter(getattr(config, name) for config in rows)
        assert min(used.values()) >= 0.6 * len(rows) / len(used), name
    table, work, kernel = whole_space(problem)
    time, _ = price(table, work, kernel)
    known = {table.config(int(w), int(k)): t for w, k, t in zip(work, kernel, time, strict=True)}
    ratio = np.array([known[config] for config in rows]) / time.min()
    parts, _ = np.histogram(np.log(ratio), bins=4, range=(0, float(np.log(SLOWEST))))
    assert parts.min() >= 0.15 * len(rows)


def test_a_row_is_slow_only_where_a_value_has_no_faster_one() -> None:
    for problem in (Problem(1024, 1024, 1024), Problem(16384, 16384, 16384)):
        table, work, kernel = whole_space(problem)
        time, _ = price(table, work, kernel)
        bound = slowest_ticks(int(time.min()))
        known = {
            table.config(int(w), int(k)): t for w, k, t in zip(work, kernel, time, strict=True)
        }
        far = {
            (name, value): time[column == value].min()
            for name, column in columns_of(table, work, kernel).items()
            for value in np.unique(column).tolist()
            if time[column == value].min() > bound
        }
        rows = by_problem()["llm", "cold", problem]
        slow = [row.config for row in rows if known[row.config] > bound]
        assert far
        assert len(slow) <= len(far)
        for config in slow:
            assert known[config] in far.values()


@pytest.mark.parametrize(
    ("best_us", "bound_us"),
    [(10.0, 10.0 * SLOWEST), (1000.0, SLOWEST_US), (11000.0, 11000.0 * LEAST_SLOWEST)],
)
def test_the_bound_on_a_rows_time_tightens_where_the_best_is_slow(
    best_us: float, bound_us: float
) -> None:
    assert slowest_ticks(round(best_us * TICKS_PER_US)) == bound_us * TICKS_PER_US


def test_the_models_first_rows_are_among_them() -> None:
    problem = Problem(512, 4096, 4096)
    rows = by_problem()["llm", "cold", problem]
    first = best_rows(tabulate(problem, H200, "calibrated"), TOP_ROWS)
    assert [row.config for row in rows if row.role == "top"] == [row.config for row in first]


def test_a_paper_row_is_the_published_kernel_with_as_many_stages_as_fit() -> None:
    rows = paper_rows(H200)
    configs = {row.config for row in rows}
    assert len(configs) == 8
    assert {row.problem for row in rows} == set(load_suite("paper"))
    assert {row.cache for row in rows} == {"warm"}
    published = ("tile_k", "mma_in_flight", "math_warpgroups", "register_split", "cluster_m")
    table = paper.tabulate(load_suite("paper")[0], H200)
    first = table.config(0, 0)
    for config in configs:
        for name in (*published, "cluster_n", "split_k", "raster_group"):
            assert getattr(config, name) == getattr(first, name), name
        deeper = Config(**{**config.to_dict(), "stages": config.stages + 1})
        fits = family.smem_bytes(deeper.to_dict(), 2) <= H200.limit("smem_per_block_bytes")
        assert config.stages == paper.STAGES_MAX or not fits
    assert {(c.tile_m, c.tile_n, c.dma_warps) for c in configs} == {
        (m, n, warps) for m in paper.TILES for n in paper.TILES for warps in paper.DMA_WARPS
    }


def test_further_shapes_are_odd_unaligned_and_of_every_layout_and_output_type() -> None:
    suites = cold_problems(SEED)
    llm = set(suites.pop("llm"))
    further = [problem for problems in suites.values() for problem in problems]
    assert len(set(further) - llm) == 60
    assert {p.layout for p in further} == {"tn", "nn", "nt", "tt"}
    assert {p.out for p in further} == {"bf16", "fp16", "fp32"}
    assert any(not p.a.aligned for p in further)
    assert any(p.lda != p.k for p in further if p.layout == "tn")
    odd = [p for p in suites["odd"] if p.k % 64 and p.k % 8 == 0]
    assert sum(p.m >= 512 for p in odd) >= 5


def test_a_problems_rows_are_the_same_in_another_process() -> None:
    program = """
from solver.device import load_profile
from solver.problem import Problem
from solver.sweep_design import cold_rows
rows = cold_rows("x", Problem(200, 1000, 1032), load_profile("h200"), 40, 5, 9)
print([row.config for row in rows])
"""
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    rows = cold_rows("x", Problem(200, 1000, 1032), H200, 40, 5, 9)
    assert answers == {f"{[row.config for row in rows]}\n"}
    assert rows != cold_rows("x", Problem(200, 1000, 1032), H200, 40, 5, 10)


def test_a_space_smaller_than_what_is_asked_for_is_taken_whole() -> None:
    problem = Problem(1, 8, 8)
    size = tabulate(problem, H200, "calibrated").size
    rows = cold_rows("x", problem, H200, size + 100, 20, 1)
    assert len({row.config for row in rows}) == len(rows) == size


def test_shards_part_the_problems_and_every_row_is_met_once_a_turn() -> None:
    whole = design()
    everything = [(row, 0) for row in range(len(whole.rows))]
    everything += [(row, 1) for row in whole.repeated]
    parts = [whole.visits(shard, 3) for shard in range(3)]
    met = [(row, v.turn) for visits in parts for v in visits for row in v.rows]
    assert sorted(met) == sorted(everything)
    problems = [
        {whole.rows[row].group for visit in visits for row in visit.rows} for visits in parts
    ]
    assert not problems[0] & problems[1]
    assert len(set.union(*problems)) == sum(map(len, problems)) == 512 + 96 + 60
    sizes = [sum(len(visit.rows) for visit in visits) for visits in parts]
    assert max(sizes) < 1.25 * min(sizes)


def test_repeats_come_after_everything_else_and_in_another_order() -> None:
    visits = design().visits()
    turns = [visit.turn for visit in visits]
    assert turns == sorted(turns)
    again = [visit for visit in visits if visit.turn]
    first = [row for visit in visits if not visit.turn for row in visit.rows]
    second = [row for visit in again for row in visit.rows]
    assert [row for row in first if row in set(second)] != second
    for visit in visits:
        assert len({design().rows[row].group for row in visit.rows}) == 1
