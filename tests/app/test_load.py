"""64 clients at once: short forms of what ``make bench-service`` measures."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import service_load
from tests.app.test_service import serving, wait_until_ready

CLIENTS = 64
EACH = 2


async def _ask(port: int, questions: list[dict[str, Any]]) -> list[int]:
    """The statuses that one client gets for its questions, over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    try:
        for question in questions:
            body = json.dumps(question).encode()
            writer.write(
                b"POST /v1/optimize HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            statuses.append(int(head.split()[1]))
            await reader.readexactly(int(head.split(b"content-length:")[1].split()[0]))
    finally:
        writer.close()
        await writer.wait_closed()
    return statuses


@pytest.mark.alone
def test_64_clients_of_new_questions_are_all_answered() -> None:
    async def load(port: int) -> list[int]:
        asked = [
            _ask(port, [{"m": 64, "n": 512, "k": 64 * (EACH * c + n + 1)} for n in range(EACH)])
            for c in range(CLIENTS)
        ]
        return [status for statuses in await asyncio.gather(*asked) for status in statuses]

    with serving("--workers", "2") as service:
        port = service.port()
        wait_until_ready(port)
        statuses = asyncio.run(load(port))
    assert statuses == [200] * CLIENTS * EACH


@pytest.mark.alone
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed (apt install wrk)")
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_the_benchmark_prints_one_json_object(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # wrk runs for whole seconds, and no figure is believed here.
    monkeypatch.setattr(service_load, "PAIRS", 2)
    monkeypatch.setattr(service_load, "SINGLE_SECONDS", 1)
    out = tmp_path / "load.json"
    assert service_load.main(["--seconds", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert json.loads(out.read_text()) == figures
    assert "clients of new questions" in printed.err
    assert figures["uncached_errors"] == 0
    assert figures["uncached_requests"] > 0
    for name in ("cached_ratio", "cached_p99_ratio", "uncached_p99_ms", "uncached_single_p50_ms"):
        assert figures[name] > 0
    assert -0.5 < figures["memory_growth"] < 0.5
    assert figures["seconds"] == 3
    assert set(figures["versions"]) == set(service_load.PACKAGES)


def test_a_missing_wrk_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert service_load.main(["--seconds", "3"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "apt install wrk" in printed.err


def test_memory_is_of_the_process_and_all_below_it() -> None:
    memory = service_load.Memory(os.getpid())
    memory.samples = [(0.25, 100), (0.5, 200), (1.0, 150), (1.5, 190), (2.0, 210)]
    assert memory.growth(1.0) == pytest.approx(0.05)
    assert service_load.resident_bytes(os.getpid()) > 10_000_000
