"""A worker for each of several GPUs: jobs run beside one another, and what happens to one worker,
or GPU, is no other's matter."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from app.errors import StoreUnavailable
from app.gpu_queue import GpuQueue
from app.schemas.service import Ready
from app.store.database import Database
from app.store.job import Job
from app.store.tables import jobs, launches
from bench.service_process import until
from tests.app.conftest import host_has, service
from tests.app.faults import planted_service, planted_work
from tests.app.faults.conftest import Bench
from tests.app.faults.planted import GPUS, run_planted
from tests.app.faults.planted_work import HANGS, unreachable
from tests.app.faults.running import Running, body

COUNT = 3
KILLS_SHORT, KILLS_LONG = 2, 25


@pytest.fixture
def there() -> dict[int, bool]:
    """Which GPU the driver reports."""
    return dict.fromkeys(range(COUNT), True)


@pytest.fixture
def queue(bench: Bench, there: dict[int, bool]) -> GpuQueue:
    """A queue for three GPUs, not started."""

    def finder(place: int) -> object:
        return lambda: GPUS[place].uuid if there[place] else None

    return bench.make(find_gpus=[finder(place) for place in range(COUNT)], pin=True)


def pids(*words: str) -> dict[str, int]:
    """The process of each job's last line of these words."""
    return {job_id: pid for word, job_id, pid, _ in planted_work.read() if word in words}


def running(bench: Bench, *given: Job) -> bool:
    return all(bench.store.get(job.id).status == "running" for job in given)


def test_jobs_run_beside_one_another_each_on_a_gpu_of_its_own(
    bench: Bench, queue: GpuQueue
) -> None:
    jobs = [bench.submit(sleeps_ms=800) for _ in range(COUNT)]
    queue.start()
    until(lambda: len(pids("begin")) == COUNT)
    assert len(set(pids("begin").values())) == COUNT
    assert pids("end") == {}
    ended = [bench.ended(job) for job in jobs]
    assert [job.status for job in ended] == ["passed"] * COUNT
    assert {job.gpu for job in ended} == {gpu.uuid for gpu in GPUS[:COUNT]}
    seen = Counter(word for word, *_ in planted_work.read())
    assert seen == {"begin": COUNT, "end": COUNT}


def test_each_process_sees_its_own_gpu_alone(bench: Bench, queue: GpuQueue) -> None:
    given = [bench.submit(sleeps_ms=800) for _ in range(COUNT)]
    queue.start()
    until(lambda: len(pids("begin")) == COUNT)
    for job in given:
        environment = queue.lanes[place_of(bench, job)]._worker.variables
        assert environment == {"CUDA_VISIBLE_DEVICES": bench.store.get(job.id).gpu}


def place_of(bench: Bench, job: Job) -> int:
    uuid = bench.store.get(job.id).gpu
    return next(place for place, gpu in enumerate(GPUS) if gpu.uuid == uuid)


def test_a_worker_that_is_killed_leaves_the_others_runs_alone(
    bench: Bench, queue: GpuQueue
) -> None:
    first, second = bench.submit(sleeps_ms=1500), bench.submit(sleeps_ms=1500)
    queue.start()
    until(lambda: len(pids("begin")) == 2)
    other = pids("begin")[second.id]
    os.kill(pids("begin")[first.id], signal.SIGKILL)
    assert bench.ended(first).attempts == 2
    ended = bench.ended(second)
    assert (ended.status, ended.attempts, pids("end")[second.id]) == ("passed", 1, other)


def test_cancelling_one_job_ends_its_process_alone(bench: Bench, queue: GpuQueue) -> None:
    first, second = bench.submit(HANGS), bench.submit(sleeps_ms=1000)
    queue.start()
    until(lambda: len(pids("begin")) == 2)
    queue.cancel(first.id)
    assert bench.ended(first).status == "cancelled"
    assert (bench.ended(second).status, bench.store.get(second.id).attempts) == ("passed", 1)


