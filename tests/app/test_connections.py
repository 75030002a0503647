"""Callers that send or read too slowly, or not at all, lose their connection, and only they."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat

import pytest
from fastapi import FastAPI

from app.event_streams import EventStreams
from app.http_protocol import HEAD_BYTES_MAX, SEND_BUFFER_BYTES, bound_kernel
from app.metrics import Drop
from app.store.job import JobEvent
from tests.app.conftest import application
from tests.app.live import connection, metrics_of, serving
from tests.app.test_verifications import gpu, passing

HEAD_S, BODY_S, WRITE_S = 0.6, 0.8, 1.0
CONNECTIONS = 12
SLACK_S = 2.0
"""How late a deadline may be noticed here, on a machine that is busy with more than this."""

GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
WIDE = {f"member_{i}" * 4: i for i in range(32)}
"""So many unknown members that a problem's line has some 5 kB."""


@dataclass
class Live:
    """A service over HTTP, with short deadlines."""

    app: FastAPI
    port: int

    def dropped(self, reason: Drop) -> float:
        """How many connections were ended for a reason."""
        value: float = metrics_of(self.app)._dropped.labels(reason)._value.get()
        return value

    def open(self, receive_bytes: int | None = None) -> socket.socket:
        """A connection, closed by whoever asks for it."""
        made = socket.socket()
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.settimeout(30)
        made.connect(("127.0.0.1", self.port))
        return made


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with (
        application(
            gpu(),
            passing,
            initialise=dict,
            head_deadline_s=HEAD_S,
            body_deadline_s=BODY_S,
            write_deadline_s=WRITE_S,
            connections=CONNECTIONS,
        ) as app,
        serving(app) as port,
    ):
        yield Live(app, port)


@pytest.fixture(scope="module")
def job(live: Live) -> str:
    """The address of a verification."""
    with connection(live.port) as asked:
        question = '{"m": 64, "n": 64, "k": 64}'
        asked.request("POST", "/v1/verifications", question, {"content-type": "application/json"})
        location = asked.getresponse().headers["location"]
    assert location is not None
    return str(location)


def all_of(asked: socket.socket) -> bytes:
    """What is still sent, to the connection's end."""
    received = b""
    try:
        while part := asked.recv(65536):
            received += part
    except ConnectionResetError:  # it was ended while bytes of ours were under way
        pass
    return received


def dripped(asked: socket.socket, parts: Iterator[bytes]) -> Callable[[], None]:
    """Send a part every 50 ms until the connection is gone; what this gives waits for that."""

    def drip() -> None:
        for part in parts:
            try:
                asked.sendall(part)
            except OSError:
                return
            time.sleep(0.05)

    thread = threading.Thread(target=drip)
    thread.start()
    return thread.join


def bytes_of(text: bytes) -> Iterator[bytes]:
    yield from (bytes([byte]) for byte in text)


def for_ever(part: bytes) -> Iterator[bytes]:
    return repeat(part, 400)  # 20 s, where nothing ends it before


