"""Races to the end: every candidate's time beside the pick's, and what is recorded of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from kernels.against import Beside
from kernels.bench_plan import InvalidPlan, parse_plan
from kernels.contest import Contest, ContestTask, Entrant
from kernels.process import Outcome, OutcomeKind
from kernels.protocol import REGRET, VERIFY
from kernels.regret import RegretRace, RegretRun, RegretTask, paired
from kernels.worker import Task
from solver.problem import Problem
from tests.kernels.test_bench import CONFIG, ROW, plan_text, result, runner

TILES = (128, 64, 192)


def regret_plan(*tiles: int) -> Any:
    rows = [
        ROW | {"role": "regret", "config": CONFIG | {"tile_n": tile}, "of": ["pick", "top"][i:]}
        for i, tile in enumerate(tiles)
    ]
    return parse_plan(plan_text(*rows, ROW, ROW | {"role": "best"}))


def test_rows_of_one_problem_are_one_job_apart_from_its_pick_and_best() -> None:
    jobs = regret_plan(*TILES).jobs()
    assert [[row.role for row in job] for job in jobs] == [["regret"] * 3, ["pick"], ["best"]]
    assert [row.of for row in jobs[0]] == [("pick", "top"), ("top",), ()]


def test_why_a_row_is_tried_is_a_list_of_words() -> None:
    with pytest.raises(InvalidPlan) as raised:
        parse_plan(plan_text(ROW | {"of": "pick"}))
    assert raised.value.field == "rows[0].of"


def test_times_are_compared_round_by_round_with_the_firsts() -> None:
    runs = paired({2: (10.0, 20.0, 12.0), 5: (11.0, 24.0, 12.0)}, 0.95)
    assert (runs[2].relative, runs[2].median_us, runs[2].rounds) == (1.0, 12.0, 3)
    assert runs[5].relative == pytest.approx(1.1)
    assert (runs[5].relative_low, runs[5].relative_high) == (1.0, 1.2)


def test_every_candidate_is_recorded_with_why_it_was_tried() -> None:
    race = RegretRace(
        {0: RegretRun(10.0, 21, 1.0, 1.0, 1.0), 1: RegretRun(9.0, 21, 0.9, 0.89, 0.91)},
        {"sm_clock_mhz": 1980},
    )
    made, worker = runner(lambda task: race)
    record = made.run(regret_plan(128, 64).jobs()[0])
    json.dumps(record)
    (task,) = worker.tasks
    assert isinstance(task, RegretTask)
    assert (task.problem, task.protocol) == (Problem(512, 512, 512), REGRET)
    assert (record["status"], record["role"], record["sm_clock_mhz"]) == ("passed", "regret", 1980)
    assert record["median_us"] == 10.0
    first, second = record["candidates"]
    assert (first["of"], second["of"]) == (["pick", "top"], ["top"])
    assert (second["config"]["tile_n"], second["relative"]) == (64, 0.9)
    assert record["note"] is None


def test_what_can_not_run_by_itself_is_left_out_of_a_second_race() -> None:
    """The first race is lost to the second candidate, which is the only one with its reason."""

    def answer(task: Any) -> Any:
        if isinstance(task, Task):
            if task.config.tile_n == 64:
                return replace(result(1.0), failure="wrong")
            return result(5.0)
        if len(task.configs) == 3:
            return Outcome(OutcomeKind.DIED, 1.0, exit_code=-11)
        return RegretRace({i: RegretRun(5.0, 21, 1.0, 1.0, 1.0) for i in task.configs})

    made, worker = runner(answer)
    record = made.run(regret_plan(*TILES).jobs()[0])
    races = [task for task in worker.tasks if isinstance(task, RegretTask)]
    assert [list(task.configs) for task in races] == [[0, 1, 2], [0, 2]]
    assert "the race ended with" in record["note"]
    relatives = [candidate["relative"] for candidate in record["candidates"]]
    assert relatives == [1.0, None, 1.0]
    assert record["candidates"][1]["failure"] == "wrong"


def test_an_illegal_or_uncompiled_candidate_is_not_launched() -> None:
    def answer(task: RegretTask) -> RegretRace:
        return RegretRace({i: RegretRun(5.0, 21, 1.0, 1.0, 1.0) for i in task.configs})

    made, worker = runner(answer)
    record = made.run(regret_plan(128, 100).jobs()[0])
    assert list(worker.tasks[0].configs) == [0]
    assert "illegal" in record["candidates"][1]["failure"]
    alone, worker = runner(answer)
    failed = alone.run(regret_plan(100).jobs()[0])
    assert worker.tasks == []
    assert (failed["status"], failed["median_us"]) == ("failed", None)


def test_no_candidate_drops_out_and_small_differences_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("cupy")
    import kernels.race
    from tests.kernels.fake_gpu import fake_session, side

    session = fake_session(monkeypatch)
    session.warm = True
    rng = random.Random(4)
    spans = [100.0 * (1 + 0.01 * place) for place in range(15)]
    sides = [
        side(session, str(i), lambda span=span: span * rng.gauss(1.0, 0.02), 2)
        for i, span in enumerate(spans)
    ]
    raced = kernels.race.race(session, sides, REGRET, drop=False)
    rounds = {lap.rounds for lap in raced.laps}
    assert len(rounds) == 1
    assert rounds.pop() >= REGRET.min_rounds
    runs = paired(dict(enumerate(raced.times_us)), REGRET.confidence)
    for i, run in runs.items():
        assert run.relative == pytest.approx(spans[i] / spans[0], abs=0.006)


def contest_plan() -> Any:
    """A pick, another, and two of which the second is raced with the pick in a verification."""
    reasons = (["pick", "contest"], ["truth"], ["contest"])
    rows = [
        ROW | {"role": "regret", "config": CONFIG | {"tile_n": tile}, "of": of}
        for tile, of in zip(TILES, reasons, strict=True)
    ]
    return parse_plan(plan_text(*rows))


def test_what_a_verification_would_learn_is_found_before_the_race_that_judges_it() -> None:
    found = Contest(
        (Entrant(10.0, 1.0, 1.0, 1.0, 12), Entrant(9.0, 0.9, 0.89, 0.91, 12)),
        1,
        Beside(9.0, 10.0, 0.9, 0.89, 0.91, 15, None),
    )

    def answer(task: Any) -> Any:
        if isinstance(task, ContestTask):
            return found
        return RegretRace({i: RegretRun(5.0, 21, 1.0, 1.0, 1.0) for i in task.configs})

    made, worker = runner(answer)
    record = json.loads(json.dumps(made.run(contest_plan().jobs()[0])))
    contest, race = worker.tasks
    assert [config.tile_n for config in contest.configs] == [128, 192]
    assert contest.protocol == VERIFY
    assert list(race.configs) == [0, 1, 2]
    learnt = record["learnt"]
    assert (learnt["winner"], learnt["beats_pick"], learnt["note"]) == (2, True, None)
    assert learnt["fresh"]["high"] == 0.91
    assert [each["candidate"] for each in learnt["candidates"]] == [0, 2]


def test_a_verification_that_dies_leaves_the_race_to_be_run_and_says_why() -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, ContestTask):
            return Outcome(OutcomeKind.DIED, 1.0, exit_code=-11)
        return RegretRace({i: RegretRun(5.0, 21, 1.0, 1.0, 1.0) for i in task.configs})

    made, _ = runner(answer)
    record = made.run(contest_plan().jobs()[0])
    assert record["learnt"]["winner"] is None
    assert "the contest ended with fault" in record["learnt"]["note"]
    assert record["status"] == "passed"
    assert made.run(regret_plan(128, 64).jobs()[0])["learnt"] is None
