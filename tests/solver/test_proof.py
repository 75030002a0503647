"""What the prover accepts and, above all, what it refuses."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from solver import cover
from solver.device import load_profile
from solver.errors import ProofError
from solver.pick import Row, best_rows, row_values
from solver.problem import Problem
from solver.proof import Prover
from solver.recurrence import NUMPY, Ticks
from solver.simulator import simulate
from solver.space import Space, tabulate
from solver.suites import load_suite
from solver.table import MAPPINGS, Table

H200 = load_profile("h200")


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


def case(problem: Problem) -> tuple[Table, Row]:
    table = tabulate(problem, H200, "calibrated")
    return table, best_rows(table)[0]


SAMPLE = [
    *random.Random(3).sample(load_suite("llm"), 8),
    Problem(3, 5, 8),
    Problem(1000, 1000, 1000),
]


@pytest.mark.parametrize("problem", SAMPLE, ids=str)
def test_a_pick_is_proved_and_claims_beside_it_are_not(problem: Problem, prover: Prover) -> None:
    table, best = case(problem)
    proof = prover.prove(Space.whole(table), [best])
    assert proof.configurations == table.size
    assert proof.refuted_by_group + proof.refuted_exactly + proof.finalists == proof.configurations
    for field in ("time", "wait"):
        for step in (-1, 1):
            wrong = dataclasses.replace(best, **{field: getattr(best, field) + step})
            with pytest.raises(ProofError):
                prover.prove(Space.whole(table), [wrong])


def test_any_other_row_is_refused_as_the_pick(prover: Prover) -> None:
    table, _ = case(Problem(512, 4096, 4096))
    for row in best_rows(table, 60)[1:]:
        with pytest.raises(ProofError):
            prover.prove(Space.whole(table), [row])


def test_the_timeline_of_the_proof_is_the_simulators(prover: Prover) -> None:
    table, best = case(Problem(4096, 4096, 4096))
    proof = prover.prove(Space.whole(table), [best])
    pipeline = table.pipeline([best.work], table.kernels.slots[[best.kernel]])
    run = simulate(
        **{name: int(getattr(pipeline, name)[0]) for name in pipeline.__slots__},
        keep_events=len(proof.timeline),
    )
    assert proof.timeline == run.events


@pytest.mark.parametrize("parameter", ["load", "math", "latency", "fixed", "store", "iterations"])
def test_a_row_made_better_behind_the_picks_back_is_found(parameter: str, prover: Prover) -> None:
    """Planted: some other work becomes the pick's twin, one tick or iteration better."""
    table, best = case(Problem(2048, 2048, 2048))
    rng = np.random.default_rng(1)
    others = np.flatnonzero(np.arange(len(table.first)) != best.work)
    for victim in rng.choice(others, 5, replace=False):

        def twin(column: Ticks, less: int = 0, victim: int = int(victim)) -> Ticks:
            changed = column.copy()
            changed[victim] = column[best.work] - less
            return changed

        columns = {f.name for f in dataclasses.fields(table.works)} - set(MAPPINGS)
        works = dataclasses.replace(
            table.works,
            **{c: twin(getattr(table.works, c), int(c == parameter)) for c in columns},
        )
        planted = dataclasses.replace(
            table,
            works=works,
            **{c: twin(getattr(table, c)) for c in ("first", "count", "slots_max", "setup_min")},
        )
        assert best_rows(planted)[0].work == victim, "the plant must win"
        with pytest.raises(ProofError):
            prover.prove(Space.whole(planted), [best])