def answer(asked: socket.socket) -> bytes:
    """One small answer, whole."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += asked.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if b"content-length" in line
    )
    while len(body) < length:
        body += asked.recv(65536)
    return head + b"\r\n\r\n" + body


SLOW_HEADS: dict[str, Callable[[], Iterator[bytes]]] = {
    "half a request line": lambda: iter([b"GET /hea"]),
    "half the headers": lambda: iter([GET + b"x-long: "]),
    "all but the empty line": lambda: iter([GET]),
    "a byte at a time": lambda: bytes_of(GET + b"x-long: " + b"y" * 1000),
    "headers without an end": lambda: chain([GET[:24]], for_ever(b"a: b\r\n")),
}


@pytest.mark.parametrize("before", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("kind", SLOW_HEADS)
def test_headers_that_do_not_arrive_are_given_up(live: Live, kind: str, before: bool) -> None:
    dropped = live.dropped(Drop.SLOW_HEAD)
    with closing(live.open()) as asked:
        if before:  # on a connection that carried a request already
            asked.sendall(GET + b"\r\n")
            assert b"200 OK" in answer(asked)
        begun = time.monotonic()
        join = dripped(asked, SLOW_HEADS[kind]())
        told = all_of(asked)
        took = time.monotonic() - begun
        asked.close()
        join()
    assert told.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"connection: close" in told
    assert told.endswith(b"The request's headers must arrive within 0.6 s.")
    assert HEAD_S - 0.1 <= took < HEAD_S + SLACK_S
    assert live.dropped(Drop.SLOW_HEAD) == dropped + 1


@pytest.mark.parametrize("sent", [b"", b"\r\n"], ids=["nothing", "empty lines"])
def test_a_connection_that_asks_nothing_is_closed(live: Live, sent: bytes) -> None:
    begun = time.monotonic()
    with closing(live.open()) as asked:
        join = dripped(asked, for_ever(sent) if sent else iter(()))
        assert all_of(asked) == b""
        took = time.monotonic() - begun
        asked.close()
        join()
    assert HEAD_S - 0.1 <= took < HEAD_S + SLACK_S


def test_empty_lines_do_not_keep_an_idle_connection(live: Live) -> None:
    with closing(live.open()) as asked:
        asked.sendall(GET + b"\r\n")
        assert b"200 OK" in answer(asked)
        begun = time.monotonic()
        join = dripped(asked, for_ever(b"\r\n"))
        assert all_of(asked) == b""
        assert time.monotonic() - begun < HEAD_S + SLACK_S
        asked.close()
        join()


BODIES = {
    "a route that takes it": (b"POST /v1/optimize", 408),
    "no route": (b"POST /v1/none", 404),
    "a route of another method": (b"PUT /v1/devices", 405),
    "a route that takes none": (b"GET /healthz", 200),
    "a route that takes none, to be deleted": (b"DELETE /v1/verifications/none", 404),
}


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "dripping"])
@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_does_not_arrive_is_given_up(live: Live, kind: str, drips: bool) -> None:
    line, status = BODIES[kind]
    head = line + b" HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    begun = time.monotonic()
    with closing(live.open()) as asked:
        asked.sendall(head + b"content-length: 10000\r\n\r\n{")
        join = dripped(asked, for_ever(b" ") if drips else iter(()))
        told = all_of(asked)
        took = time.monotonic() - begun
        asked.close()
        join()
    assert told.startswith(b"HTTP/1.1 %d " % status)
    assert told.count(b"HTTP/1.1") == 1
    # Closed by the deadline at the latest; where the answer says so, with the answer.
    assert took < BODY_S + SLACK_S


def test_headers_without_measure_are_refused(live: Live) -> None:
    with closing(live.open()) as asked:
        join = dripped(asked, iter([GET, *([b"x: " + b"y" * 30_000 + b"\r\n"] * 4)]))
        told = all_of(asked)
        asked.close()
        join()
    assert told.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


@pytest.mark.parametrize("before", [b"", GET + b"\r\n"], ids=["first", "behind another"])
def test_headers_over_the_limit_are_refused_though_they_come_at_once(
    live: Live, before: bytes
) -> None:
    refused = live.dropped(Drop.LARGE_HEAD)
    with closing(live.open()) as asked:
        asked.sendall(before + GET + b"x: " + b"y" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n")
        told = all_of(asked)
    assert before or told.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert told.count(b"HTTP/1.1 200") <= (1 if before else 0)
    assert live.dropped(Drop.LARGE_HEAD) == refused + 1


def test_headers_within_the_limit_are_answered_whatever_body_comes_with_them(live: Live) -> None:
    body = b'{"m": 0, "n": 1, "k": 1' + b" " * 60_000 + b"}"
    head = b"POST /v1/optimize HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += b"connection: close\r\ncontent-length: %d\r\nx: " % len(body)
    with closing(live.open()) as asked:
        asked.sendall(head + b"y" * 60_000 + b"\r\n\r\n" + body)
        assert all_of(asked).startswith(b"HTTP/1.1 422 ")


def batch(problems: int) -> bytes:
    """A batch of which every line is a problem document of 5 kB, and nothing is solved."""
    body = json.dumps({"defaults": WIDE, "problems": [{}] * problems}).encode()
    head = (
        b"POST /v1/optimize/batch HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    )
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def ended_within(live: Live, seconds: float, gone: Callable[[], bool]) -> float:
    """How long it takes until a connection is gone."""
    begun = time.monotonic()
    while not gone():
        assert time.monotonic() - begun < seconds
        time.sleep(0.01)
    return time.monotonic() - begun


def test_a_batch_that_is_not_read_is_given_up(live: Live) -> None:
    dropped = live.dropped(Drop.UNREAD)
    with closing(live.open(4096)) as asked:
        asked.sendall(batch(800))
        took = ended_within(live, 30, lambda: live.dropped(Drop.UNREAD) > dropped)
        assert not all_of(asked).endswith(b"0\r\n\r\n")
    assert WRITE_S - 0.1 <= took < WRITE_S + 5  # there are megabytes to be made first


def test_events_that_are_not_read_are_given_up_and_their_place_is_free(
    live: Live, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(self: EventStreams, job_id: str, after: int) -> AsyncIterator[JobEvent]:
        for number in range(1, 10**6):
            yield JobEvent(number, "progress", {"stage": "x" * 1000})

    monkeypatch.setattr(EventStreams, "follow", follow)
    streams = live.app.state.services.streams
    with closing(live.open(4096)) as asked:
        asked.sendall(f"GET {job}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        ended_within(live, 30, lambda: streams.open == 1)
        took = ended_within(live, 30, lambda: streams.open == 0)
    assert took < WRITE_S + 5


@pytest.mark.parametrize("close", [False, True], ids=["kept", "to be closed"])
@pytest.mark.parametrize("path", ["/openapi.json", "/v1/devices"])
def test_an_answer_that_is_not_read_is_given_up(
    live: Live, monkeypatch: pytest.MonkeyPatch, path: str, close: bool
) -> None:
    monkeypatch.setattr("app.http_protocol.SEND_BUFFER_BYTES", 2048)
    dropped = live.dropped(Drop.UNREAD)
    with closing(live.open(2048)) as asked:
        line = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n".encode()
        asked.sendall(line + (b"connection: close\r\n\r\n" if close else b"\r\n"))
        # One that is kept is first idle for as long as uvicorn leaves it.
        ended_within(live, 30, lambda: live.dropped(Drop.UNREAD) > dropped)


def test_a_slow_reader_gets_all_of_it(live: Live) -> None:
    dropped = live.dropped(Drop.UNREAD)
    received = 0
    with closing(live.open(65536)) as asked:
        asked.sendall(batch(250))
        begun = time.monotonic()
        tail = b""
        while not tail.endswith(b"0\r\n\r\n"):
            part = asked.recv(50_000)
            assert part
            tail = (tail + part)[-5:]
            received += len(part)
            time.sleep(0.1)
    assert received > 1_000_000
    assert time.monotonic() - begun > 2 * WRITE_S
    assert live.dropped(Drop.UNREAD) == dropped


def test_half_a_request_behind_another_leaves_that_ones_answer_whole(
    live: Live, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(self: EventStreams, job_id: str, after: int) -> AsyncIterator[JobEvent]:
        yield JobEvent(1, "progress", {"stage": "first"})
        await asyncio.sleep(2 * HEAD_S)
        yield JobEvent(2, "progress", {"stage": "last"})

    monkeypatch.setattr(EventStreams, "follow", follow)
    with closing(live.open()) as asked:
        asked.sendall(f"GET {job}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() + GET)
        told = all_of(asked)
    whole, end, behind = told.partition(b"\r\n0\r\n\r\n")
    assert b"first" in whole
    assert b"last" in whole
    assert end
    assert behind.startswith(b"HTTP/1.1 408 ")


@pytest.mark.alone
def test_one_connection_too_many_is_told_so_and_the_others_go_on(live: Live) -> None:
    time.sleep(HEAD_S)  # what earlier tests left
    kept = [live.open() for _ in range(CONNECTIONS)]
    try:
        for asked in kept:
            asked.sendall(GET + b"\r\n")
            assert b"200 OK" in answer(asked)
        with closing(live.open()) as refused:
            told = all_of(refused)
        assert told.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"retry-after: 1\r\n" in told
        for asked in kept:
            asked.sendall(GET + b"\r\n")
            assert b"200 OK" in answer(asked)
        kept.pop().close()
        end = time.monotonic() + 5
        while True:
            with closing(live.open()) as again:
                again.sendall(GET + b"\r\n")
                if b"200 OK" in again.recv(65536):
                    break
            assert time.monotonic() < end
    finally:
        for asked in kept:
            asked.close()


def test_what_the_kernel_holds_for_a_caller_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()), server.accept()[0] as accepted:
            bound_kernel(accepted, 60.0)
            held = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            assert SEND_BUFFER_BYTES <= held <= 2 * SEND_BUFFER_BYTES
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                timeout_ms = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert timeout_ms == 120_000
        bound_kernel(accepted, 60.0)  # one that has gone
