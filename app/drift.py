"""Whether this machine's GPU has drifted from its profile, by the verifications it ran last."""

from __future__ import annotations

from typing import Any

from app.host import Host
from app.store.job import Job
from app.store.jobs import JobStore
from app.verification import KIND
from solver.calibration.drift import Drift, drift_of, timing
from solver.calibration.rows import RowGroup
from solver.device import load_profile
from solver.errors import InvalidInput

LAST = 50
"""Verifications that are looked at; of several of one kernel and problem the newest."""


def host_drift(host: Host, store: JobStore) -> Drift | None:
    """None without a GPU that a kernel family runs on, or too few verifications of it. Raises
    StoreUnavailable."""
    if host.gpu is None or host.profile is None or not load_profile(host.profile).families:
        return None
    jobs, _ = store.page(kind=KIND, status="passed", limit=LAST)
    newest: dict[Any, RowGroup] = {}
    for job in jobs:
        row = _row(job) if job.gpu == host.gpu.uuid else None
        if row is not None and job.result is not None:
            newest.setdefault((row.problem, repr(job.result["config"]), row.cold), row)
    return drift_of(list(newest.values()), load_profile(host.profile))


def _row(job: Job) -> RowGroup | None:
    """What a job timed; None too where another version of this program kept what this one can't
    read."""
    try:
        return None if job.result is None else timing(job.result)
    except (InvalidInput, AttributeError, LookupError, TypeError, ValueError):
        return None
