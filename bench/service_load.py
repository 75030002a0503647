"""Load on the service, as one JSON object alone on standard output (``make bench-service``).

    python -m bench.service_load [--seconds 180] [--out bench/results/service/load.json]

Starts the service with its default settings, and beside it a bare FastAPI route that returns the
same bytes (``bench.bare_route``): one server process each, the same event loop and parser. wrk
then asks, on loopback:

1. the kept answer and the bare route in turn, a slice of time each, so that what else the
   machine does falls on both: ``cached_ratio`` is requests a second over requests a second,
   ``cached_p99_ratio`` the slices' median p99 over the bare route's;
2. one client of questions of which no two are alike: ``uncached_single_p50_ms``;
3. 64 clients of the same for ``--seconds``: ``uncached_errors`` (any status but 200, any broken
   connection), ``uncached_p99_ms``, and ``memory_growth``: the most that service and solver
   processes hold together after the first minute (of a short run, the first third) over the most
   that they held within it, less one. The most, since a solver process that works on a question
   holds 50 MB more than one that has just ended: what is held at any one moment says little.

Needs wrk: exit code 3 where it is missing. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.settings import load_settings
from bench.files import write
from bench.service_process import descendants
from kernels.sources import commit

ROOT = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_name("load.lua")
PATH = "/v1/optimize"
QUERY = f"{PATH}?m=4096&n=4096&k=4096"
SERVICE = ("app.cli.main", "serve", "--port", "0", "--json")
CACHED_CLIENTS = 16
UNCACHED_CLIENTS = 64
PAIRS = 6
SINGLE_SECONDS = 5
"""At least so long, for a median of more than a few questions."""

READY_WITHIN_S = 300.0
PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "z3-solver")
SINGLE_FROM, MANY_FROM = 0, 100_000
"""First numbers of the questions of a run: far enough apart that no question comes twice."""


def say(words: str) -> None:
    """Progress."""
    print(words, file=sys.stderr, flush=True)


def wrk(url: str, seconds: float, clients: int, first: int | None = None) -> dict[str, float]:
    """One run of wrk's: ``requests``, ``seconds``, ``p50_ms``, ``p99_ms``, ``errors``."""
    command = ["wrk", "--threads", "1", "--connections", str(clients), "--timeout", "120s"]
    command += ["--duration", f"{max(1, round(seconds))}s", "--script", str(SCRIPT), url]
    command += [] if first is None else ["--", str(first)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


@contextmanager
def process(folder: str, *words: str, **environ: str) -> Iterator[tuple[int, str]]:
    """A Python process of this checkout that prints ``{"port": N}``: its id and its URL.

    Gone when this ends. What it prints goes to files, as it would where it runs: nobody reads a
    pipe here, and a log of requests fills one.
    """
    said, log = Path(folder, f"{words[0]}.out"), Path(folder, f"{words[0]}.log")
    with said.open("w") as out, log.open("w") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=out,
            stderr=err,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environ},
        )
    try:
        url = f"http://127.0.0.1:{_port(started, said, log)}"
        yield started.pid, url
        if started.poll() is not None:
            raise SystemExit(f"error: {words[0]} ended: {log.read_text()[-2000:]}")
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _port(started: subprocess.Popen[bytes], said: Path, log: Path) -> int:
    """The port that a process prints once it listens."""
    while True:
        text = said.read_text()
        if "}" in text:
            return int(json.loads(text[: text.index("}") + 1])["port"])
        if started.poll() is not None:
            raise SystemExit(f"error: {said.stem} did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def _wait_for(url: str) -> None:
    """Return once an address answers 200."""
    end = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            get(url)
            return
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"error: {url} after {READY_WITHIN_S:g} s: {error}") from None
            time.sleep(0.1)


def get(url: str) -> bytes:
    """The body at an address that must answer 200."""
    with urllib.request.urlopen(url, timeout=120) as response:
        body: bytes = response.read()
        return body


