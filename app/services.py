"""What lives as long as the service does: settings, host, solver processes, jobs, counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.answering import Answering
from app.host import Host
from app.jobs import JobQueue
from app.metrics import Metrics
from app.settings import Settings
from app.solver_pool import SolverPool


@dataclass(frozen=True, slots=True)
class Services:
    """Made at start, handed to the routes, stopped at the end."""

    settings: Settings
    host: Host
    pool: SolverPool
    jobs: JobQueue
    metrics: Metrics
    answering: Answering
    batches: asyncio.Semaphore
    """How many questions of batches may be under way at once, of all batches together."""
