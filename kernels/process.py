"""Functions run in a process of their own, with a deadline.

A hang, a fault or a crash there ends that process and comes back as an outcome; nothing of
it reaches the caller's process, which never touches CUDA.

Such a process is deaf to SIGINT and SIGTERM, which a terminal, or a service manager that stops a
service, sends to every process of the group: the caller decides when it ends. Where the caller has
gone, killed perhaps, it leaves by itself. What it logs is logged by the caller, whose log has one
form.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any

REAP_S = 30.0  # a process killed with a kernel running leaves once its context is torn down
ORPHAN_POLL_S = 1.0

PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that are the caller's to act on, whoever else gets them."""

LAUNCH = "launch"
LOG = "log"

_SPAWN = multiprocessing.get_context("spawn")

_processes: weakref.WeakSet[Any] = weakref.WeakSet()
"""Those started here; multiprocessing keeps each until it is reaped."""


@atexit.register  # before multiprocessing's own, which sends SIGTERM and then waits for ever
def _kill_all() -> None:
    for process in list(_processes):
        with suppress(ValueError):  # reaped and closed
            process.kill()


class OutcomeKind(StrEnum):
    """How a call in another process ended."""

    OK = "ok"
    ERROR = "error"  # the function raised
    TIMEOUT = "timeout"  # killed at its deadline
    DIED = "died"  # the process left without an answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call.

    ``value`` is the function's result (OK only); ``error_type``, ``message`` and
    ``traceback`` describe what it raised (ERROR) or how the process ended; ``exit_code`` is
    negative for a signal (DIED and TIMEOUT).
    """

    kind: OutcomeKind
    elapsed_s: float
    value: Any = None
    error_type: str | None = None
    message: str = ""
    traceback: str = ""
    exit_code: int | None = None


def _leave_with_parent(parent: int) -> None:
    """End this process when its parent has gone, whatever the main thread waits for."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_POLL_S)
    os._exit(1)


_tell: Callable[[dict[str, Any]], None] | None = None
_tell_launch: Callable[[str], None] | None = None


def report(stage: str, **facts: Any) -> None:
    """Tell whoever called this process how far the call is: ``facts`` are values of JSON's.

    Does nothing where no call is under way or its caller does not listen.
    """
    if _tell is not None:
        _tell({"stage": stage, **facts})


def launching(kernel_id: str) -> None:
    """Tell whoever called this process that the call is about to launch this kernel."""
    if _tell_launch is not None:
        _tell_launch(kernel_id)


class _CallersLog(logging.Handler):
    """Has the caller log what is logged here, from its next call on."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line, its traceback included. As with any handler, one that can't be written
        does not end what wanted to log it."""
        try:
            self._send((LOG, (record.name, record.levelno, self.format(record))))
        except OSError:  # the caller has gone
            pass
        except Exception:
            self.handleError(record)


def _serve(connection: Connection, parent: int, variables: Mapping[str, str]) -> None:
    """The child's main loop: calls in, reports, logs and results out, until the pipe closes."""
    global _tell, _tell_launch
    sending = threading.Lock()

    def send(message: tuple[str, Any]) -> None:
        content = ForkingPickler.dumps(message)  # outside: what is pickled may log, and come here
        with sending:  # any thread may log
            connection.send_bytes(content)

    logging.getLogger().addHandler(_CallersLog(send))
    _tell_launch = lambda kernel_id: send((LAUNCH, kernel_id))  # noqa: E731
    os.environ.update(variables)  # before anything that reads them is imported
    sys.stdout.flush()
    os.dup2(2, 1)  # standard output belongs to the parent's answer
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, args=(parent,), daemon=True).start()
    while True:
        try:
            function, arguments, listens = connection.recv()
        except (EOFError, OSError):
            return
        _tell = (lambda facts: send(("report", facts))) if listens else None
        try:
            answer = ("ok", function(*arguments))
        except Exception as error:
            answer = ("error", (type(error).__name__, str(error), traceback.format_exc()))
        try:
            send(answer)
        except Exception as error:  # a result that can't be pickled
            text = f"the result can't be sent back: {error}"
            send(("error", (type(error).__name__, text, traceback.format_exc())))


def _nothing() -> None:
    """In the child: the answer says that it is up."""


