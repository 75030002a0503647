"""Runs holds in a worker process and keeps what they gave, so that a run may end at any moment.

The process is replaced when a row hangs or kills it; what its row came to is recorded with the
reason. A record is taken up again where it lies: its rows are not measured a second time.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.bench_plan import PlanRow, read_plan
from kernels.bench_result import ResultFile
from kernels.bench_runner import START_DEADLINE_S
from kernels.errors import GpuAbsent, GpuLost, PowerUnread
from kernels.files import read_json
from kernels.host import HostGpu
from kernels.power.answers import ROLES, Asked, judge, read_answers, verdict_words
from kernels.power.meter import HOLD, Held
from kernels.power.worker import Holds, HoldTask, power_facts, run_holds
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.sources import commit as own_commit
from kernels.sweep_file import Shard, difference
from kernels.sweep_host import compile_failures, host_facts
from kernels.verify import Reason, failure_of, require_gpu
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput, InvalidProblem
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality

SUITE, ANSWERS_SUITE = "power", "power_answers"
ROW_S = 30.0
"""Deadline of a row beside its holds: preparing it, checking it."""
OVERHEAD_S = 0.4
"""What a row takes beside its holds, for the budget that is told beforehand."""
COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
)
PROTOCOL = {
    "description": "launches without a pause for seconds; power is what NVML's energy counter "
    "gained between two of its steps over the time between them, energy that times the time per "
    "launch, by CUDA events; inputs rotate over three times the L2 (cold) or lie in it (warm)",
    **HOLD.to_dict(),
}
HOLD_S = HOLD.settle_s + HOLD.hold_s + 0.1


WHOLE = Shard()
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for besides the plan. ``budget_s``: no row is begun after so many seconds."""

    out: Path
    shard: Shard = WHOLE
    rounds: int = ROUNDS
    budget_s: float | None = None
    commit: str | None = None


class Gpu:
    """The host's GPU, a worker process on it, and what every record says of both."""

    def __init__(self, worker: Worker) -> None:
        self.gpu, self.profile = require_gpu()
        self.worker = worker
        self.failures: dict[str, str] = {}

    def facts(self, plan: Path, commit: str | None) -> dict[str, Any]:
        """What all rows of a record have in common. Raises GpuLost, PowerUnread."""
        outcome = self.worker.call(power_facts, (), START_DEADLINE_S)
        if outcome.error_type == PowerUnread.__name__:
            raise PowerUnread(outcome.message)
        if outcome.kind is not OutcomeKind.OK:
            raise GpuLost(f"the GPU process does not start: {failure_of(outcome)[1]}")
        device: dict[str, Any] = outcome.value
        gpu: HostGpu = self.gpu
        return {
            **host_facts(gpu, device),
            "profile": self.profile,
            "commit": commit or own_commit(),
            "plan_sha256": hashlib.sha256(plan.read_bytes()).hexdigest(),
            "plan_profile_sha256": json.loads(plan.read_bytes()).get("profile_sha256"),
            "protocol": PROTOCOL,
            **{name: device[name] for name in READ},
        }

    def hold(self, task: HoldTask) -> Holds:
        """The holds of a task, or what kept them from being made.

        Raises GpuAbsent, PowerUnread and GpuLost, where no other row would fare better.
        """
        for config in task.configs:
            try:
                legality.check(config, task.problem, load_profile(self.profile))
            except (IllegalConfig, InvalidProblem) as error:
                return Holds(failure=f"{Reason.ILLEGAL}: {error}")
            key = family.compile_key(config, task.problem.dtype, task.problem.kernel_layout)
            if key.name in self.failures:
                return Holds(failure=f"{Reason.COMPILE_FAILED}: {self.failures[key.name]}")
        start_s = 0.0 if self.worker.running else START_DEADLINE_S
        deadline_s = start_s + len(task.configs) * (ROW_S + 4 * HOLD_S * task.rounds)
        outcome = self.worker.call(run_holds, (task,), deadline_s)
        if outcome.kind is OutcomeKind.OK:
            held: Holds = outcome.value
            return held
        return _failed(outcome)


READ = ("power_limit_w", "idle_power_w", "idle_sm_clock_mhz")
"""Of a record's facts, what differs a little from run to run."""


def _failed(outcome: Outcome) -> Holds:
    reason, details = failure_of(outcome)
    if outcome.error_type == PowerUnread.__name__:
        raise PowerUnread(outcome.message)
    if reason is Reason.ENVIRONMENT:
        raise GpuAbsent(details)
    return Holds(failure=f"{reason}: {details}")


def earlier_rows(out: Path, facts: dict[str, Any], suite: str) -> list[dict[str, Any]]:
    """The rows that a record holds already but for those that failed; [] without one.

    Raises InvalidInput (field ``out``) where it was made with other facts.
    """
    if not out.exists():
        return []
    record = read_json(out, "out")
    try:
        passed = [row for row in record["rows"] if row["status"] == "passed"]
        theirs = {name: record[name] for name in ("suite", *facts)}
    except (KeyError, TypeError) as error:
        raise InvalidInput("out", f"{out} is no record of kernels.power: {error!r}") from error
    ours = {"suite": suite, **facts}
    for name in READ:
        del theirs[name], ours[name]
    if other := difference(theirs, ours):
        name, was, now = other
        raise InvalidInput(
            "out", f"{out} was begun with {name} {was}, here it is {now}: give another file"
        )
    return passed


