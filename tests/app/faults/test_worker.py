"""The worker process killed, hung or crashed; jobs cancelled, stopped and taken up again."""

from __future__ import annotations

import errno
import multiprocessing.spawn
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.errors import AlreadyEnded, StoreUnavailable
from app.schemas.service import Ready
from app.store.database import Database
from app.store.job import Job, Outcome
from app.store.tables import launches
from bench.service_process import until
from tests.app.conftest import service
from tests.app.faults import planted_work
from tests.app.faults.conftest import Bench
from tests.app.faults.planted import GPU, run_planted
from tests.app.faults.planted_work import CRASHES, HANGS
from tests.app.faults.running import body


def begun(job: Job) -> list[int]:
    """The processes in which the job's work began."""
    return [
        pid for word, job_id, pid, _ in planted_work.read() if (word, job_id) == ("begin", job.id)
    ]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def outcomes(bench: Bench, job: Job) -> list[str]:
    query = select(launches.c.outcome).where(launches.c.job_id == job.id)
    with bench.database.read() as connection:
        return list(connection.execute(query.order_by(launches.c.attempt)).scalars())


def test_jobs_run_one_at_a_time_in_one_warm_process(bench: Bench) -> None:
    jobs = [bench.submit(sleeps_ms=50) for _ in range(3)]
    bench.queue.start()
    assert [bench.ended(job).status for job in jobs] == ["passed"] * 3
    lines = planted_work.read()
    assert [job for _, job, _, _ in lines] == [job.id for job in jobs for _ in range(2)]
    assert len({pid for _, _, pid, _ in lines}) == 1
    until(lambda: bench.counted == [("passed", None)] * 3)


def test_a_worker_killed_mid_launch_is_replaced_and_its_job_run_again(bench: Bench) -> None:
    job, after = bench.submit(sleeps_ms=1000), bench.submit()
    bench.queue.start()
    until(lambda: len(begun(job)) == 1)
    os.kill(begun(job)[0], signal.SIGKILL)
    killed_s = time.monotonic()
    ended = bench.ended(job)
    print(f"recovery: {time.monotonic() - killed_s:.2f} s from a worker's kill to its job's end")
    assert (ended.status, ended.attempts, ended.losses) == ("passed", 2, 1)
    assert len(set(begun(job))) == 2
    assert outcomes(bench, job) == ["lost", "passed"]
    assert bench.ended(after).status == "passed"


def test_a_job_whose_worker_is_killed_every_time_is_given_up(bench: Bench) -> None:
    job, after = bench.submit(HANGS), bench.submit()
    bench.queue.start()
    for attempt in range(3):
        until(lambda attempt=attempt: len(begun(job)) > attempt)  # type: ignore[misc]
        os.kill(begun(job)[-1], signal.SIGKILL)
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("failed", "worker_lost")
    assert outcomes(bench, job) == ["lost", "lost", "failed"]
    assert bench.ended(after).status == "passed"


def refusing_start(*_: object) -> None:
    raise OSError(errno.EAGAIN, "no process left")


