"""One GPU's own thread: takes one queued job after another and has it run in a worker process.

One at a time, because two kernels on a GPU would time each other. Whatever happens to the
process, to the service or to the database, a job's end is recorded once: what can't be recorded
now is tried again, and what a dead service left running is queued again by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.audit import Audit
from app.errors import StoreUnavailable
from app.logs import REQUEST_ID
from app.restarts import pause_s
from app.store.job import UNREADABLE, Job, Outcome
from app.store.jobs import JobStore
from app.store.result_rows import AWAY_S, RunRows
from app.turn import Runner, Turn
from kernels.host import VISIBLE_VARIABLE
from kernels.process import Outcome as Called
from kernels.process import OutcomeKind, Worker
from kernels.verify import Reason, failure_of

log = logging.getLogger(__name__)

POLL_S = 2.0
"""How often an idle thread looks at the queue by itself: for a GPU or a database that is back."""
RETRY_S = 0.5
"""Pause after the database could not be used."""
START_DEADLINE_S = 120.0
"""Longest time for a worker process to come up and reach its GPU."""
REPORT_S = 1.0
"""Shortest time between two events of one stage."""
UNTOLD = Outcome("failed", "internal_error", {})
"""What came of a job is a defect here; the log has it."""
INTERRUPTED = Outcome("failed", Reason.WORKER_LOST, {})
"""A run that could not go on for want of the database, and is no loss."""


def _learn_nothing(job: Job, outcome: Outcome) -> Outcome:
    return outcome


@dataclass(eq=False, slots=True)
class Shared:
    """What the threads of one queue have in common; ``app.gpu_queue.GpuQueue`` says what each part
    is for."""

    store: JobStore
    runners: Mapping[str, Runner]
    held: Callable[[], bool]
    warm: Callable[[], Any]
    deadline_s: float
    on_end: Callable[[Job], None]
    on_run: Callable[[int, float], None]
    learn: Callable[[Job, Outcome], Outcome] = _learn_nothing
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Around a claim, so that whoever cancels, or looks for what nobody runs, knows what runs."""
    ending: threading.Lock = field(default_factory=threading.Lock)
    """Around what a run's end consists of: whoever cancels comes before all of it or after."""
    stopping: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    unsure: bool = True
    """Whether the database may have running jobs that nobody runs."""
    running: dict[int, Job] = field(default_factory=dict)
    """The job that each place runs."""
    learnt: dict[int, str] = field(default_factory=dict)
    """The job whose run was learnt from last, at each place: it can't be cancelled any more."""

    def recover(self) -> None:
        """Queue again what a dead service left running."""
        with self.lock:
            if not self.unsure:
                return
            running = frozenset(job.id for job in self.running.values())
            left = self.store.recover(running)
            self.unsure = False
        for job in left:
            log.warning("job %s was left running and is %s", job.id, job.status)
            if job.ended is not None:
                self.on_end(job)