def cached(url: str, bare_url: str, seconds: float) -> dict[str, float]:
    """The kept answer against the bare route, in turn."""
    ours: list[dict[str, float]] = []
    bares: list[dict[str, float]] = []
    for pair in range(PAIRS):
        say(f"kept answers, bare route: {pair + 1} of {PAIRS}")
        bares.append(wrk(bare_url + QUERY, seconds / (2 * PAIRS), CACHED_CLIENTS))
        ours.append(wrk(url + QUERY, seconds / (2 * PAIRS), CACHED_CLIENTS))
    if sum(run["errors"] for run in ours + bares):
        raise SystemExit("error: a kept answer or the bare route was not answered with 200")
    rate, bare_rate = (
        sum(run["requests"] for run in runs) / sum(run["seconds"] for run in runs)
        for runs in (ours, bares)
    )
    p99_ms, bare_p99_ms = (
        statistics.median(run["p99_ms"] for run in runs) for runs in (ours, bares)
    )
    return {
        "cached_ratio": rate / bare_rate,
        "cached_p99_ratio": p99_ms / bare_p99_ms,
        "cached_per_s": rate,
        "bare_per_s": bare_rate,
        "cached_p99_ms": p99_ms,
        "bare_p99_ms": bare_p99_ms,
    }


class Memory:
    """What a process and its children hold, sampled while something else runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.samples: list[tuple[float, int]] = []
        self._ended = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Sample while the body runs."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        begun = time.monotonic()
        while not self._ended.wait(0.5):
            self.samples.append((time.monotonic() - begun, resident_bytes(self._pid)))

    def growth(self, settled_s: float) -> float:
        """The most after ``settled_s`` over the most until then, less one."""
        before = max(held for at, held in self.samples if at < settled_s)
        return max(held for at, held in self.samples if at >= settled_s) / before - 1


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and all below it."""
    total = 0
    for each in (pid, *descendants(pid)):
        try:
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def uncached(url: str, pid: int, seconds: float) -> dict[str, float]:
    """Questions that nobody asked before: by one client, then by many."""
    say("one client of new questions")
    single = wrk(url + PATH, max(SINGLE_SECONDS, seconds / 12), 1, SINGLE_FROM)
    say(f"{UNCACHED_CLIENTS} clients of new questions, {seconds:g} s")
    memory = Memory(pid)
    with memory.watched():
        many = wrk(url + PATH, seconds, UNCACHED_CLIENTS, MANY_FROM)
    if not (single["requests"] and many["requests"]):
        raise SystemExit("error: no new question was answered in the time there was")
    return {
        "uncached_errors": single["errors"] + many["errors"],
        "memory_growth": memory.growth(min(60.0, seconds / 3)),
        "uncached_p99_ms": many["p99_ms"],
        "uncached_single_p50_ms": single["p50_ms"],
        "uncached_per_s": many["requests"] / many["seconds"],
        "uncached_requests": many["requests"],
        "memory_bytes": memory.samples[-1][1],
    }


def measure(seconds: float) -> dict[str, Any]:
    """All figures, and what they are of."""
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        process(folder, *SERVICE, WARPWRIGHT_DATABASE=f"sqlite:///{folder}/load.db") as (pid, url),
    ):
        _wait_for(f"{url}/readyz")
        # Ready with one; those that still start would take the load's processor time.
        while json.loads(get(f"{url}/readyz"))["solver_processes"] < load_settings().workers:
            time.sleep(0.1)
        body = get(url + QUERY)
        kept = Path(folder, "body.json")
        kept.write_bytes(body)
        with process(folder, "bench.bare_route", str(kept)) as (_, bare_url):
            _wait_for(bare_url + QUERY)
            if get(bare_url + QUERY) != body or get(url + QUERY) != body:
                raise SystemExit("error: the bare route and the service answer differently")
            for each in (url, bare_url):
                wrk(each + QUERY, 1, CACHED_CLIENTS)
            figures = cached(url, bare_url, seconds / 3)
        figures |= uncached(url, pid, seconds)
    return {
        **figures,
        "seconds": seconds,
        "wall_seconds": round(time.monotonic() - begun, 1),
        "clients": {"cached": CACHED_CLIENTS, "uncached": UNCACHED_CLIENTS},
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "wrk": wrk_version(),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def wrk_version() -> str:
    """What wrk says of itself."""
    run = subprocess.run(["wrk", "--version"], stdout=subprocess.PIPE, text=True, check=False)
    return run.stdout.split("Copyright")[0].strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Start, load, print."""
    parser = argparse.ArgumentParser(prog="make bench-service")
    parser.add_argument("--seconds", type=float, default=180.0, help="of uncached load (180)")
    parser.add_argument("--out", type=Path, help="write the object here too")
    options = parser.parse_args(arguments)
    if options.seconds < 3:
        parser.error("--seconds must be at least 3")
    if shutil.which("wrk") is None:
        say("error: wrk is needed and is not there (Debian and Ubuntu: apt install wrk)")
        return 3
    result = measure(options.seconds)
    if options.out is not None:
        write(options.out, result)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
