"""What lives as long as the service does: settings, host, solver processes, jobs, counts, keys."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.answering import Answering
from app.host import Host
from app.jobs import JobQueue
from app.key_ring import KeyRing
from app.metrics import Metrics
from app.settings import Settings
from app.solver_pool import SolverPool
from app.store.database import Database


@dataclass(frozen=True, slots=True)
class Services:
    """Made at start, handed to the routes, stopped at the end."""

    settings: Settings
    host: Host
    pool: SolverPool
    jobs: JobQueue
    metrics: Metrics
    database: Database
    keys: KeyRing
    answering: Answering
    batches: asyncio.Semaphore
    """How many questions of batches may be under way at once, of all batches together."""
