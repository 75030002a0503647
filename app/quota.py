"""GPU seconds a day: what a key may have used before it asks for more."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from app.errors import QuotaExceeded
from app.keys import Caller
from app.metrics import Metrics
from app.store.database import Database
from app.store.launches import gpu_seconds


def check_quota(
    caller: Caller, database: Database, metrics: Metrics, now: datetime | None = None
) -> None:
    """Raise QuotaExceeded where the caller's key has used up its GPU seconds of the UTC day.

    Launches that have ended count, so a key may go over its quota by what it has queued.
    Asks the database.
    """
    if caller.gpu_seconds_per_day is None:
        return
    if caller.gpu_seconds_per_day == 0:  # no day brings more
        metrics.refused.labels("gpu_seconds_per_day").inc()
        raise QuotaExceeded(
            f"the key {caller.key_id} may launch nothing: it has 0 GPU seconds a day", None
        )
    now = datetime.now(UTC) if now is None else now
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    used = gpu_seconds(database, caller.key_id, today)
    if used < caller.gpu_seconds_per_day:
        return
    metrics.refused.labels("gpu_seconds_per_day").inc()
    tomorrow = today + timedelta(days=1)
    raise QuotaExceeded(
        f"the key {caller.key_id} may use {caller.gpu_seconds_per_day:g} GPU seconds a day and "
        f"has used {used:.1f}; again from {tomorrow.isoformat(timespec='seconds')}",
        retry_after_s=max(1, math.ceil((tomorrow - now).total_seconds())),
    )
