"""Jobs in a database: what is accepted, what runs next, what is recorded."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

import app.store.job_rows
import app.store.jobs
from app.errors import AlreadyEnded, NotFound, QueueFull
from app.store.database import Database
from app.store.job import Job, Outcome
from app.store.jobs import JobStore, question_sha256
from app.store.launches import gpu_seconds
from app.store.tables import job_events, launches
from solver.errors import InvalidInput

PASSED = Outcome("passed", None, {"median_us": 5.0})
REQUEST = {"problem": {"m": 2**31 - 1}, "predicted_us": 5.25}


def submit(store: JobStore, **more: Any) -> Job:
    return store.submit("verification", REQUEST, **{"sha256": "0" * 64} | more)[0]


def begin(store: JobStore) -> Job:
    job = store.claim("GPU-0")
    assert job is not None
    return job


def rows(database: Database) -> list[Any]:
    with database.read() as connection:
        return list(connection.execute(select(launches).order_by(launches.c.number)).mappings())


def test_a_job_is_kept_as_it_was_handed_in(store: JobStore) -> None:
    job = submit(store, priority="high")
    shown = store.get(job.id).to_dict()
    assert shown["status"] == "queued"
    assert shown["priority"] == "high"
    assert shown["problem"] == {"m": 2**31 - 1}
    assert shown["predicted_us"] == 5.25
    assert shown["created_at"].endswith("+00:00")
    assert len(shown["created_at"]) == len("2026-01-01T00:00:00.000+00:00")
    assert shown["started_at"] is shown["finished_at"] is shown["result"] is None


def test_a_job_outlives_its_service(database: Database, database_url: str, store: JobStore) -> None:
    job = submit(store)
    database.close()
    again = Database(database_url)
    again.open()
    again.hold()
    assert JobStore(again, waiting=5, kept=3).get(job.id) == job
    again.close()


def test_the_highest_priority_runs_first_then_the_first_accepted(store: JobStore) -> None:
    order = ["low", "normal", "high", "normal", "high"]
    jobs = [submit(store, priority=priority) for priority in order]
    assert [begin(store).id for _ in jobs] == [jobs[i].id for i in (2, 4, 1, 3, 0)]
    assert store.claim("GPU-0") is None


def test_a_full_queue_refuses_and_says_when_to_come_back(store: JobStore) -> None:
    submit(store)
    store.finish(begin(store), PASSED, 12.3)
    for _ in range(5):
        submit(store)
    with pytest.raises(QueueFull, match="at most 5") as refused:
        submit(store)
    assert refused.value.retry_after_s == 13
    begin(store)
    submit(store)


def test_two_that_race_for_the_last_place_do_not_both_get_it(store: JobStore) -> None:
    for _ in range(4):
        submit(store)
    accepted: list[bool] = []

    def race() -> None:
        try:
            submit(store)
        except QueueFull:
            accepted.append(False)
        else:
            accepted.append(True)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == [False, False, False, True]


def test_a_finished_job_has_its_result_one_audit_row_and_a_last_event(
    database: Database, store: JobStore
) -> None:
    job = submit(store)
    run = begin(store)
    assert (run.status, run.attempts, run.gpu) == ("running", 1, "GPU-0")
    store.append(run, {"stage": "compiling"})
    outcome = Outcome("failed", "wrong_result", {"details": "3 elements wrong"})
    ended = store.finish(run, outcome, 2.5)
    assert ended == store.get(job.id)
    assert ended is not None
    assert (ended.status, ended.reason) == ("failed", "wrong_result")
    (row,) = rows(database)
    assert (row["job_id"], row["attempt"], row["outcome"]) == (job.id, 1, "failed")
    assert (row["gpu"], row["gpu_seconds"], row["detail"]) == ("GPU-0", 2.5, "3 elements wrong")
    events = store.events(job.id)
    assert [event.number for event in events] == [1, 2, 3, 4]
    assert [event.data.get("status") or event.data["stage"] for event in events] == [
        "queued",
        "running",
        "compiling",
        "failed",
    ]
    assert store.events(job.id, after=3) == events[3:]


def test_a_run_is_recorded_once(database: Database, store: JobStore) -> None:
    submit(store)
    run = begin(store)
    assert store.finish(run, PASSED, 1.0) is not None
    assert store.finish(run, PASSED, 1.0) is None
    assert store.give_back(run, lost=True, gpu_seconds=1.0) is None
    store.append(run, {"stage": "timing"})
    assert len(rows(database)) == 1
    assert store.events(run.id)[-1].data["status"] == "passed"


def test_the_end_of_an_earlier_run_is_not_that_of_the_present_one(store: JobStore) -> None:
    submit(store)
    first = begin(store)
    store.recover()
    second = begin(store)
    assert (second.id, second.attempts) == (first.id, 2)
    assert store.finish(first, PASSED, 1.0) is None
    assert store.get(first.id).status == "running"
    assert store.finish(second, PASSED, 1.0) is not None


def test_what_was_left_running_is_queued_again_before_what_came_later(
    database: Database, store: JobStore
) -> None:
    first, second = submit(store), submit(store)
    begin(store)
    (left,) = store.recover()
    assert (left.id, left.status, left.losses, left.started_at) == (first.id, "queued", 1, None)
    assert store.recover() == []
    assert begin(store).id == first.id
    assert begin(store).id == second.id
    (row,) = rows(database)
    assert (row["attempt"], row["outcome"]) == (1, "lost")


def test_a_job_that_is_lost_three_times_fails(database: Database, store: JobStore) -> None:
    job = submit(store)
    for _ in range(3):
        begin(store)
        store.recover()
    ended = store.get(job.id)
    assert (ended.status, ended.reason, ended.attempts) == ("failed", "worker_lost", 3)
    assert [row["outcome"] for row in rows(database)] == ["lost", "lost", "failed"]


def test_a_stop_of_the_service_is_no_loss(database: Database, store: JobStore) -> None:
    job = submit(store)
    for _ in range(4):
        store.give_back(begin(store), lost=False, gpu_seconds=0.5)
    assert store.get(job.id).status == "queued"
    assert {row["outcome"] for row in rows(database)} == {"interrupted"}


def test_a_queued_job_is_cancelled_at_once(database: Database, store: JobStore) -> None:
    job = submit(store)
    cancelled = store.cancel(job.id)
    assert (cancelled.status, cancelled.reason) == ("cancelled", "requested")
    assert store.claim("GPU-0") is None
    assert rows(database) == []
    with pytest.raises(AlreadyEnded, match="cancelled"):
        store.cancel(job.id)


@pytest.mark.parametrize("end", ["finish", "give_back", "recover"])
def test_a_running_job_that_was_to_be_cancelled_is_however_it_ends(
    database: Database, store: JobStore, end: str
) -> None:
    submit(store)
    run = begin(store)
    assert store.cancel(run.id).status == "running"
    if end == "finish":
        store.finish(run, PASSED, 1.0)
    elif end == "give_back":
        store.give_back(run, lost=True, gpu_seconds=1.0)
    else:
        store.recover()
    job = store.get(run.id)
    assert (job.status, job.reason, job.result) == ("cancelled", "requested", None)
    assert [row["outcome"] for row in rows(database)] == ["cancelled"]


def test_jobs_that_ended_first_are_forgotten_first(database: Database, store: JobStore) -> None:
    low = submit(store, priority="low")
    ended = []
    for _ in range(3):
        ended.append(submit(store).id)
        store.finish(begin(store), PASSED, 1.0)
    store.finish(begin(store), PASSED, 1.0)
    assert store.get(low.id).status == "passed"  # the first accepted, and the last to end
    with pytest.raises(NotFound, match="the last 3 are kept"):
        store.get(ended[0])
    assert store.get(ended[1]).status == "passed"
    with database.read() as connection:
        kept = set(connection.execute(select(job_events.c.job_id)).scalars())
    assert kept == {low.id, *ended[1:]}
    assert len(rows(database)) == 4


def test_pages_go_from_the_newest_to_the_oldest_without_gap_or_repeat(store: JobStore) -> None:
    jobs = [submit(store) for _ in range(5)]
    newest_first = [job.id for job in reversed(jobs)]
    seen: list[str] = []
    after = None
    while True:
        page, after = store.page(after=after, limit=2)
        seen += [job.id for job in page]
        if after is None:
            break
    assert seen == newest_first
    assert store.page(limit=5)[1] is None


def test_pages_are_of_a_status_a_kind_and_an_owner(store: JobStore) -> None:
    mine = submit(store, owner="key1")
    submit(store, owner="key2")
    begin(store)
    assert [job.id for job in store.page(owner="key1")[0]] == [mine.id]
    assert [job.id for job in store.page(status="running")[0]] == [mine.id]
    assert store.page(kind="sweep") == ([], None)
    assert len(store.page()[0]) == 2


def test_anothers_job_is_not_found(store: JobStore) -> None:
    job = submit(store, owner="key1")
    assert store.get(job.id, "key1") == store.get(job.id) == job
    for call in (store.get, store.cancel):
        with pytest.raises(NotFound):
            call(job.id, "key2")


@pytest.mark.parametrize("job_id", ["", "x", "\0", "0" * 31, "0" * 33, "F" * 32, "0" * 32])
def test_an_id_that_no_job_has_is_not_found(store: JobStore, job_id: str) -> None:
    with pytest.raises(NotFound):
        store.get(job_id)


def test_the_same_idempotency_key_gets_the_same_job(store: JobStore) -> None:
    job, fresh = store.submit("v", REQUEST, sha256="0" * 64, idempotency_key="mine")
    assert fresh
    assert store.submit("v", REQUEST, sha256="0" * 64, idempotency_key="mine") == (job, False)
    assert store.repeated("", "mine", "0" * 64) == job
    assert store.repeated("", None, "0" * 64) is None
    assert store.waiting() == 1


def test_an_idempotency_key_of_another_question_is_refused(store: JobStore) -> None:
    submit(store, idempotency_key="mine")
    with pytest.raises(InvalidInput) as refused:
        submit(store, idempotency_key="mine", sha256="1" * 64)
    assert refused.value.field == "Idempotency-Key"
    submit(store, idempotency_key="mine", sha256="1" * 64, owner="other")  # not the same caller's


def test_requests_of_one_idempotency_key_that_race_get_one_job(database: Database) -> None:
    stores = [JobStore(database, waiting=50, kept=3) for _ in range(4)]  # no lock in common
    got: list[tuple[Job, bool]] = []
    start = threading.Barrier(len(stores))

    def race(store: JobStore) -> None:
        start.wait()
        for number in range(5):
            key = f"key{number}"
            got.append(store.submit("v", REQUEST, sha256="0" * 64, idempotency_key=key))

    threads = [threading.Thread(target=race, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 20
    assert len({job.id for job, _ in got}) == sum(fresh for _, fresh in got) == 5
    assert stores[0].waiting() == 5


def test_gpu_seconds_are_a_keys_own_since_a_moment(store: JobStore, database: Database) -> None:
    for owner in ("key1", "key1", "key2"):
        submit(store, owner=owner)
        store.finish(begin(store), PASSED, 1.5)
    hour = timedelta(hours=1)
    assert gpu_seconds(database, "key1", datetime.now(UTC) - hour) == 3.0
    assert gpu_seconds(database, "key1", datetime.now(UTC) + hour) == 0.0
    assert gpu_seconds(database, "nobody", datetime.now(UTC) - hour) == 0.0


def test_clock_jumps_change_no_order(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(
        datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=days)
        for _ in range(20)
        for days in (0, -9000, 5000, -300)
    )
    for module in (app.store.jobs, app.store.job_rows):
        monkeypatch.setattr(module, "now", lambda: next(moments))
    jobs = [submit(store) for _ in range(4)]
    assert [job.id for job in store.page()[0]] == [job.id for job in reversed(jobs)]
    for job in jobs:
        run = begin(store)
        assert run.id == job.id
        store.finish(run, PASSED, 1.0)
    assert [event.number for event in store.events(jobs[3].id)] == [1, 2, 3]
    with pytest.raises(NotFound):  # the first to end, whatever the clock said then
        store.get(jobs[0].id)
    assert store.get(jobs[3].id).status == "passed"


def test_a_question_is_the_same_in_any_order_of_its_members() -> None:
    assert question_sha256("v", {"m": 1, "n": 2}) == question_sha256("v", {"n": 2, "m": 1})
    assert question_sha256("v", {"m": 1}) != question_sha256("v", {"m": 2})
    assert question_sha256("v", {"m": 1}) != question_sha256("w", {"m": 1})
