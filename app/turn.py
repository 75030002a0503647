"""What a kind of job is to the queue: a function that runs one, and what it gets for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.store.job import Job, Outcome
from kernels.problem_sweep import Rows
from kernels.process import Worker


@dataclass(frozen=True, slots=True)
class Turn:
    """What a job gets for its run: the process to launch in, its time, who hears how far it is,
    where what it measures row by row is kept, and the UUID of its GPU.
    """

    worker: Worker
    deadline_s: float
    on_report: Callable[[dict[str, Any]], None]
    rows: Rows
    gpu: str | None = None


Runner = Callable[[Job, Turn], Outcome]
"""Runs a job of one kind. An outcome whose reason is ``worker_lost`` says nothing of the job."""
