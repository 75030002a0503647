"""What lives as long as the service does: settings, host, database, keys, solver processes, kept
answers, the GPU's queue, counts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.answering import Answering
from app.event_streams import EventStreams
from app.gpu_queue import GpuQueue
from app.gpus import Gpus
from app.host import Host
from app.key_ring import KeyRing
from app.learning import Learning
from app.metrics import Metrics
from app.settings import Settings
from app.solver_pool import SolverPool
from app.store.database import Database
from app.store.jobs import JobStore


@dataclass(frozen=True, slots=True)
class Services:
    """Made at start, handed to the routes, stopped at the end."""

    settings: Settings
    host: Host
    pool: SolverPool
    database: Database
    jobs: JobStore
    gpus: Gpus
    gpu: GpuQueue
    streams: EventStreams
    metrics: Metrics
    keys: KeyRing
    learning: Learning
    answering: Answering
    batches: asyncio.Semaphore
    """How many questions of batches may be under way at once, of all batches together."""
