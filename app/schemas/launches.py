"""The audit's pages: what may be asked of them, and what they hold."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, Strict

from app.schemas.parts import Shape
from app.schemas.questions import Request
from app.store.job import LaunchOutcome
from app.store.launches import LaunchFilter

PAGE_MAX = 200
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dt\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)", re.I | re.A)


def _written(value: Any) -> Any:
    # pydantic would take a number for seconds since 1970.
    if not isinstance(value, str) or not RFC_3339.fullmatch(value):
        raise ValueError("must be written as RFC 3339 has it")
    return value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999 of UTC") from None


Moment = Annotated[AwareDatetime, Strict(False), BeforeValidator(_written), AfterValidator(_in_utc)]
Name = Annotated[str, Field(min_length=1, max_length=64)]


class LaunchQuery(Request):
    """Which launches; without any of these the latest."""

    key_id: str | None = Field(
        None, max_length=16, description="of this key's requests; empty for those without one"
    )
    job_id: Name | None = Field(None, description="of this job")
    outcome: LaunchOutcome | None = Field(None, description="that ended so")
    since: Moment | None = Field(None, description="that ended at this moment or later")
    until: Moment | None = Field(None, description="that ended before this moment")
    before: int | None = Field(
        None, ge=1, le=2**63 - 1, description="with a lower number: the last page's `next`"
    )
    limit: int = Field(50, ge=1, le=PAGE_MAX, description="at most so many")

    def filter(self) -> LaunchFilter:
        """The members that say which."""
        return LaunchFilter(self.key_id, self.job_id, self.outcome, self.since, self.until)


class Launch(Shape):
    number: int
    job_id: str
    attempt: int
    key_id: str = Field(description="empty where the request had no key")
    at: str = Field(description="when it ended")
    gpu: str
    request: dict[str, Any] = Field(description="what was launched: problem and configuration")
    outcome: str
    reason: str | None
    detail: str | None
    gpu_seconds: float
    request_id: str | None = Field(description="of the request that handed the job in")
    kernels: list[str] | None = Field(
        description="ids of the kernels that the run launched, each once; null where an earlier "
        "version recorded it"
    )


class Launches(Shape):
    launches: list[Launch] = Field(description="the latest first")
    next: int | None = Field(description="`before` of the next page; null where this is the last")
