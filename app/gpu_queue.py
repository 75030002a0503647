"""The GPU's own thread: takes one queued job after another and has it run in a worker process.

One at a time, because two kernels on a GPU would time each other. Whatever happens to the
process, to the service or to the database, a job's end is recorded once: what can't be recorded
now is tried again, and what a dead service left running is queued again by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.errors import AlreadyEnded, StoreUnavailable, Unavailable
from app.restarts import pause_s
from app.store.job import UNREADABLE, Job, Outcome
from app.store.jobs import JobStore
from app.store.result_rows import AWAY_S, RunRows
from kernels.problem_sweep import Rows
from kernels.process import REAP_S, OutcomeKind, Worker
from kernels.verify import Reason

log = logging.getLogger(__name__)
audit_log = logging.getLogger("app.launches")

POLL_S = 2.0
"""How often an idle thread looks at the queue by itself: for a GPU or a database that is back."""
RETRY_S = 0.5
"""Pause after the database could not be used."""
START_DEADLINE_S = 60.0
"""Longest time for a worker process to come up."""
REPORT_S = 1.0
"""Shortest time between two events of one stage."""
UNTOLD = Outcome("failed", "internal_error", {})
"""What came of a job is a defect here; the log has it."""
INTERRUPTED = Outcome("failed", Reason.WORKER_LOST, {})
"""A run that could not go on for want of the database, and is no loss."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a job gets for its run: the process to launch in, its time, who hears how far it is,
    and where what it measures row by row is kept.
    """

    worker: Worker
    deadline_s: float
    on_report: Callable[[dict[str, Any]], None]
    rows: Rows


Runner = Callable[[Job, Turn], Outcome]
"""Runs a job of one kind. An outcome whose reason is ``worker_lost`` says nothing of the job."""


class GpuQueue:
    """Runs the store's jobs on one GPU, each by the runner of its kind.

    ``find_gpu`` names the GPU, None where there is none now: jobs then wait. ``held`` says
    whether this service still is the database's own. ``on_end`` hears of each job that ended here
    and of the GPU seconds it took. ``learn`` adds to an outcome what it teaches, before the job's
    end can be read: whoever sees that it passed gets answers that know of it.
    """

    def __init__(
        self,
        store: JobStore,
        runners: Mapping[str, Runner],
        *,
        find_gpu: Callable[[], str | None],
        held: Callable[[], bool],
        deadline_s: float,
        on_end: Callable[[Job, float], None],
        learn: Callable[[Job, Outcome], Outcome] = lambda job, outcome: outcome,
    ) -> None:
        self._store = store
        self._runners = runners
        self._find_gpu = find_gpu
        self._held = held
        self._deadline_s = deadline_s
        self._on_end = on_end
        self._learn = learn
        self._worker = Worker()
        self._lock = threading.Lock()  # around a claim, so that whoever cancels knows what runs
        self._current: Job | None = None
        self._ending = threading.Lock()
        """Around what a run's end consists of: whoever cancels comes before all of it or after."""
        self._learnt: str | None = None
        """The job whose run was learnt from last: it can't be cancelled any more."""
        self._unsure = True
        """Whether the database may have running jobs that nobody runs."""
        self._defects = 0
        """Looks at the queue that failed one after another, for no fault of the database."""
        self._failures = 0
        """Starts and runs of the process that failed since the last run that came to its end."""
        self._down = False
        """Whether jobs wait for a process that could not be started or was lost."""
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpu", daemon=True)

    def start(self) -> None:
        """Queue again what a dead service left running, and begin."""
        self._thread.start()

    @property
    def state(self) -> str:
        """``idle``, ``running``, ``restarting`` while jobs wait for a process that could not be
        started or was lost, ``failing`` where a defect keeps jobs from being begun or, once none
        will be begun any more, ``stopped``.
        """
        if self._stopping.is_set() or not self._thread.is_alive():
            return "stopped"
        if self._defects:
            return "failing"
        if self._current is not None:
            return "running"
        return "restarting" if self._down else "idle"

    @property
    def failures(self) -> int:
        """Starts and runs of the process that failed one after another; 0 once a run ends."""
        return self._failures

    def require_open(self) -> None:
        """Raise Unavailable where the service is stopping and takes no new jobs."""
        if self._stopping.is_set():
            raise Unavailable("the service is stopping")

    def wake(self) -> None:
        """Look at the queue now: something was added."""
        self._news.set()

    def cancel(self, job_id: str, owner: str | None = None, kind: str | None = None) -> Job:
        """Cancel a job; the process of one that runs is killed. Raises NotFound, AlreadyEnded."""
        with self._ending:
            if self._store.get(job_id, owner, kind).id == self._learnt:
                raise AlreadyEnded(f"{kind or 'job'} {job_id} has ended: that is being recorded")
            job = self._store.cancel(job_id, owner, kind)
        with self._lock:
            if self._current is not None and self._current.id == job_id:
                self._worker.halt()
        return job

    def drain(self) -> None:
        """Begin no further job; those that are queued stay so."""
        self._stopping.set()
        self._news.set()

    def stop(self, deadline_s: float) -> None:
        """Drain, and let the running job end within ``deadline_s``; then it is queued again."""
        self.drain()
        if self._thread.is_alive():
            self._thread.join(deadline_s)
        if self._thread.is_alive():
            self.give_up()
            self._thread.join(REAP_S)
        self._worker.close()

    def give_up(self) -> None:
        """End the running job's process, so that it is queued again; for when all is to end."""
        self._given_up.set()
        self._worker.halt()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                job = self._claim()
                self._defects = 0
                if job is not None:
                    self._run(job)
                    continue
            except StoreUnavailable as error:
                self._unsure = True  # what was committed nobody knows
                log.warning("no job can be begun: %s", error)
                self._stopping.wait(RETRY_S)
                continue
            except Exception:
                self._unsure = True
                self._defects += 1
                log.exception("no job can be begun")
                self._stopping.wait(pause_s(self._defects))
                continue
            self._news.wait(POLL_S)

    def _claim(self) -> Job | None:
        if not self._held():
            raise StoreUnavailable("another service holds the database, or nobody can")
        if self._unsure:
            for left in self._store.recover():
                log.warning("job %s was left running and is %s", left.id, left.status)
                if left.ended is not None:
                    self._on_end(left, 0.0)
            self._unsure = False
        gpu = self._find_gpu() if self._store.waiting() else None
        if gpu is None:
            self._down = False
            return None
        if not self._start_worker():
            return None
        with self._lock:
            job = self._store.claim(gpu)
            if job is None or job.ended is None:
                self._current = job
                return job
        self._news.set()  # it failed unread: the next one's turn has come
        self._on_end(job, 0.0)
        return None

    def _start_worker(self) -> bool:
        """Whether there is a process to run a job in. One that can't be started costs no job a run:
        none is begun before."""
        outcome = None if self._worker.running else self._worker.start(START_DEADLINE_S)
        if outcome is None or outcome.kind is OutcomeKind.OK:
            self._down = False
            return True
        if not self._stopping.is_set():
            self._pause(f"the GPU's worker process did not start: {outcome.message}")
        return False

    def _pause(self, words: str) -> None:
        """Say that the process failed, and let some time pass before the next is started."""
        self._failures += 1
        self._down = True
        pause = pause_s(self._failures)
        log.error("%s; again in %g s", words, pause, extra={"failures": self._failures})
        self._stopping.wait(pause)
        self._news.set()  # the pause was long enough

    def _run(self, job: Job) -> None:
        begun = time.monotonic()
        rows = self._store.rows_of(job)
        try:
            turn = Turn(self._worker, self._deadline_s, self._reporter(job), rows)
            runner = self._runners.get(job.kind)
            outcome = _unknown(job.kind) if runner is None else runner(job, turn)
        except StoreUnavailable as error:
            log.warning("job %s can't go on: %s", job.id, error)
            outcome = INTERRUPTED
        except Exception:
            log.exception("job %s broke off", job.id)
            outcome = UNTOLD
        gpu_seconds = time.monotonic() - begun
        try:
            ended = self._record(job, outcome, gpu_seconds, rows)
        finally:
            with self._lock:
                self._current = None
                if not self._given_up.is_set():
                    self._worker.resume()
        if ended is not None:
            audit_log.info(
                "launch",
                extra={
                    "job_id": job.id,
                    "attempt": job.attempts,
                    "key_id": job.key_id or None,
                    "gpu": job.gpu,
                    "status": ended.status,
                    "reason": ended.reason,
                    "gpu_seconds": round(gpu_seconds, 3),
                },
            )
            if ended.ended is not None:
                self._on_end(ended, gpu_seconds)
        if outcome.reason != Reason.WORKER_LOST:
            self._failures = 0
        elif (
            outcome is not INTERRUPTED
            and ended is not None
            and ended.status != "cancelled"
            and not self._given_up.is_set()
        ):
            self._pause(f"the GPU's worker process was lost in a run of job {job.id}")

    def _record(self, job: Job, outcome: Outcome, gpu_seconds: float, rows: RunRows) -> Job | None:
        """Write down how a run ended, however long the database can't be used."""
        while True:
            try:
                if outcome.reason == Reason.WORKER_LOST:
                    lost = outcome is not INTERRUPTED and not self._given_up.is_set()
                    return self._store.give_back(job, lost=lost, gpu_seconds=gpu_seconds, rows=rows)
                return self._end(job, outcome, gpu_seconds, rows)
            except StoreUnavailable as error:
                log.warning("the end of job %s can't be recorded yet: %s", job.id, error)
            except Exception:
                if outcome is UNTOLD:
                    raise
                log.exception("the result of job %s can't be recorded", job.id)
                outcome = UNTOLD
                continue
            if self._given_up.wait(RETRY_S):
                log.warning("job %s is left running, for the next service to take up", job.id)
                return None

    def _end(self, job: Job, outcome: Outcome, gpu_seconds: float, rows: RunRows) -> Job | None:
        """Learn from a run and record its end; one that was to be cancelled teaches nothing."""
        with self._ending:
            if job.id == self._learnt or not self._store.is_cancelled(job):
                self._learnt = job.id
                outcome = self._learn(job, outcome)
            return self._store.finish(job, outcome, gpu_seconds, rows)

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
                self._store.append(job, facts)
            except StoreUnavailable as error:
                last = (stage, time.monotonic() + AWAY_S)
                log.debug("an event of job %s is left out: %s", job.id, error)
            except Exception:
                log.exception("an event of job %s is left out", job.id)

        return note


def _unknown(kind: str) -> Outcome:
    return Outcome("failed", UNREADABLE, {"details": f"this program has no jobs of kind {kind!r}"})
