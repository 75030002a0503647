"""One launch at a time on a GPU, whoever on this machine asks: a locked file for each.

The process that launches holds the lock, not the one that asked it to: where a service is killed,
its successor waits until the launch that the first left behind has gone too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Any

from kernels.cache import default_folder
from kernels.errors import CacheUnwritable
from kernels.process import Outcome, OutcomeKind, Worker

WAIT_S = 300.0
"""Longest wait for launches of others."""
RELEASE_S = 10.0

_held: int | None = None  # of this process, which runs one call at a time


def take(uuid: str) -> None:
    """In a GPU process: wait until no other process launches on this GPU, and keep it so until
    ``release`` or this process's end. Raises CacheUnwritable where the file can't be made.
    """
    global _held
    if _held is not None:
        return
    path = default_folder() / "gpus" / f"{uuid}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CacheUnwritable(f"the GPU's lock {path} can't be opened: {error}") from error
    fcntl.flock(file, fcntl.LOCK_EX)
    _held = file


def release() -> None:
    """In a GPU process: let others launch."""
    global _held
    if _held is not None:
        os.close(_held)
        _held = None


def take_in(worker: Worker, uuid: str) -> Outcome:
    """``take`` in a worker's process; an ERROR of type GpuTaken where it lasts longer than
    WAIT_S."""
    taken = worker.call(take, (uuid,), WAIT_S)
    if taken.kind is OutcomeKind.TIMEOUT:
        message = f"other processes have launched on {uuid} for {WAIT_S:g} s"
        return Outcome(OutcomeKind.ERROR, taken.elapsed_s, None, "GpuTaken", message)
    return taken


def call_alone(
    worker: Worker,
    uuid: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    deadline_s: float,
    on_report: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    """``worker.call`` while nobody else launches on the GPU; the wait for that is not part of
    the deadline. An ERROR of type GpuTaken where it takes longer than WAIT_S.
    """
    taken = take_in(worker, uuid)
    if taken.kind is not OutcomeKind.OK:
        return taken
    outcome = worker.call(function, arguments, deadline_s, on_report)
    if worker.running:
        worker.call(release, (), RELEASE_S)
    return outcome
