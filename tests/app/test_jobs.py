"""The queue of verifications."""

from __future__ import annotations

import threading
import time

import pytest

from app.errors import NotFound
from app.jobs import Job, JobQueue, Outcome
from solver.config import Config
from solver.problem import Problem

PROBLEM = Problem(64, 64, 64)
CONFIG = Config("sm90_gemm", 64, 64, 64, 4)


def until_ended(jobs: JobQueue, job: Job) -> Job:
    for _ in range(500):
        job = jobs.get(job.id)
        if job.finished_at:
            return job
        time.sleep(0.01)
    raise AssertionError("the job did not end")


def test_jobs_run_one_at_a_time_in_order() -> None:
    seen: list[str] = []
    running = threading.Semaphore(1)

    def verify(job: Job) -> Outcome:
        assert running.acquire(blocking=False)
        time.sleep(0.02)
        seen.append(job.id)
        running.release()
        return Outcome("passed", None, {})

    jobs = JobQueue(verify, waiting=10, kept=10)
    submitted = [jobs.submit(PROBLEM, CONFIG, 1.0) for _ in range(4)]
    assert [until_ended(jobs, job).status for job in submitted] == ["passed"] * 4
    assert seen == [job.id for job in submitted]
    jobs.stop(5)


def test_stopping_cancels_what_waits_and_lets_the_running_one_end() -> None:
    gate = threading.Event()

    def verify(job: Job) -> Outcome:
        gate.wait(10)
        return Outcome("passed", None, {})

    jobs = JobQueue(verify, waiting=10, kept=10)
    first, second = (jobs.submit(PROBLEM, CONFIG, 1.0) for _ in range(2))
    while jobs.get(first.id).status == "queued":
        time.sleep(0.01)
    threading.Timer(0.1, gate.set).start()
    jobs.stop(5)
    assert jobs.get(first.id).status == "passed"
    assert jobs.get(second.id).status == "cancelled"


def test_the_oldest_finished_jobs_are_forgotten() -> None:
    jobs = JobQueue(lambda job: Outcome("passed", None, {}), waiting=10, kept=2)
    submitted = []
    for _ in range(5):
        submitted.append(jobs.submit(PROBLEM, CONFIG, 1.0))
        until_ended(jobs, submitted[-1])
    with pytest.raises(NotFound, match="the last 2 are kept"):
        jobs.get(submitted[0].id)
    assert jobs.get(submitted[-1].id).status == "passed"
    jobs.stop(5)