def test_a_gpu_that_is_lost_begins_no_job_and_the_others_do(
    bench: Bench, queue: GpuQueue, there: dict[int, bool]
) -> None:
    there[0] = there[2] = False
    given = [bench.submit() for _ in range(4)]
    queue.start()
    assert {bench.ended(job).gpu for job in given} == {GPUS[1].uuid}
    there[0] = True
    there[1] = False
    later = [bench.submit() for _ in range(3)]
    assert {bench.ended(job).gpu for job in later} == {GPUS[0].uuid}


def test_the_process_of_a_gpu_that_is_lost_is_ended_and_a_fresh_one_is_begun_when_it_is_back(
    bench: Bench, there: dict[int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.gpu_lane.POLL_S", 0.05)
    queue = bench.make(find_gpus=[lambda: GPUS[0].uuid if there[0] else None])
    before = bench.submit()
    queue.start()
    bench.ended(before)
    until(lambda: queue.lanes[0]._worker.running)
    there[0] = False
    until(lambda: not queue.lanes[0]._worker.running)
    there[0] = True
    after = bench.submit()
    assert bench.ended(after).status == "passed"
    assert pids("end")[before.id] != pids("end")[after.id]


def test_a_gpu_that_its_process_can_not_reach_costs_no_job_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the driver reports it, and CUDA can't have it."""
    monkeypatch.setattr("app.restarts.FIRST_S", 0.1)
    queue = bench.make(warm=unreachable)
    job = bench.submit()
    queue.start()
    until(lambda: queue.failures >= 2)
    kept = bench.store.get(job.id)
    assert (kept.status, kept.attempts, queue.state) == ("queued", 0, "restarting")
    queue._shared.warm = dict
    ended = bench.ended(job)
    assert (ended.status, ended.attempts, ended.losses) == ("passed", 1, 0)


def test_what_another_worker_runs_is_not_taken_for_left_behind(
    bench: Bench, queue: GpuQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After trouble with the database one worker looks for runs that nobody runs."""
    job = bench.submit(sleeps_ms=1500)
    queue.start()
    until(lambda: len(pids("begin")) == 1)
    waiting, tries = bench.store.waiting, iter([True])

    def away_once() -> int:
        if next(tries, False):
            raise StoreUnavailable("the database can't be used: locked")
        return waiting()

    monkeypatch.setattr(bench.store, "waiting", away_once)
    after = bench.submit()
    assert bench.ended(after).status == "passed"
    ended = bench.ended(job)
    assert (ended.status, ended.attempts, ended.losses) == ("passed", 1, 0)


def test_a_stop_lets_every_running_job_end(bench: Bench, queue: GpuQueue) -> None:
    given = [bench.submit(sleeps_ms=700) for _ in range(COUNT)]
    waiting = bench.submit()
    queue.start()
    until(lambda: len(pids("begin")) == COUNT)
    queue.stop(20)
    assert [bench.store.get(job.id).status for job in given] == ["passed"] * COUNT
    assert bench.store.get(waiting.id).status == "queued"
    assert queue.state == "stopped"


def test_a_stop_ends_what_does_not_and_all_of_it_is_queued_again(
    bench: Bench, queue: GpuQueue
) -> None:
    given = [bench.submit(HANGS) for _ in range(COUNT)]
    queue.start()
    until(lambda: len(pids("begin")) == COUNT)
    begun_s = time.monotonic()
    queue.stop(0.3)
    assert time.monotonic() - begun_s < 10
    kept = [bench.store.get(job.id) for job in given]
    assert [(job.status, job.losses) for job in kept] == [("queued", 0)] * COUNT


def test_readiness_and_metrics_tell_each_gpu(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("app.gpus.LOOK_S", 0.0)
    database.close()
    url = database.url.render_as_string(hide_password=False)
    with (
        service(GPUS[:2], run_planted, initialise=dict, database=url) as client,
        pytest.MonkeyPatch.context() as patch,  # undone before the service's own
    ):

        def ready() -> Ready:
            response = client.get("/readyz")
            assert response.status_code == 200
            return Ready.model_validate_json(response.content)

        assert [(gpu.uuid, gpu.worker) for gpu in ready().gpus] == [
            ("GPU-planted-0", "idle"),
            ("GPU-planted-1", "idle"),
        ]
        text = client.get("/metrics").text
        assert 'warpwright_gpu_seconds_total{gpu="1"} 0.0' in text
        hung = [client.post("/v1/verifications", json=body(0, m=HANGS)) for _ in range(2)]
        until(lambda: {gpu.worker for gpu in ready().gpus} == {"running"})
        for answer in hung:
            client.delete(answer.headers["location"])
        until(lambda: {gpu.worker for gpu in ready().gpus} == {"idle"})
        unused = 'warpwright_gpu_seconds_total{gpu="0"} 0.0\n'
        until(lambda: unused not in client.get("/metrics").text)
        host_has(patch, GPUS[1])
        now = ready()
        assert (now.gpu, now.gpu_worker) == ("NVIDIA H200", "idle")
        assert [(gpu.name, gpu.worker) for gpu in now.gpus] == [
            (None, "lost"),
            ("NVIDIA H200", "idle"),
        ]
        text = client.get("/metrics").text
        assert 'warpwright_gpu_present{gpu="0"} 0.0' in text
        assert 'warpwright_gpu_present{gpu="1"} 1.0' in text
        location = client.post("/v1/verifications", json=body(0)).headers["location"]
        until(lambda: client.get(location).json()["status"] == "passed")
        host_has(patch)
        gone = ready()
        assert (gone.gpu, gone.gpu_worker) == ("absent", "lost")
        refused = client.post("/v1/verifications", json=body(0))
        assert refused.json()["type"] == "urn:warpwright:problem:gpu-absent"
        host_has(patch, *GPUS[:2])
        assert [gpu.worker for gpu in ready().gpus] == ["idle", "idle"]


@pytest.fixture
def service_of_three(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service that isn't started yet."""
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv(planted_service.COUNT, str(COUNT))
    return Running(tmp_path, database_url)


def test_a_service_with_several_gpus_killed_twice_loses_nothing(service_of_three: Running) -> None:
    kill_often(service_of_three, KILLS_SHORT, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_service_with_several_gpus_killed_often_loses_nothing(
    service_of_three: Running,
) -> None:
    kill_often(service_of_three, KILLS_LONG, seed=2)


def kill_often(service: Running, kills: int, seed: int) -> None:
    """``kill -9`` with jobs on each GPU: each ends once, and launches of one GPU never overlap."""
    rng = random.Random(seed)
    asked, accepted = {}, dict[str, str]()
    service.start()
    for kill in range(kills):
        for number in range(2 * COUNT):
            asked[f"{kill}-{number}"] = body(rng.randrange(20, 500))
        end_s = time.monotonic() + rng.uniform(0.2, 1.5)
        service.hand_in(asked, accepted, end_s)
        time.sleep(max(0.0, end_s - time.monotonic()))
        service.kill()
        service.start()
    service.hand_in(asked, accepted, time.monotonic() + 60)
    assert accepted.keys() == asked.keys()
    for job_id in accepted.values():
        assert service.ended(job_id, 120)["status"] == "passed"
    service.kill()
    with closing(Database(service.database)) as database:
        database.open()
        with database.read() as connection:
            gpus = dict(connection.execute(select(jobs.c.id, jobs.c.gpu)).all())
            passed = select(launches.c.job_id).where(launches.c.outcome == "passed")
            assert Counter(connection.execute(passed).scalars()) == Counter(accepted.values())
    assert len(set(gpus.values())) > 1
    open_pids: dict[int, str] = {}
    for word, job_id, pid, _ in planted_work.read():
        if word == "begin":
            assert open_pids.get(pid) is None, "one process ran two launches at once"
            open_pids[pid] = job_id
        else:
            assert open_pids.pop(pid) == job_id
