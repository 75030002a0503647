"""The whole service, a process of its own: killed, stopped, and left by its clients."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.store.database import Database
from app.store.tables import jobs, launches
from bench.service_process import descendants, until
from tests.app.faults import planted_service, planted_work
from tests.app.faults.planted_work import HANGS
from tests.app.faults.running import Running, Stream, body

KILLS_SHORT, KILLS_LONG = 3, 50
JOBS_PER_KILL = 4


@pytest.fixture
def running(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service that isn't started yet."""
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    return Running(tmp_path, database_url, event_streams=2, stop_deadline_s=20)


def streams(service: Running) -> str:
    """The line of /metrics that counts clients who follow events."""
    lines: list[str] = service.ask("GET", "/metrics")[1].splitlines()
    return next(line for line in lines if line.startswith("warpwright_event_streams"))


def test_clients_follow_a_job_leave_and_come_back(running: Running) -> None:
    with running as service:
        job_id = service.submit(body(3000))["id"]
        first, second = Stream(service, job_id), Stream(service, job_id)
        seen = first.events()
        number, name, data = next(seen)
        assert (number, name, data["status"]) == (1, "status", "queued")
        refused = Stream(service, job_id)
        assert refused.response.status == 503
        assert "at most 2" in refused.response.read().decode()
        refused.leave()
        for stream in (first, second):
            stream.leave()
        seen.close()
        left_s = until(lambda: streams(service).endswith(" 0.0"))
        print(f"recovery: {left_s:.2f} s from two clients' leaving to their places' being free")
        rest = list(Stream(service, job_id, after=1).events())
        assert [number for number, _, _ in rest] == list(range(2, 2 + len(rest)))
        assert [data["stage"] for _, name, data in rest if name == "progress"] == [
            "compiling",
            "timing",
        ]
        assert rest[-1][2]["status"] == "passed"
        assert list(Stream(service, job_id, after=rest[-1][0]).events()) == []
        until(lambda: streams(service).endswith(" 0.0"))
        unknown = Stream(service, "0" * 32)
        assert unknown.response.status == 404
        unknown.leave()
        headers = {"Last-Event-ID": "last"}
        status, problem = service.ask("GET", f"/v1/verifications/{job_id}/events", headers=headers)
        assert (status, problem["errors"][0]["field"]) == (422, "Last-Event-ID")


def test_a_stop_lets_the_running_job_end_and_the_next_service_does_the_rest(
    running: Running,
) -> None:
    with running as service:
        first, second = (service.submit(body(1500))["id"] for _ in range(2))
        until(lambda: service.job(first)["status"] == "running")
        stream = Stream(service, second)
        begun_s = time.monotonic()
        service.stop()
        assert time.monotonic() - begun_s < 15
        assert [data["status"] for _, _, data in stream.events()] == ["queued"]
        service.start()
        assert service.job(first)["status"] == "passed"
        again = Stream(service, second, after=1)
        assert [data.get("status") for _, _, data in again.events()][-1] == "passed"
        assert service.job(second)["attempts"] == service.job(first)["attempts"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_lets_the_running_job_end(
    running: Running, number: signal.Signals
) -> None:
    with running as service:
        job_id = service.submit(body(2000))["id"]
        until(lambda: len(planted_work.read()) == 1)
        assert service.process is not None
        family = descendants(service.process.pid)
        assert len(family) >= 3  # a solver process, the GPU's worker, multiprocessing's tracker
        service.signal_group(number)
        until(lambda: "Shutting down" in service.log)
        service.signal_group(signal.SIGTERM)  # an impatient one changes nothing
        assert set(family) <= set(descendants(service.process.pid))
        service.wait()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family))
        service.start()
        assert service.job(job_id)["status"] == "passed"
        assert service.job(job_id)["attempts"] == 1