def leaving_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends before it takes a call, as one whose Python is broken."""
    monkeypatch.setattr(multiprocessing.spawn, "get_executable", lambda: b"/bin/false")


@pytest.mark.parametrize("how", ["refused", "leaves"])
def test_a_worker_that_can_not_be_started_costs_no_job_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setattr("app.restarts.FIRST_S", 0.1)
    monkeypatch.setattr("app.restarts.MOST_S", 0.4)
    with monkeypatch.context() as patch:
        if how == "refused":
            patch.setattr("multiprocessing.context.SpawnProcess.start", refusing_start)
        else:
            leaving_at_once(patch)
        job, after = bench.submit(), bench.submit()
        bench.queue.start()
        until(lambda: bench.queue.failures >= 5)
        assert bench.queue.state == "restarting"
        for waiting in (job, after):
            kept = bench.store.get(waiting.id)
            assert (kept.status, kept.attempts, kept.losses) == ("queued", 0, 0)
    for ended in (bench.ended(job), bench.ended(after)):
        assert (ended.status, ended.attempts, ended.losses) == ("passed", 1, 0)
    until(lambda: (bench.queue.state, bench.queue.failures) == ("idle", 0))
    said = [record.getMessage() for record in caplog.records if "did not start" in record.message]
    assert [line.rpartition("; ")[2] for line in said[:5]] == [
        "again in 0.1 s",
        "again in 0.2 s",
        "again in 0.4 s",
        "again in 0.4 s",
        "again in 0.4 s",
    ]
    assert ("no process left" if how == "refused" else "exit code 1") in said[0]


def test_a_stop_does_not_wait_for_a_worker_that_can_not_be_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refusing_start)
    monkeypatch.setattr("app.restarts.FIRST_S", 20.0)
    job = bench.submit()
    bench.queue.start()
    until(lambda: bench.queue.failures == 1)
    begun_s = time.monotonic()
    bench.queue.stop(20)
    assert time.monotonic() - begun_s < 5
    assert bench.store.get(job.id).status == "queued"


def test_readiness_says_that_the_worker_is_started_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    database.close()
    url = database.url.render_as_string(hide_password=False)
    with service(GPU, run_planted, initialise=dict, database=url) as client:
        with monkeypatch.context() as patch:
            leaving_at_once(patch)
            location = client.post("/v1/verifications", json=body(0)).headers["location"]
            until(lambda: client.get("/readyz").json()["gpu_worker"] == "restarting")
            answer = client.get("/readyz")
            assert answer.status_code == 200, "questions are answered"
            assert Ready.model_validate_json(answer.content).gpu_worker_failures >= 1
        until(lambda: client.get(location).json()["status"] == "passed")
        until(lambda: client.get("/readyz").json()["gpu_worker"] == "idle")
        assert client.get("/readyz").json()["gpu_worker_failures"] == 0


def test_a_worker_that_is_lost_again_and_again_is_started_later_and_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.restarts.FIRST_S", 0.5)
    job, after = bench.submit(HANGS), bench.submit()
    bench.queue.start()
    killed_s = []
    for attempt in range(3):
        until(lambda attempt=attempt: len(begun(job)) > attempt)  # type: ignore[misc]
        killed_s.append(time.monotonic())
        os.kill(begun(job)[-1], signal.SIGKILL)
    assert bench.ended(job).reason == "worker_lost"
    assert killed_s[1] - killed_s[0] > 0.5
    assert killed_s[2] - killed_s[1] > 1.0
    assert bench.ended(after).status == "passed"
    until(lambda: bench.queue.failures == 0)


def test_a_cancelled_run_is_no_failure_of_the_worker(bench: Bench) -> None:
    job = bench.submit(HANGS)
    bench.queue.start()
    until(lambda: bool(begun(job)))
    bench.queue.cancel(job.id)
    bench.ended(job)
    bench.ended(bench.submit())
    until(lambda: bench.queue.state == "idle")
    assert bench.queue.failures == 0


def test_a_hung_worker_is_killed_at_its_deadline_and_the_next_job_runs(bench: Bench) -> None:
    queue = bench.make(deadline_s=1.0)
    job, after = bench.submit(HANGS), bench.submit()
    queue.start()
    ended = bench.ended(job)
    hung_s = time.monotonic()
    assert (ended.status, ended.reason, ended.attempts) == ("failed", "timeout", 1)
    assert gone(begun(job)[0])
    assert bench.ended(after).status == "passed"
    print(f"recovery: {time.monotonic() - hung_s:.2f} s from a hang's end to the next job's")
    assert begun(after) != begun(job)


def test_a_crash_is_the_kernels_own_fault_and_the_next_job_runs(bench: Bench) -> None:
    job, after = bench.submit(CRASHES), bench.submit()
    bench.queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.reason, ended.attempts) == ("failed", "fault", 1)
    assert ended.result is not None
    assert "SIGSEGV" in ended.result["details"]
    assert bench.ended(after).status == "passed"


def test_cancelling_a_running_job_ends_its_process(bench: Bench) -> None:
    job, after = bench.submit(HANGS), bench.submit()
    bench.queue.start()
    until(lambda: bool(begun(job)))
    assert bench.queue.cancel(job.id).status == "running"
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("cancelled", "requested")
    assert gone(begun(job)[0])
    assert bench.ended(after).status == "passed"
    assert outcomes(bench, job) == ["cancelled"]


@pytest.mark.parametrize("cancelled", ["before", "after"])
def test_what_is_cancelled_as_its_run_ends_teaches_nothing_or_has_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, cancelled: str
) -> None:
    """Cancelled between the process's answer and its end's being recorded: the database is away for
    the first try to record it."""
    taught: list[str] = []
    answers: list[str] = []

    def learn(job: Job, outcome: Outcome) -> Outcome:
        taught.append(job.id)
        return outcome

    queue = bench.make(learn=learn)
    job = bench.submit()

    def cancel() -> None:
        try:
            answers.append(queue.cancel(job.id).status)
        except AlreadyEnded as error:
            answers.append(str(error))

    name = "is_cancelled" if cancelled == "before" else "finish"
    step = getattr(bench.store, name)
    tries = iter([True])

    def late(*arguments: Any) -> Any:
        if next(tries, False):
            cancelling.start()
            raise StoreUnavailable("the database can't be used: locked")
        cancelling.join(10)
        return step(*arguments)

    cancelling = threading.Thread(target=cancel)
    monkeypatch.setattr(bench.store, name, late)
    queue.start()
    ended = bench.ended(job)
    if cancelled == "before":
        assert (ended.status, answers, taught) == ("cancelled", ["running"], [])
    else:
        assert ended.status == "passed"
        assert answers == [f"job {job.id} has ended: that is being recorded"]
        assert set(taught) == {job.id}
    with pytest.raises(AlreadyEnded, match=f"has ended: {ended.status}$"):
        queue.cancel(job.id)
    assert bench.ended(bench.submit()).status == "passed"


def test_a_cancelled_job_that_waits_never_runs(bench: Bench) -> None:
    first, job = bench.submit(sleeps_ms=300), bench.submit()
    bench.queue.start()
    assert bench.queue.cancel(job.id).status == "cancelled"
    assert bench.ended(first).status == "passed"
    bench.ended(bench.submit())
    assert begun(job) == []


def test_a_stopping_queue_lets_the_running_job_end_and_keeps_the_rest(bench: Bench) -> None:
    running, waiting = bench.submit(sleeps_ms=500), bench.submit()
    bench.queue.start()
    until(lambda: bool(begun(running)))
    bench.queue.stop(20)
    assert bench.store.get(running.id).status == "passed"
    assert bench.store.get(waiting.id).status == "queued"
    bench.make().start()
    assert bench.ended(waiting).status == "passed"


def test_a_job_that_outlasts_the_stop_is_queued_again_and_ended_by_the_next(bench: Bench) -> None:
    job = bench.submit(sleeps_ms=2000)
    bench.queue.start()
    until(lambda: bool(begun(job)))
    begun_s = time.monotonic()
    bench.queue.stop(0.2)
    assert time.monotonic() - begun_s < 5
    left = bench.store.get(job.id)
    assert (left.status, left.losses) == ("queued", 0)
    assert gone(begun(job)[0])
    bench.make().start()
    assert bench.ended(job).status == "passed"
    assert outcomes(bench, job) == ["interrupted", "passed"]


def test_jobs_wait_while_there_is_no_gpu(bench: Bench) -> None:
    found: list[str] = []
    queue = bench.make(find_gpus=[lambda: found[0] if found else None])
    job = bench.submit()
    queue.start()
    time.sleep(0.3)
    assert bench.store.get(job.id).status == "queued"
    found.append("GPU-late")
    queue.wake()
    assert bench.ended(job).gpu == "GPU-late"


def test_nothing_is_begun_while_another_service_holds_the_database(bench: Bench) -> None:
    held = threading.Event()
    queue = bench.make(held=held.is_set)
    job = bench.submit()
    queue.start()
    time.sleep(0.3)
    assert bench.store.get(job.id).status == "queued"
    held.set()
    assert bench.ended(job).status == "passed"


def test_a_result_that_cannot_be_stored_ends_the_job_with_a_reason(bench: Bench) -> None:
    queue = bench.make()
    queue._shared.runners = {
        "verification": lambda *_: Outcome("passed", None, {"x": float("nan")})
    }
    job = bench.submit()
    queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("failed", "internal_error")


def test_a_defect_in_recording_a_job_gives_it_up_and_the_next_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, after = bench.submit(), bench.submit()
    finish = bench.store.finish

    def defective(run: Job, *rest: Any) -> Job | None:
        if run.id == job.id:
            raise ZeroDivisionError("planted")
        return finish(run, *rest)

    monkeypatch.setattr(bench.store, "finish", defective)
    bench.queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("failed", "worker_lost")
    assert bench.ended(after).status == "passed"


def test_a_clock_that_jumps_changes_neither_deadlines_nor_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps = iter(range(10**6))

    def jumping() -> float:
        return 1e9 + (-1) ** (step := next(jumps)) * step * 1e6

    monkeypatch.setattr(time, "time", jumping)
    queue = bench.make(deadline_s=1.0)
    hung, *jobs = bench.submit(HANGS), bench.submit(sleeps_ms=100), bench.submit(sleeps_ms=100)
    queue.start()
    assert bench.ended(hung).reason == "timeout"
    assert [bench.ended(job).status for job in jobs] == ["passed"] * 2
    ran = [job_id for word, job_id, _, _ in planted_work.read() if word == "begin"]
    assert ran == [hung.id, *(job.id for job in jobs)]