def measure_rows(plan_path: Path, options: Options, console: Console) -> bool:
    """Hold the rows of a plan; whether all of the shard's are measured and none failed."""
    plan = read_plan(plan_path)
    wanted = range(options.shard.index, len(plan.rows), options.shard.count)

    def task(gpu: Gpu, index: int) -> HoldTask:
        row = plan.rows[index]
        return HoldTask(row.problem, (row.config,), gpu.profile, row.cache)

    def record(index: int, held: Holds) -> dict[str, Any]:
        return row_record(plan.rows[index], held)

    keys = [(row.problem, (row.config,)) for row in plan.rows]
    return _go_on(plan_path, SUITE, wanted, keys, task, record, 1, options, console)


def row_record(row: PlanRow, held: Holds) -> dict[str, Any]:
    """The record of a plan's row."""
    figures = held.holds[0][0].to_dict() if held.holds else dict.fromkeys(HELD_FIELDS)
    return {
        **row.identity(),
        "status": "passed" if held.failure is None else "failed",
        "details": held.failure,
        **figures,
    }


HELD_FIELDS = tuple(Held.__slots__)


def measure_answers(path: Path, options: Options, console: Console) -> bool:
    """Hold answers in turn and judge them; whether none fails."""
    questions = read_answers(path)

    def task(gpu: Gpu, index: int) -> HoldTask:
        asked = questions[index]
        configs = tuple(asked.configs[role] for role in ROLES)
        seed = secrets.randbits(63)
        return HoldTask(asked.problem, configs, gpu.profile, asked.cache, options.rounds, seed)

    def record(index: int, held: Holds) -> dict[str, Any]:
        return answer_record(questions[index], held)

    keys = [(asked.problem, tuple(asked.configs.values())) for asked in questions]
    wanted = range(options.shard.index, len(questions), options.shard.count)
    holds = len(ROLES) * options.rounds
    held = _go_on(path, ANSWERS_SUITE, wanted, keys, task, record, holds, options, console)
    for row in json.loads(options.out.read_text("utf-8"))["rows"]:
        console.print(verdict_words(row), markup=False)
    return held


def answer_record(asked: Asked, held: Holds) -> dict[str, Any]:
    """The record of a question's answers; it is failed where a verdict is, or nothing was held."""
    if held.failure is not None:
        return {**asked.raw, "status": "failed", "details": held.failure}
    found = judge(asked, dict(zip(ROLES, held.holds, strict=True)))
    fails = [role for role in ("weighted", "capped") if found[role]["verdict"] == "fails"]
    return {
        **asked.raw,
        "status": "failed" if fails else "passed",
        "details": f"the {' and the '.join(fails)} answer does not hold" if fails else None,
        **found,
    }


def _go_on(
    path: Path,
    suite: str,
    wanted: Sequence[int],
    keys: Sequence[tuple[Any, tuple[Any, ...]]],
    task: Callable[[Gpu, int], HoldTask],
    record: Callable[[int, Holds], dict[str, Any]],
    holds: int,
    options: Options,
    console: Console,
) -> bool:
    """Measure what is missing of ``wanted`` and write it after each."""
    begun = time.monotonic()
    with Worker() as worker:
        gpu = Gpu(worker)
        facts = gpu.facts(path, options.commit)
        before = earlier_rows(options.out, facts, suite)
        result = ResultFile(
            options.out,
            {"suite": suite, **facts, "planned": len(keys), "date": _today()},
        )
        for row in before:
            result.add(row)
        done = {row["row"] for row in before}
        left = [index for index in wanted if index not in done]
        each_s = holds * HOLD_S + OVERHEAD_S
        console.print(
            f"{len(left)} of {len(wanted)} to hold, some {len(left) * each_s:.0f} s of GPU time; "
            f"idle {facts['idle_power_w']:.0f} W, limit {facts['power_limit_w']:.0f} W"
        )
        needed = {
            family.compile_key(config, keys[i][0].dtype, keys[i][0].kernel_layout)
            for i in left
            for config in keys[i][1]
        }
        with Progress(*COLUMNS, console=console) as progress:
            gpu.failures = compile_failures(sorted(needed), progress)
        complete = False
        try:
            with Progress(*COLUMNS, console=console) as bars:
                bar = bars.add_task("hold", total=len(wanted), completed=len(wanted) - len(left))
                for index in left:
                    spent_s = time.monotonic() - begun
                    if options.budget_s is not None and spent_s + each_s > options.budget_s:
                        console.print("the budget is spent; the same command goes on")
                        break
                    result.add({"row": index, **record(index, gpu.hold(task(gpu, index)))})
                    bars.advance(bar)
                else:
                    complete = len(done | set(left)) == len(keys)
        finally:
            result.write(complete)
        return not result.failed


def _today() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
