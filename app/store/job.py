"""A job as its row has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

PRIORITIES = {"low": 0, "normal": 1, "high": 2}
STATUSES = ("queued", "running", "passed", "failed", "cancelled")
UNREADABLE = "unreadable"
"""Why a job failed of which the database has something that this program can't read, and what is
shown in the place of a moment that is none."""

_PRIORITY_NAMES = {number: name for name, number in PRIORITIES.items()}


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work for a GPU: what is asked, where it stands, and what came out.

    ``number`` is its place in the order of acceptance, ``ended`` in that of ending.
    ``request`` belongs to its ``kind``. ``attempts`` is the number of its present or last run;
    ``losses`` counts those that ended with their process or service.
    """

    number: int
    ended: int | None
    id: str
    kind: str
    status: str
    priority: int
    reason: str | None
    request: dict[str, Any] = field(hash=False)
    result: dict[str, Any] | None = field(hash=False)
    attempts: int
    losses: int
    gpu: str | None
    cancel_requested: bool
    key_id: str
    idempotency_key: str | None
    request_sha256: str
    request_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    def to_dict(self) -> dict[str, Any]:
        """The job as the HTTP interface shows it, its request's members among its own.

        A row that can't be read is shown as far as it can be, until its turn comes and it fails.
        """
        return {
            "id": self.id,
            "status": self.status,
            "reason": self.reason,
            "priority": _PRIORITY_NAMES.get(self.priority, "normal"),
            "attempts": self.attempts,
            "cancel_requested": self.cancel_requested,
            "request_id": self.request_id,
            "gpu": self.gpu,
            **(self.request if isinstance(self.request, dict) else {}),
            "created_at": written(self.created_at),
            "started_at": written(self.started_at),
            "finished_at": written(self.finished_at),
            "result": self.result,
        }


LaunchOutcome = Literal["passed", "failed", "cancelled", "lost", "interrupted"]
"""How a run is told of in the audit: as its job ended, or that it was ended before its job was."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: ``passed`` or ``failed`` with a reason, and its record."""

    status: str
    reason: str | None
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job: ``status`` or ``progress``. Numbered from 1 in each job."""

    number: int
    name: str
    data: dict[str, Any] = field(hash=False)


def now() -> datetime:
    """The wall clock's time. It may jump: it is shown and recorded, and nothing is ordered or
    timed by it."""
    return datetime.now(UTC)


def written(moment: Any) -> str | None:
    """A moment as JSON has it: ISO 8601 in UTC, with milliseconds. UNREADABLE for what stands in
    the place of one and is none."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        return UNREADABLE
    return moment.isoformat(timespec="milliseconds")