@pytest.mark.parametrize("name", cover.EXTREMES)
def test_a_bound_that_is_worse_than_a_row_is_noticed(
    name: str, prover: Prover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the extremes make some works look worse than their rows are."""
    table, best = case(Problem(1024, 2048, 1024))
    right = cover.work_extremes

    def wrong(of: Table, numbers: Ticks | None = None) -> Ticks:
        limits = right(of, numbers)
        at = cover.EXTREMES.index(name)
        better = name in ("early", "slots", "busy")
        limits[at] += -1 if better else max(1, int(limits[at].max()))
        return limits

    monkeypatch.setattr(cover, "work_extremes", wrong)
    second = best_rows(table, 2)[1]
    for claim in (best, second):
        with pytest.raises(ProofError):
            prover.prove(Space.whole(table), [claim])


def test_a_group_that_leaves_a_work_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    table, best = case(Problem(2048, 2048, 2048))
    built = cover.build_cover(table, best.time, None)
    lost = dataclasses.replace(built, stop=built.stop.copy())
    lost.stop[int(np.argmax(built.stop - built.start))] -= 1
    with pytest.raises(ProofError, match="partition"):
        cover.check_cover(lost, table, cover.all_numbers(table))
    better = dataclasses.replace(built, best=built.best.copy())
    better.best[0] += 1
    with pytest.raises(ProofError, match="partition"):
        cover.check_cover(better, table, cover.all_numbers(table))


def test_rows_are_joined_while_one_point_beats_them_all_and_none_is_lost() -> None:
    table, _ = case(Problem(64, 6144, 4096))
    work, kernel = table.rows(np.arange(40))
    numbers = cover.row_numbers(table, work, kernel)
    time, _, smem, *_ = row_values(table, work, kernel)
    limits = np.median(time), np.median(smem)

    def beaten(values: Any) -> Any:
        return (values[0] >= limits[0]) & (values[2] >= limits[1])

    built = cover.build_row_cover(table, work, kernel, beaten)
    refuted = (time >= limits[0]) & (smem >= limits[1])
    grouped = built.order[: built.grouped]
    assert refuted[grouped].all()
    assert 0 < built.grouped <= refuted.sum()
    assert len(built.start) < built.grouped / 2
    bounds = cover.value_bounds(cover.named(built.best), NUMPY)
    assert beaten(bounds).all()
    twice = dataclasses.replace(built, order=np.append(built.order[:-1], built.order[0]))
    lost = dataclasses.replace(
        built, start=built.start[1:], stop=built.stop[1:], best=built.best[:, 1:]
    )
    better = dataclasses.replace(built, best=built.best + _away_from_the_rows(built))
    for wrong in (twice, lost, better):
        with pytest.raises(ProofError, match="do not partition the rows"):
            cover.check_row_cover(wrong, numbers)


def _away_from_the_rows(built: cover.RowCover) -> Any:
    """A bound of one group that one of its rows breaks: a later load than any has."""
    change = np.zeros_like(built.best)
    change[cover.EXTREMES.index("load"), 0] = 1
    return change


def test_z3_finds_the_pick_alone_on_a_small_space(prover: Prover) -> None:
    table, _ = case(Problem(8, 8, 64))
    first = best_rows(table)[0]
    keep = np.flatnonzero(np.arange(len(table.first)) % 3 == first.work % 3)[:12]
    works = dataclasses.replace(
        table.works,
        **{
            f.name: getattr(table.works, f.name)[keep]
            for f in dataclasses.fields(table.works)
            if f.name not in MAPPINGS
        },
        config={name: column[keep] for name, column in table.works.config.items()},
    )
    small = dataclasses.replace(
        table,
        works=works,
        first=table.first[keep],
        count=table.count[keep],
        slots_max=table.slots_max[keep],
        setup_min=table.setup_min[keep],
    )
    best = best_rows(small)[0]
    assert prover.search(small) == (best.work, best.kernel)


def test_the_same_question_has_the_same_proof_whatever_was_asked_before(prover: Prover) -> None:
    table, best = case(Problem(4096, 4096, 4096))
    fresh = Prover().prove(Space.whole(table), [best])
    other, row = case(Problem(64, 4096, 4096))
    prover.prove(Space.whole(other), [row])
    assert prover.prove(Space.whole(table), [best]) == fresh