class Worker:
    """A spawned process that runs one call at a time; replaced after anything but OK.

    Not for use from several threads at once, ``kill``, ``halt`` and ``resume`` excepted. A
    context manager; ``close`` ends the process. ``variables`` are added to the environment of
    processes started from then on. ``on_launch`` hears of each kernel that a call is about to
    launch, as often as the call has it ready.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self.variables = dict(variables or {})
        self.on_launch: Callable[[str], None] | None = None
        self._process: Any = None
        self._connection: Connection | None = None
        self._halted = threading.Event()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether a process is up and will take the next call warm."""
        return self._process is not None and self._process.is_alive()

    def _connect(self) -> Connection:
        if self._connection is not None and self.running:
            return self._connection
        self.close()
        ours, theirs = _SPAWN.Pipe()
        # One that is still importing must not be ended by them either. The child inherits the
        # mask, once the tracker that multiprocessing starts on the way, and whose start ends with
        # both unblocked, is up.
        resource_tracker.ensure_running()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
        try:
            arguments = (theirs, os.getpid(), self.variables)
            process = _SPAWN.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            _processes.add(process)
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()  # the child's end is then the only one, and its death reads as EOF
        self._process, self._connection = process, ours
        return ours

    def start(self, deadline_s: float) -> Outcome:
        """Have a process up that takes the next call warm; all but OK say why there is none."""
        return self.call(_nothing, (), deadline_s)

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        deadline_s: float,
        on_report: Callable[[dict[str, Any]], None] | None = None,
    ) -> Outcome:
        """Run ``function(*arguments)`` in the process; start-up counts towards the deadline.

        The function is sent by its import path; ``on_report`` gets what it tells ``report``,
        in this thread. Never raises for what happens over there, nor where this machine has no
        file, thread or process left to give: that is DIED too.
        """
        started = time.monotonic()
        expired = threading.Event()
        try:
            connection = self._connect()
            process = self._process

            def expire() -> None:
                expired.set()
                process.kill()

            timer = threading.Timer(deadline_s, expire)
            timer.daemon = True
            timer.start()
        except (OSError, RuntimeError) as error:
            self.close()
            message = f"the process could not be started: {error}"
            return Outcome(OutcomeKind.DIED, time.monotonic() - started, message=message)
        try:
            if self._halted.is_set():  # looked at once the process is there to be killed
                process.kill()
            connection.send((function, arguments, on_report is not None))
            while True:
                wait([connection, process.sentinel])
                status, payload = connection.recv()
                if status == LAUNCH:
                    if self.on_launch is not None:
                        self.on_launch(payload)
                    continue
                if status == LOG:
                    name, level, text = payload
                    logging.getLogger(name).log(level, "%s", text)
                    continue
                if status != "report":
                    break
                if on_report is not None:
                    on_report(payload)
        except (EOFError, ConnectionError):
            timer.cancel()
            return self._lost(expired.is_set(), deadline_s, started)
        except (OSError, RuntimeError) as error:
            timer.cancel()
            if expired.is_set():
                return self._lost(True, deadline_s, started)
            self.close()  # alive perhaps, but out of reach
            message = f"the process could not be talked to: {error}"
            return Outcome(OutcomeKind.DIED, time.monotonic() - started, message=message)
        except BaseException:
            timer.cancel()
            self.close()
            raise
        timer.cancel()
        elapsed_s = time.monotonic() - started
        if status == "ok":
            if expired.is_set():  # answered, then killed: the next call starts afresh
                self.close()
            return Outcome(OutcomeKind.OK, elapsed_s, value=payload)
        self.close()
        error_type, message, trace = payload
        return Outcome(OutcomeKind.ERROR, elapsed_s, None, error_type, message, trace)

    def _lost(self, expired: bool, deadline_s: float, started: float) -> Outcome:
        process = self._process
        process.join(REAP_S)
        exit_code = process.exitcode
        self.close()
        elapsed_s = time.monotonic() - started
        if expired:
            message = f"killed at its deadline of {deadline_s:g} s"
            if exit_code is None:
                message += f"; the process had not left after {REAP_S:g} s more"
            return Outcome(OutcomeKind.TIMEOUT, elapsed_s, message=message, exit_code=exit_code)
        return Outcome(OutcomeKind.DIED, elapsed_s, message=_ending(exit_code), exit_code=exit_code)

    def kill(self) -> None:
        """Kill the process, if any, from any thread; a call under way comes back as DIED.

        Goes through the process object, which knows whether the process was reaped: its id
        may be a stranger's by then.
        """
        process = self._process
        if process is not None:
            with suppress(ValueError):  # closed in the meantime by the thread that calls
                process.kill()

    def halt(self) -> None:
        """Kill the process, and let every call come back as DIED until ``resume``."""
        self._halted.set()
        self.kill()

    @property
    def halted(self) -> bool:
        """Whether calls come back as DIED until ``resume``."""
        return self._halted.is_set()

    def resume(self) -> None:
        """Take calls again after ``halt``."""
        self._halted.clear()

    def close(self) -> None:
        """Kill and reap the process, if any."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.join(REAP_S)
            if process.exitcode is not None:
                process.close()


def _ending(exit_code: int | None) -> str:
    """How a process that left without an answer ended, in words."""
    if exit_code is None:
        return "the process closed its pipe and did not leave"
    if exit_code >= 0:
        return f"the process left with exit code {exit_code} and no answer"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"the process was ended by {name}"


def run_in_process(
    function: Callable[..., Any], arguments: tuple[Any, ...], deadline_s: float
) -> Outcome:
    """One call in a fresh process that is gone when this returns."""
    with Worker() as worker:
        return worker.call(function, arguments, deadline_s)