class GpuLane:
    """Runs the store's jobs on the GPU of one place, in a process that stays warm.

    ``find_gpu`` names the GPU by its UUID, None where there is none now: jobs then wait, or run on
    others. With ``pin`` the process sees that GPU alone.
    """

    def __init__(
        self, shared: Shared, place: int, find_gpu: Callable[[], str | None], *, pin: bool
    ) -> None:
        self._shared = shared
        self.place = place
        self._find_gpu = find_gpu
        self._pin = pin
        self._worker = Worker()
        self._defects = 0
        """Looks at the queue that failed one after another, for no fault of the database."""
        self._failures = 0
        """Starts and runs of the process that failed since the last run that came to its end."""
        self._down = False
        """Whether jobs wait for a process that could not be started or was lost."""
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"gpu-{place}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def state(self) -> str:
        """``idle``, ``running``, ``restarting`` while jobs wait for a process that could not be
        started or was lost, ``failing`` where a defect keeps jobs from being begun or, once none
        will be begun any more, ``stopped``.
        """
        if self._shared.stopping.is_set() or not self._thread.is_alive():
            return "stopped"
        if self._defects:
            return "failing"
        if self.place in self._shared.running:
            return "running"
        return "restarting" if self._down else "idle"

    @property
    def failures(self) -> int:
        """Starts and runs of the process that failed one after another; 0 once a run ends."""
        return self._failures

    def wake(self) -> None:
        """Look at the queue now."""
        self._news.set()

    def halt(self) -> None:
        """Kill the process, and let no call succeed until its run has ended."""
        self._worker.halt()

    def join(self, within_s: float) -> bool:
        """Whether the thread has ended, or does within so long."""
        if self._thread.is_alive():
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _work(self) -> None:
        shared = self._shared
        while not shared.stopping.is_set():
            self._news.clear()
            try:
                job = self._claim()
                self._defects = 0
                if job is not None:
                    self._run(job)
                    continue
            except StoreUnavailable as error:
                shared.unsure = True  # what was committed nobody knows
                log.warning("no job can be begun: %s", error)
                shared.stopping.wait(RETRY_S)
                continue
            except Exception:
                shared.unsure = True
                self._defects += 1
                log.exception("no job can be begun")
                shared.stopping.wait(pause_s(self._defects))
                continue
            self._news.wait(POLL_S)

    def _claim(self) -> Job | None:
        shared = self._shared
        if not shared.held():
            raise StoreUnavailable("another service holds the database, or nobody can")
        shared.recover()
        waiting = shared.store.waiting()
        gpu = self._find_gpu() if waiting or self._worker.running else None
        if gpu is None and self._worker.running:
            log.warning("the GPU is lost, and its process is ended", extra={"gpu": self.place})
            self._worker.close()  # what it has of that GPU is of no use when it is back
        if gpu is None or not waiting:
            self._down = False
            return None
        if not self._start_worker(gpu):
            return None
        with shared.lock:
            job = shared.store.claim(gpu)
            if job is None:
                return None
            if job.ended is None:
                shared.running[self.place] = job
                return job
        self._news.set()  # it failed unread: the next one's turn has come
        shared.on_end(job)
        return None

    def _start_worker(self, gpu: str) -> bool:
        """Whether there is a process to run a job in, with the GPU at its command. One that can't
        be started costs no job a run: none is begun before."""
        outcome = None if self._worker.running else self._start_process(gpu)
        if outcome is None or outcome.kind is OutcomeKind.OK:
            self._down = False
            return True
        if not self._shared.stopping.is_set():
            self._pause(f"the GPU's worker process did not start: {failure_of(outcome)[1]}")
        return False

    def _start_process(self, gpu: str) -> Called:
        if self._pin:
            self._worker.variables[VISIBLE_VARIABLE] = gpu
        return self._worker.call(self._shared.warm, (), START_DEADLINE_S)

    def _pause(self, words: str) -> None:
        """Say that the process failed, and let some time pass before the next is started."""
        self._failures += 1
        self._down = True
        pause = pause_s(self._failures)
        log.error("%s; again in %g s", words, pause, extra={"failures": self._failures})
        self._shared.stopping.wait(pause)
        self._news.set()  # the pause was long enough

    def _run(self, job: Job) -> None:
        """A run of a job, whose lines in the log carry the id of the request that handed it in."""
        reset = REQUEST_ID.set(job.request_id)
        try:
            self._run_of(job)
        finally:
            REQUEST_ID.reset(reset)

    def _run_of(self, job: Job) -> None:
        begun = time.monotonic()
        audit = Audit(job)
        self._worker.on_launch = audit.launching
        rows = self._shared.store.rows_of(job)
        try:
            turn = Turn(self._worker, self._shared.deadline_s, self._reporter(job), rows, job.gpu)
            runner = self._shared.runners.get(job.kind)
            outcome = _unknown(job.kind) if runner is None else runner(job, turn)
        except StoreUnavailable as error:
            log.warning("job %s can't go on: %s", job.id, error)
            outcome = INTERRUPTED
        except Exception:
            log.exception("job %s broke off", job.id)
            outcome = UNTOLD
        gpu_seconds = time.monotonic() - begun
        try:
            ended = self._record(job, outcome, gpu_seconds, rows, audit.kernels)
        finally:
            with self._shared.lock:
                self._shared.running.pop(self.place, None)
                if not self._shared.given_up.is_set():
                    self._worker.resume()
        if ended is not None:
            audit.ended(ended, gpu_seconds)
            self._shared.on_run(self.place, gpu_seconds)
            if ended.ended is not None:
                self._shared.on_end(ended)
        if outcome.reason != Reason.WORKER_LOST:
            self._failures = 0
        elif (
            outcome is not INTERRUPTED
            and ended is not None
            and ended.status != "cancelled"
            and not self._shared.given_up.is_set()
        ):
            self._pause(f"the GPU's worker process was lost in a run of job {job.id}")

    def _record(
        self, job: Job, outcome: Outcome, gpu_seconds: float, rows: RunRows, kernels: Sequence[str]
    ) -> Job | None:
        """Write down how a run ended, however long the database can't be used."""
        while True:
            try:
                if outcome.reason == Reason.WORKER_LOST:
                    lost = outcome is not INTERRUPTED and not self._shared.given_up.is_set()
                    return self._shared.store.give_back(
                        job, lost=lost, gpu_seconds=gpu_seconds, rows=rows, kernels=kernels
                    )
                return self._end(job, outcome, gpu_seconds, rows, kernels)
            except StoreUnavailable as error:
                log.warning("the end of job %s can't be recorded yet: %s", job.id, error)
            except Exception:
                if outcome is UNTOLD:
                    raise
                log.exception("the result of job %s can't be recorded", job.id)
                outcome = UNTOLD
                continue
            if self._shared.given_up.wait(RETRY_S):
                log.warning("job %s is left running, for the next service to take up", job.id)
                return None

    def _end(
        self, job: Job, outcome: Outcome, gpu_seconds: float, rows: RunRows, kernels: Sequence[str]
    ) -> Job | None:
        """Learn from a run and record its end; one that was to be cancelled teaches nothing."""
        with self._shared.ending:
            learnt = self._shared.learnt
            if job.id == learnt.get(self.place) or not self._shared.store.is_cancelled(job):
                learnt[self.place] = job.id
                outcome = self._shared.learn(job, outcome)
            return self._shared.store.finish(job, outcome, gpu_seconds, rows, kernels)

    def _reporter(self, job: Job) -> Callable[[dict[str, Any]], None]:
        """Notes a run's reports as events; one that can't be noted is left out."""
        last: tuple[str | None, float] = (None, 0.0)

        def note(facts: dict[str, Any]) -> None:
            nonlocal last
            stage, at = facts.get("stage"), time.monotonic()
            if stage == last[0] and at - last[1] < REPORT_S:
                return
            last = (stage, at)
            try:
                self._shared.store.append(job, facts)
            except StoreUnavailable as error:
                last = (stage, time.monotonic() + AWAY_S)
                log.debug("an event of job %s is left out: %s", job.id, error)
            except Exception:
                log.exception("an event of job %s is left out", job.id)

        return note


def _unknown(kind: str) -> Outcome:
    return Outcome("failed", UNREADABLE, {"details": f"this program has no jobs of kind {kind!r}"})
