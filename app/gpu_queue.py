"""The queue of jobs for this machine's GPUs: a thread and a process for each (``app.gpu_lane``).

Every GPU takes the next job of the one queue as soon as it is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.errors import AlreadyEnded, Unavailable
from app.gpu_lane import GpuLane, Shared
from app.store.job import Job, Outcome
from app.store.jobs import JobStore
from app.turn import Runner
from kernels.process import REAP_S
from kernels.worker import device_facts

BEST_FIRST = ("running", "idle", "restarting", "failing", "stopped")
"""States of a lane, from the one that says most of what the queue can do."""


class GpuQueue:
    """Runs the store's jobs, each by the runner of its kind.

    ``find_gpus`` has a function for each GPU that names it by its UUID, None where it is not there
    now. With ``pin`` the process of each sees its own alone. ``warm`` is called in a fresh process
    before a job is begun in it: where that fails there is no use in beginning one. ``held`` says
    whether this service still is the database's own. ``on_end`` hears of each job that ended here,
    ``on_run`` of the GPU seconds that a run took at which place. ``learn`` adds to an outcome what
    it teaches, before the job's end can be read: whoever sees that it passed gets answers that know
    of it.
    """

    def __init__(
        self,
        store: JobStore,
        runners: Mapping[str, Runner],
        *,
        find_gpus: Sequence[Callable[[], str | None]],
        held: Callable[[], bool],
        deadline_s: float,
        on_end: Callable[[Job], None],
        on_run: Callable[[int, float], None] = lambda place, gpu_seconds: None,
        learn: Callable[[Job, Outcome], Outcome] = lambda job, outcome: outcome,
        warm: Callable[[], Any] = device_facts,
        pin: bool = False,
    ) -> None:
        self._store = store
        self._shared = Shared(
            store, runners, held, warm, deadline_s, on_end=on_end, on_run=on_run, learn=learn
        )
        self.lanes = tuple(
            GpuLane(self._shared, place, find_gpu, pin=pin)
            for place, find_gpu in enumerate(find_gpus)
        )

    def start(self) -> None:
        """Queue again what a dead service left running, and begin."""
        for lane in self.lanes:
            lane.start()

    @property
    def state(self) -> str:
        """The state of the lane that can do most."""
        return min((lane.state for lane in self.lanes), key=BEST_FIRST.index)

    @property
    def failures(self) -> int:
        """Those of the lane that failed most often in a row."""
        return max(lane.failures for lane in self.lanes)

    def require_open(self) -> None:
        """Raise Unavailable where the service is stopping and takes no new jobs."""
        if self._shared.stopping.is_set():
            raise Unavailable("the service is stopping")

    def wake(self) -> None:
        """Look at the queue now: something was added."""
        for lane in self.lanes:
            lane.wake()

    def cancel(self, job_id: str, owner: str | None = None, kind: str | None = None) -> Job:
        """Cancel a job; the process of one that runs is killed. Raises NotFound, AlreadyEnded."""
        shared = self._shared
        with shared.ending:
            job = self._store.get(job_id, owner, kind)
            if job.ended is None and job.id in shared.learnt.values():
                raise AlreadyEnded(f"{kind or 'job'} {job_id} has ended: that is being recorded")
            job = self._store.cancel(job_id, owner, kind)
        with shared.lock:
            for lane in self.lanes:
                current = shared.running.get(lane.place)
                if current is not None and current.id == job_id:
                    lane.halt()
        return job

    def drain(self) -> None:
        """Begin no further job; those that are queued stay so."""
        self._shared.stopping.set()
        self.wake()

    def stop(self, deadline_s: float) -> None:
        """Drain, and let the running jobs end within ``deadline_s``; then they are queued again."""
        self.drain()
        if not self._join(deadline_s):
            self.give_up()
            self._join(REAP_S)
        for lane in self.lanes:
            lane.close()

    def _join(self, within_s: float) -> bool:
        end_s = time.monotonic() + within_s
        ended = [lane.join(max(0.0, end_s - time.monotonic())) for lane in self.lanes]
        return all(ended)

    def give_up(self) -> None:
        """End the running jobs' processes, so that they are queued again: all is to end."""
        self._shared.given_up.set()
        for lane in self.lanes:
            lane.halt()
