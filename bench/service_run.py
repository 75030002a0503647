"""Verifications handed in to a service that is killed meanwhile, until every one has ended."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.service_process import UNREACHABLE, ServiceProcess, descendants
from bench.service_work import Asked

POLL_S = 0.1
SLICE_S = 0.5
"""Time of handing in between two looks at what runs."""
KILL_WITHIN_S = 1.0
"""A kill comes so long, at most, after so many have ended as it waits for, or once one runs."""
WAITING = "warpwright_verifications_waiting "


@dataclass(slots=True)
class Kill:
    """One ``kill -9``: how many had ended by then, the key of what ran, and the seconds until the
    next process was ready, and until a further verification had ended."""

    ended: int
    running: str
    ready_s: float
    next_end_s: float | None = None


@dataclass(slots=True)
class Course:
    """What happened: ids of what was accepted by key, the kills, by job the processes that were
    seen to launch it, each with its user, and which of these are ``left`` when all has ended."""

    accepted: dict[str, str] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    launched_by: dict[str, dict[int, int]] = field(default_factory=dict)
    service_uids: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    elapsed_s: float = 0.0


class Run:
    """Hands in, kills, and waits; ``tell`` hears how many have ended, and of how many kills.
    ``questions`` are the bodies by their keys."""

    def __init__(
        self,
        service: ServiceProcess,
        asked: Sequence[Asked],
        cache: Path,
        *,
        kills: int,
        seed: int,
        tell: Callable[[int, int], None],
    ) -> None:
        self._service = service
        self.questions = {key_of(number): dict(each.body) for number, each in enumerate(asked)}
        self._locks = str(cache / "gpus")
        self._rng = random.Random(f"kills:{seed}")
        few, most = len(asked) // 10, len(asked) * 9 // 10
        self._moments = sorted(self._rng.sample(range(few, most), kills))
        self._kill_at_s: float | None = None
        self._last_kill: tuple[Kill, float, int] | None = None
        """The last one, when it was, and how many had ended then; None once one more has."""
        self._tell = tell
        self.course = Course()

    def to_the_end(self, budget_s: float) -> bool:
        """Whether every verification had ended within that time.

        Raises ServiceFault, and NotInTime where the service does not get ready again."""
        begun = time.monotonic()
        try:
            while time.monotonic() - begun < budget_s:
                self._service.hand_in(
                    self.questions, self.course.accepted, time.monotonic() + SLICE_S
                )
                self._service.require_running()
                with suppress(*UNREACHABLE):
                    ended = self._look()
                    self._note_next_end(ended)
                    self._tell(ended, len(self.course.kills))
                    if self._is_time_to_kill(ended):
                        self._kill(ended)
                    elif ended == len(self.questions) and self._all_ended():
                        return True
                time.sleep(POLL_S)
            return False
        finally:
            launched = {pid for each in self.course.launched_by.values() for pid in each}
            self.course.left = set(filter(is_there, launched))
            self.course.elapsed_s = round(time.monotonic() - begun, 1)

    def _is_time_to_kill(self, ended: int) -> bool:
        if not self._moments or ended < self._moments[0] or self._last_kill is not None:
            return False
        if self._kill_at_s is None:
            self._kill_at_s = time.monotonic() + self._rng.uniform(0, KILL_WITHIN_S)
        return time.monotonic() >= self._kill_at_s

    def _look(self) -> int:
        """How many have ended, by what waits and runs; takes down who launches."""
        running = self._running()
        holders = self._holders()
        if running is not None and running == self._running():  # so that they are its processes
            self.course.launched_by.setdefault(running, {}).update(holders)
        text: str = self._service.read("/metrics")
        line = next(each for each in text.splitlines() if each.startswith(WAITING))
        waiting = int(float(line.removeprefix(WAITING)))
        return len(self.course.accepted) - waiting - (self._running() is not None)

    def _running(self) -> str | None:
        page = self._service.read("/v1/verifications?status=running&limit=1")["verifications"]
        return page[0]["id"] if page else None

    def _holders(self) -> dict[int, int]:
        """The processes of the service that hold a GPU's lock, each with its user."""
        found = {}
        with suppress(OSError):  # any of them may leave meanwhile
            self.course.service_uids.add(uid_of(self._service.pid))
        for pid in descendants(self._service.pid):
            with suppress(OSError):
                files = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
                if any(os.path.dirname(file) == self._locks for file in files):
                    found[pid] = uid_of(pid)
        return found

    def _kill(self, ended: int) -> None:
        """``kill -9`` of the whole group where something runs still, and a fresh process."""
        running = self._running()
        if running is None:
            return
        killed_s = time.monotonic()
        self._service.kill_group()
        self._moments.pop(0)
        self._kill_at_s = None
        self._service.start()
        keys = {job_id: key for key, job_id in self.course.accepted.items()}
        kill = Kill(ended, keys.get(running, "?"), round(time.monotonic() - killed_s, 2))
        self.course.kills.append(kill)
        self._last_kill = (kill, killed_s, self._look())

    def _note_next_end(self, ended: int) -> None:
        if self._last_kill is not None:
            kill, killed_s, before = self._last_kill
            if ended > before:
                kill.next_end_s = round(time.monotonic() - killed_s, 2)
                self._last_kill = None

    def _all_ended(self) -> bool:
        """By their own rows: one that goes back to the queue is for a moment not counted."""
        return all(job["finished_at"] for job in self._service.jobs())


def key_of(number: int) -> str:
    """The idempotency key of a verification."""
    return f"gpu-service-{number}"


def uid_of(pid: int) -> int:
    """The effective user of a process. Raises OSError where it has gone."""
    line = next(
        each
        for each in Path(f"/proc/{pid}/status").read_text().splitlines()
        if each.startswith("Uid:")
    )
    return int(line.split()[2])


def is_there(pid: int) -> bool:
    """Whether a process runs, one that only waits to be reaped excepted."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def facts_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the record keeps of a verification."""
    result = job["result"] or {}
    names = ("exact", "rel_error", "median_us", "ratio_to_cublas", "kernel_id", "elapsed_s")
    problem = ("m", "n", "k", "dtype", "layout", "out_dtype")
    return {
        **{name: job.get("problem", {}).get(name) for name in problem},
        **{name: job[name] for name in ("status", "reason", "attempts", "priority")},
        **{name: result.get(name) for name in names},
    }
