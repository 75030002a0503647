"""Functions that the process tests run in a child."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from kernels.process import launching, report

log = logging.getLogger(__name__)


def add(a: int, b: int) -> int:
    return a + b


def process_id() -> int:
    return os.getpid()


def variable(name: str) -> str | None:
    return os.environ.get(name)


def complain(words: str, times: int) -> None:
    """Logs from several threads, and what breaks with its traceback."""

    def some() -> None:
        for _ in range(times):
            log.warning("%s", words)

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(times):
        report("complaining", number=number)
    for thread in threads:
        thread.join()
    try:
        raise ZeroDivisionError("a defect")
    except ZeroDivisionError:
        log.exception("it broke")


def complain_badly() -> str:
    """Logs what can't be formatted, as a library may."""
    log.warning("%d of them", "many")
    log.warning("the next one")
    return "answer"


class LogsWhenPickled:
    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        log.warning("being pickled")
        return str, ("answer",)


def logs_when_pickled() -> Any:
    return LogsWhenPickled()


def hang() -> None:
    while True:
        time.sleep(60)


def hang_deaf_to_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def leave(code: int) -> None:
    os._exit(code)


def exit_politely() -> None:
    sys.exit(5)


def segfault() -> None:
    ctypes.string_at(0)


def fail() -> None:
    raise ValueError("planted")


def huge(size: int) -> bytes:
    return b"x" * size


def unpicklable() -> Any:
    return lambda: None


def chatter() -> str:
    print("noise on standard output")
    os.write(1, b"more noise\n")
    return "answer"


def span(seconds: float) -> tuple[float, float]:
    begun = time.monotonic()
    time.sleep(seconds)
    return begun, time.monotonic()


def tell_and_add(a: int, b: int) -> int:
    for stage in ("first", "second"):
        report(stage, done=a)
    return a + b


def launches(*kernels: str) -> str:
    for kernel in kernels:
        launching(kernel)
    report("timing")
    return "done"
