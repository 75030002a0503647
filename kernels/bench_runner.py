"""Runs the jobs of a plan in a worker process and turns outcomes into records.

The process is replaced when a row hangs or kills it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.bench_plan import PlanRow
from kernels.bench_result import failed_row, learnt_part, passed_row, raced_row
from kernels.choose import Choice, ChoiceTask, Tried, run_choice
from kernels.contest import ContestTask, run_contest
from kernels.errors import KernelError
from kernels.process import OutcomeKind, Worker
from kernels.protocol import BENCH, CHOICE, REGRET, SAMPLE, SUSTAINED, VERIFY
from kernels.regret import RegretRace, RegretTask, run_regret
from kernels.rivals import RivalResult, RivalTask, run_rival
from kernels.sustained import LEAST_FLOPS, SustainedResult, SustainedTask, run_sustained
from kernels.verify import Reason, failure_of
from kernels.worker import Task, TaskResult, device_facts, run_task
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.raced import CONTEST

ROW_DEADLINE_S = 60.0
CHOICE_DEADLINE_S = 5.0  # more for each candidate of a race
RIVAL_DEADLINE_S = 180.0  # Triton compiles its candidates the first time
SUSTAINED_DEADLINE_S = 180.0
NEAR = 1.15
"""How much slower than the winner a candidate may be to be tried for a second."""
START_DEADLINE_S = 120.0
RACES = 2  # of one job: the second without those that can't run by themselves


@dataclass(frozen=True, slots=True)
class Extras:
    """What is measured of every pick and best besides: rivals by name (``kernels.rivals``), and
    how large products do for a second."""

    rivals: tuple[str, ...] = ()
    sustained: bool = False


NO_EXTRAS = Extras()


def _near(job: Sequence[PlanRow], choice: Choice, winner: int) -> tuple[Config, ...]:
    """The candidates that came close to the winner in the race, the closest first."""
    times = {i: t.median_us for i, t in enumerate(choice.tried) if t.median_us is not None}
    if winner not in times:
        return ()
    limit = NEAR * times.pop(winner)
    return tuple(job[i].config for i in sorted(times, key=times.__getitem__) if times[i] <= limit)


class Runner:
    """Runs the jobs of one plan. ``said`` hears in a word what is being measured."""

    def __init__(
        self,
        device: str,
        sms: int | None,
        failures: dict[str, str],
        extras: Extras = Extras(),
        said: Callable[[str], None] = lambda word: None,
    ) -> None:
        self._device = device
        self._sms = sms
        self._failures = failures
        self._extras = extras
        self._said = said
        self._worker = Worker()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def device_facts(self) -> dict[str, Any]:
        """What the worker reads off the device. Raises KernelError where it can't start."""
        outcome = self._worker.call(device_facts, (), START_DEADLINE_S)
        if outcome.kind is not OutcomeKind.OK:
            raise KernelError(f"the GPU process does not start: {failure_of(outcome)[1]}")
        facts: dict[str, Any] = outcome.value
        return facts

    def run(self, job: Sequence[PlanRow]) -> dict[str, Any]:
        """The record of a job. Of several candidates the fastest of one pass is measured
        afresh, next to cuBLAS, and that is what is reported; those of role ``regret`` are raced
        to the end, and each is reported."""
        if job[0].role == "regret":
            return self._raced(job)
        if len(job) == 1:
            return self._record(job[0])
        self._said("choose")
        choice, note = self._choose(job)
        winner = choice.winner or 0
        record = self._record(job[winner], _near(job, choice, winner))
        candidates = [
            {"config": row.config.to_dict(), "predicted_us": row.predicted_us, **tried.to_dict()}
            for row, tried in zip(job, choice.tried, strict=True)
        ]
        return record | {"candidates": candidates, "choice_note": note}

    def _raced(self, job: Sequence[PlanRow]) -> dict[str, Any]:
        """The record of candidates that run to the end of a race. Where it was not run to its end
        each runs by itself, and those that can are raced without the others; ``note`` says why.
        Before it, a verification of the first among those of CONTEST: what it finds is held
        against times that it did not choose by."""
        learnt = self._learn(job)
        self._said("race")
        failures = {
            index: ": ".join(refusal)
            for index, row in enumerate(job)
            if (refusal := self._refusal(row)) is not None
        }
        notes: list[str] = []
        raced: RegretRace | None = None
        for attempt in range(RACES):
            able = [index for index in range(len(job)) if index not in failures]
            if not able:
                break
            raced, failure = self._race(job, able)
            if failure is None:
                break
            notes.append(f"the race ended with {': '.join(failure)}")
            if attempt + 1 < RACES:
                for index in able:
                    alone = self._alone(job[index])
                    if alone.failure is not None:
                        failures[index] = alone.failure
        return raced_row(job, raced, failures, "; ".join(notes) or None) | {"learnt": learnt}

    def _learn(self, job: Sequence[PlanRow]) -> dict[str, Any] | None:
        """What a verification of a job's first row finds among the rows of CONTEST, its places
        those of the job; None where the first is none of them or may not be launched."""
        places = [
            index
            for index, row in enumerate(job)
            if CONTEST in row.of and self._refusal(row) is None
        ]
        if not places or places[0] != 0:
            return None
        self._said("learn")
        task = ContestTask(
            problem=job[0].problem,
            configs=tuple(job[place].config for place in places),
            device=self._device,
            seed=secrets.randbits(63),
            protocol=VERIFY.with_cache(job[0].cache),
            sms=self._sms,
        )
        deadline_s = ROW_DEADLINE_S + CHOICE_DEADLINE_S * len(places)
        found, failure = self._call(run_contest, task, deadline_s)
        if failure is not None:
            return learnt_part(places, None, f"the contest ended with {': '.join(failure)}")
        return learnt_part(places, found, None)

    def _race(
        self, job: Sequence[PlanRow], able: Sequence[int]
    ) -> tuple[RegretRace | None, tuple[Reason, str] | None]:
        """A race of some of a job's rows, its runs by their place in the job."""
        task = RegretTask(
            problem=job[0].problem,
            configs={index: job[index].config for index in able},
            device=self._device,
            protocol=REGRET.with_cache(job[0].cache),
            sms=self._sms,
        )
        result, failure = self._call(
            run_regret, task, ROW_DEADLINE_S + CHOICE_DEADLINE_S * len(able)
        )
        return result, failure

    def _refusal(self, row: PlanRow) -> tuple[Reason, str] | None:
        """Why a row is not launched at all; None where it may be."""
        problem, config = row.problem, row.config
        try:
            legality.check(config, problem, load_profile(self._device))
        except (IllegalConfig, InvalidProblem) as error:
            return Reason.ILLEGAL, str(error)
        key = family.compile_key(config, problem.dtype, problem.kernel_layout)
        reason = self._failures.get(key.name)
        return None if reason is None else (Reason.COMPILE_FAILED, reason)

    def _call(
        self, function: Callable[..., Any], task: Any, deadline_s: float
    ) -> tuple[Any, tuple[Reason, str] | None]:
        """A call's value, and None; or None, and why there is no value."""
        deadline_s += 0 if self._worker.running else START_DEADLINE_S
        outcome = self._worker.call(function, (task,), deadline_s)
        if outcome.kind is OutcomeKind.OK:
            return outcome.value, None
        return None, failure_of(outcome)

    def _run(self, row: PlanRow, choosing: bool) -> TaskResult | tuple[Reason, str]:
        refusal = self._refusal(row)
        if refusal is not None:
            return refusal
        sample = row.role == "sample"
        protocol = CHOICE if choosing else SAMPLE if sample else BENCH
        task = Task(
            problem=row.problem,
            config=row.config,
            device=self._device,
            seed=secrets.randbits(63),
            protocol=protocol.with_cache(row.cache),
            sms=self._sms,
            check=row.check and not choosing,
            cublas=not (sample or choosing),
        )
        result, failure = self._call(run_task, task, ROW_DEADLINE_S)
        return failure if failure is not None else result

    def _record(self, row: PlanRow, others: tuple[Config, ...] = ()) -> dict[str, Any]:
        """A row's record; ``others`` are configurations that may do better over a second."""
        self._said("measure")
        result = self._run(row, choosing=False)
        if isinstance(result, TaskResult):
            record = passed_row(row, result)
        else:
            record = failed_row(row, *result)
        if row.role == "sample":
            return record
        passed = record["status"] == "passed"
        for rival in self._extras.rivals:
            record |= self._against(row, rival, passed).to_fields(rival)
        if self._extras.sustained:
            record |= self._held(row, passed, others).to_dict()
        return record

    def _against(self, row: PlanRow, rival: str, passed: bool) -> RivalResult:
        """A row's configuration against another library."""
        if not passed:
            return RivalResult("not run: the row failed")
        self._said(rival)
        protocol = BENCH.with_cache(row.cache)
        task = RivalTask(row.problem, row.config, self._device, protocol, rival, self._sms)
        result, failure = self._call(run_rival, task, RIVAL_DEADLINE_S)
        return result if failure is None else RivalResult(": ".join(failure))

    def _held(self, row: PlanRow, passed: bool, others: tuple[Config, ...]) -> SustainedResult:
        """A row's configuration, or the one of others that holds better, and cuBLAS, each for a
        second at a time."""
        if not passed:
            return SustainedResult(sustained_note="not run: the row failed")
        if row.problem.flops < LEAST_FLOPS:
            return SustainedResult(sustained_note="not run: fewer than 2^40 operations")
        self._said("sustained")
        task = SustainedTask(
            row.problem,
            row.config,
            self._device,
            SUSTAINED,
            row.cache,
            self._sms,
            others,
            secrets.randbits(63),
        )
        result, failure = self._call(run_sustained, task, SUSTAINED_DEADLINE_S)
        return result if failure is None else SustainedResult(sustained_note=": ".join(failure))

    def _choose(self, job: Sequence[PlanRow]) -> tuple[Choice, str | None]:
        """The fastest of a job's rows by a race, or, where the race was not run to its end,
        each by itself; the note says why."""
        refusals = [self._refusal(row) for row in job]
        tried = [Tried(failure=": ".join(r)) if r else Tried() for r in refusals]
        able = [index for index, refusal in enumerate(refusals) if refusal is None]
        if not able:
            return Choice(tuple(tried), None), None
        first = job[0]
        task = ChoiceTask(
            problem=first.problem,
            configs=tuple(job[index].config for index in able),
            device=self._device,
            protocol=CHOICE.with_cache(first.cache),
            sms=self._sms,
        )
        deadline_s = ROW_DEADLINE_S + CHOICE_DEADLINE_S * len(able)
        result, failure = self._call(run_choice, task, deadline_s)
        if failure is None:
            for index, outcome in zip(able, result.tried, strict=True):
                tried[index] = outcome
            winner = None if result.winner is None else able[result.winner]
            return Choice(tuple(tried), winner), None
        for index in able:
            tried[index] = self._alone(job[index])
        timed = [(t.median_us, index) for index, t in enumerate(tried) if t.median_us is not None]
        note = f"each by itself, since the race ended with {': '.join(failure)}"
        return Choice(tuple(tried), min(timed)[1] if timed else None), note

    def _alone(self, row: PlanRow) -> Tried:
        """A candidate timed by itself, so that what it does to its process is its own loss."""
        result = self._run(row, choosing=True)
        if isinstance(result, TaskResult):
            return Tried(result.median_us, result.replays or 0, result.failure)
        return Tried(failure=": ".join(result))