def stream_batch(service: Running, stack: ExitStack) -> http.client.HTTPResponse:
    """A batch that takes minutes, of which the first line has come."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    stack.callback(connection.close)
    problems = [{"m": m, "n": 4096, "k": 4096} for m in range(3000, 4000)]
    content = json.dumps({"problems": problems})
    connection.request("POST", "/v1/optimize/batch", content, {"Content-Type": "application/json"})
    response = stack.enter_context(connection.getresponse())
    assert b"answer" in response.readline()
    return response


def send_half_a_body(service: Running) -> socket.socket:
    """A request whose body does not come to its end."""
    client = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    client.sendall(
        b"POST /v1/optimize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        b"Content-Type: application/json\r\n\r\n{"
    )
    return client


def ask_what_takes_long(service: Running) -> socket.socket:
    """A request whose answer has not begun."""
    client = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    body = b'{"m": 4095, "n": 4095, "k": 4095}'
    client.sendall(
        b"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return client


@pytest.mark.parametrize(
    "signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]], ids=["late", "at once"]
)
def test_requests_that_are_cut_at_a_stop_are_one_plain_line(
    running: Running, monkeypatch: pytest.MonkeyPatch, signals: list[signal.Signals]
) -> None:
    """Cut after their time, or at once at a second Ctrl-C, which also ends the running job."""
    again = len(signals) > 1
    running.set(planted_service.CONNECTIONS, "60" if again else "0.5")
    with running as service, ExitStack() as stack:
        job_id = service.submit(body(0, m=HANGS) if again else body(1500))["id"]
        until(lambda: len(planted_work.read()) == 1)
        batch = stream_batch(service, stack)
        clients = [send_half_a_body(service), ask_what_takes_long(service)]
        for client in clients:
            stack.callback(client.close)
        follower = Stream(service, job_id)
        assert service.process is not None
        begun_s = time.monotonic()
        for number in signals:
            service.process.send_signal(number)
            until(lambda: "Shutting down" in service.log)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            batch.read()
        for client in clients:
            with suppress(ConnectionError):
                assert client.recv(1000) == b""
        list(follower.events())
        assert service.wait() == (130 if again else 0)
        assert time.monotonic() - begun_s < 20
        lines = [json.loads(line) for line in service.log.splitlines()]
        stop = [line["message"] for line in lines].index("Shutting down")
        unusual = [line for line in lines[stop:] if line["level"] != "INFO"]
        cut = unusual.pop(0)
        assert cut["message"] == "open requests are cut: the service stops"
        assert cut["open"] == 3
        assert unusual == []
        assert lines[-1]["message"] == f"stopped by {signals[0].name}"
        service.start()
        if not again:
            assert service.job(job_id)["status"] == "passed"
        else:
            job = service.job(job_id)  # once: it may begin meanwhile
            assert (job["status"], job["attempts"]) in (("running", 2), ("queued", 1))


def test_a_service_killed_three_times_loses_and_doubles_nothing(running: Running) -> None:
    kill_often(running, KILLS_SHORT, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_service_killed_fifty_times_loses_and_doubles_nothing(running: Running) -> None:
    kill_often(running, KILLS_LONG, seed=2)


def kill_often(service: Running, kills: int, seed: int) -> None:
    """``kill -9`` at random moments, with jobs running, waiting and being handed in."""
    rng = random.Random(seed)
    asked: dict[str, dict[str, Any]] = {}
    accepted: dict[str, str] = {}
    recovery_s: list[float] = []
    service.start()
    for kill in range(kills):
        for number in range(JOBS_PER_KILL):
            priority = rng.choice(["low", "normal", "high"])
            asked[f"{kill}-{number}"] = body(rng.randrange(20, 400), priority=priority)
        end = time.monotonic() + rng.uniform(0.1, 2.0)
        service.hand_in(asked, accepted, end)
        while time.monotonic() < end:
            time.sleep(0.01)
        killed_s = time.monotonic()
        service.kill()
        service.start()
        recovery_s.append(time.monotonic() - killed_s)
    service.hand_in(asked, accepted, time.monotonic() + 60)
    assert accepted.keys() == asked.keys()
    for job_id in accepted.values():
        assert service.ended(job_id, 120)["status"] == "passed"
    listed = [job["id"] for job in service.jobs(page=7)]
    service.kill()
    check_records(service, accepted, listed)
    recovery_s.sort()
    median_s = recovery_s[len(recovery_s) // 2]
    print(
        f"recovery: {kills} kills, {len(accepted)} jobs, ready again after a median of "
        f"{median_s:.2f} s, at most {recovery_s[-1]:.2f} s"
    )


def check_records(service: Running, accepted: dict[str, str], listed: list[str]) -> None:
    """Each accepted job is there once and passed once; its launches never overlapped another's."""
    assert sorted(listed) == sorted(set(accepted.values()))
    assert len(listed) == len(accepted)
    database = Database(service.database)
    database.open()
    with database.read() as connection:
        kept = {row.id: row for row in connection.execute(select(jobs))}
        audit = list(connection.execute(select(launches).order_by(launches.c.attempt)))
    database.close()
    passed = Counter(row.job_id for row in audit if row.outcome == "passed")
    assert passed == Counter(listed)
    for job_id in listed:
        mine = [row for row in audit if row.job_id == job_id]
        assert [row.attempt for row in mine] == list(range(1, kept[job_id].attempts + 1))
        assert [row.outcome for row in mine] == ["lost"] * (len(mine) - 1) + ["passed"]
    ended = {job_id for word, job_id, _, _ in planted_work.read() if word == "end"}
    assert ended == set(listed)
    open_pid = None
    for word, _, pid, _ in planted_work.read():
        if word == "begin":
            open_pid = pid
        else:
            assert pid == open_pid, "a launch began before another's end"
