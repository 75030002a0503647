"""The check by a service: a real one, whose GPU process a test stands in for, and strangers."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.keys import Scope
from app.store.keys import KeyStore
from tests.app.conftest import application
from tests.app.live import services_of, serving
from tests.app.picks.tools import (
    H200,
    PICKS,
    FakeGpu,
    check,
    lock_of,
    locked,
    report,
    steps_of,
)


@pytest.fixture
def server(fake_gpu: FakeGpu) -> Iterator[str]:
    """The address of a service next to the fake GPU."""
    with application(H200) as app, serving(app) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_service_locks_and_checks_as_a_gpu_here_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, server: str, fake_gpu: FakeGpu
) -> None:
    path = locked(tmp_path, PICKS, "--server", server)
    document = json.loads(lock_of(path).read_text("utf-8"))
    assert document["picks"][0]["measured"]["time_us"] == 10.0
    code, body = report(capsys, path, "--server", server)
    assert (code, body["where"]) == (0, f"NVIDIA H200 at {server}")
    steps = steps_of(body, "fp16")
    assert {step["status"] for step in steps.values()} == {"holds"}
    assert tuple(steps)[-3:] == ("numerics", "time", "regret")
    fake_gpu.wrong = "exact round: 3 elements wrong"
    code, said = check(capsys, path, "--server", server)
    assert code == 1
    assert "numerics: wrong_result: exact round: 3 elements wrong" in said
    fake_gpu.wrong, fake_gpu.slower = None, 1.2
    code, said = check(capsys, path, "--server", server)
    assert code == 1
    assert "time: slower: 12.00 µs against the lock's 10.00" in said


def test_a_service_without_a_gpu_or_of_another_device_exits_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = locked(tmp_path)
    with application(None) as app, serving(app) as port:
        code, said = check(capsys, path, "--server", f"http://127.0.0.1:{port}/")
        assert code == 3
        assert f"the service at http://127.0.0.1:{port} has no GPU" in " ".join(said.split())
        other = PICKS.replace('"h200"', '"h20"')
        (tmp_path / "other").mkdir()
        path = locked(tmp_path / "other", other)
    with application(H200) as app, serving(app) as port:
        code, said = check(capsys, path, "--server", f"http://127.0.0.1:{port}")
        assert code == 3
        assert "the picks are for h20; the GPU of http://127.0.0.1" in " ".join(said.split())


def test_a_key_comes_from_the_environment(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    fake_gpu: FakeGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = locked(tmp_path)
    with application(H200, require_keys="always") as app, serving(app) as port:
        url = f"http://127.0.0.1:{port}"
        code, said = check(capsys, path, "--server", url)
        assert code == 3
        assert f"{url} wants an API key: WARPWRIGHT_API_KEY" in " ".join(said.split())
        monkeypatch.setenv("WARPWRIGHT_API_KEY", "ww_0123456789ab_wrong")
        code, said = check(capsys, path, "--server", url)
        assert code == 3
        assert "does not take the key in WARPWRIGHT_API_KEY" in " ".join(said.split())
        store = KeyStore(services_of(app).database)
        _, key = store.create("CI", frozenset({Scope.OPTIMIZE, Scope.VERIFY}))
        monkeypatch.setenv("WARPWRIGHT_API_KEY", key)
        assert main(["lock", str(path), "--jobs", "1", "--server", url]) == 0
        code, said = check(capsys, path, "--server", url)
        assert code == 0
        assert key not in said


def test_no_service_exits_3_and_names_the_address(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = locked(tmp_path)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as gone:
        port = gone.server_port
    url = f"http://127.0.0.1:{port}"
    for command in ("check", "lock"):
        capsys.readouterr()
        assert main([command, str(path), "--jobs", "1", "--server", url]) == 3
        said = " ".join(capsys.readouterr().err.split())
        assert f"no service answers at {url}: Connection refused" in said


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://host",
        "http://",
        "",
        "http://me:secret@host",
        "ftp://me:secret@host",
        "http://me:secret@[::1",
        "http://h?a=b",
        "http://h#a",
        "http://[::1",
        "http://h:port",
        "http://h:0",
        "http://h:65536",
        "http://h h",
        "http://h\0",
        "http://\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_an_address_that_is_none_exits_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, url: str
) -> None:
    path = locked(tmp_path)
    code, said = check(capsys, path, "--server", url)
    assert code == 2
    assert "--server: must " in said
    assert "secret" not in said


Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def stranger(answers: dict[tuple[str, str], list[Answer]]) -> Iterator[tuple[str, list[Any]]]:
    """A server of some other kind: for each method and path its answers, the last one for good;
    and what it was asked."""
    asked: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, dict(self.headers), body))
            listed = answers.get((self.command, self.path), [(404, {}, b"nothing here")])
            status, headers, content = listed.pop(0) if len(listed) > 1 else listed[0]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}", asked
        finally:
            made.shutdown()
            thread.join()


DEVICES: Answer = (200, {}, b'{"host": {"name": "NVIDIA H200", "profile": "h200"}}')
SUBMIT = ("POST", "/v1/verifications")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, b"<html>"), "is no Warpwright service"),
        ((200, {}, b"[1]"), "is no Warpwright service"),
        ((200, {}, b'{"host": "x"}'), "is no Warpwright service"),
        ((200, {}, b"[" * 100_000), "is no Warpwright service"),
        ((404, {}, b"nothing"), "answers 404: Not Found"),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), "answers 302"),
        ((503, {}, b'{"detail": "the service is stopping"}'), "answers 503: the service is stop"),
        ((200, {}, b'{"host": {"name": "GTX", "profile": null}}'), "GTX, is of no known profile"),
    ],
)
def test_what_is_no_such_service_exits_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, answer: Answer, words: str
) -> None:
    path = locked(tmp_path)
    with stranger({("GET", "/v1/devices"): [answer]}) as (url, _):
        code, said = check(capsys, path, "--server", url)
    assert code == 3
    assert words in " ".join(said.split())


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"status": "passed", "result": {}}, "gives a result that this version can't use: device"),
        ({"status": "passed"}, "gives a result that this version can't use"),
        (
            {"status": "cancelled", "reason": "requested", "result": None},
            "requested: the job ended",
        ),
        (
            {"status": "cancelled", "reason": "requested", "result": {"passed": None}},
            "requested: somebody cancelled its job",
        ),
        (
            {"status": "failed", "reason": "fault", "result": {"kernel_id": "k"}},
            "another version's",
        ),
    ],
)
def test_a_job_of_another_version_or_cancelled_exits_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: dict[str, Any], words: str
) -> None:
    path = locked(tmp_path)
    answered: Answer = (202, {}, json.dumps({"id": "j", **job}).encode())
    with stranger({("GET", "/v1/devices"): [DEVICES], SUBMIT: [answered]}) as (url, _):
        code, body = report(capsys, path, "--server", url)
    assert code == 3
    assert words in steps_of(body, "small")["numerics"]["words"]


@pytest.mark.parametrize("key", ["ww_a\nb", "ww_a\rX-More: 1", "ww_\N{BULLET}", "ww_\x7f"])
def test_a_key_that_no_header_can_hold_is_told_and_sent_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("WARPWRIGHT_API_KEY", key)
    path = locked(tmp_path)
    with stranger({("GET", "/v1/devices"): [DEVICES]}) as (url, asked):
        code, said = check(capsys, path, "--server", url)
    assert code == 2
    assert "WARPWRIGHT_API_KEY: must be one line of printable ASCII" in " ".join(said.split())
    assert "ww_" not in said
    assert not asked


def test_a_full_queue_is_waited_for_and_the_request_has_one_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_API_KEY", "ww_key")
    path = locked(tmp_path)
    failed = b'{"id": "j", "status": "failed", "reason": "timeout", "result": {"details": "hung"}}'
    answers = {
        ("GET", "/v1/devices"): [DEVICES],
        SUBMIT: [
            (429, {"Retry-After": "0"}, b'{"detail": "full"}'),
            (202, {}, b'{"id": "j", "status": "queued"}'),
        ],
        ("GET", "/v1/verifications/j"): [(200, {}, failed)],
    }
    with stranger(answers) as (url, asked):
        code, body = report(capsys, path, "--server", url)
    assert code == 1
    assert steps_of(body, "small")["numerics"]["words"] == "timeout: hung"
    first, second = [each for each in asked if each[0] == "POST"][:2]
    assert first[2]["Idempotency-Key"] == second[2]["Idempotency-Key"]
    assert all(each[2]["Authorization"] == "Bearer ww_key" for each in asked)
    sent = json.loads(first[3])
    assert sent["cache"] == "cold"
    assert len(sent["against"]) == 3
