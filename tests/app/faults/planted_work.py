"""What runs in the worker process in place of a launch; imports little, to start quickly."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from kernels.process import launching, report

JOURNAL = "PLANTED_JOURNAL"
"""Variable that names the file to write to."""

KERNEL = "planted-kernel"
"""The id of what stands in for a kernel."""

HANGS, CRASHES = 1024, 2048
FIRST_N = 64
"""Values of m that mean something; any other sleeps for n - FIRST_N milliseconds."""


def work(job_id: str, m: int, n: int) -> None:
    """In the worker process: what a launch would be."""
    write("begin", job_id)
    report("compiling")
    launching(KERNEL)
    if m == HANGS:
        time.sleep(3600)
    if m == CRASHES:
        ctypes.string_at(0)
    report("timing", rounds=1, half_width=None)
    time.sleep((n - FIRST_N) / 1e3)
    write("end", job_id)


def unreachable() -> None:
    """In the worker process: what reaching a GPU is whose memory has failed."""
    raise RuntimeError("CUDA_ERROR_ECC_UNCORRECTABLE")


def write(word: str, job_id: str) -> None:
    """A line of the journal, whole or not at all, in the order of time."""
    line = f"{word} {job_id} {os.getpid()} {time.monotonic():.6f}\n"
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def read() -> list[tuple[str, str, int, float]]:
    """The journal: (begin or end, job, process, seconds)."""
    path = Path(os.environ[JOURNAL])
    lines = path.read_text().splitlines() if path.exists() else []
    return [(w, job, int(pid), float(at)) for w, job, pid, at in (line.split() for line in lines)]
