"""Solver processes for which every device has invented constants of norm_activation: what tests
hold must not move with a measurement."""

from __future__ import annotations

import solver.engine
from app import answers, norm_verification
from tests.norm_profiles import invented

PROBLEM = {
    "op": "norm_activation",
    "rows": 65536,
    "width": 1024,
    "activation": "poly",
    "degree": 32,
}
TINY = {"op": "norm_activation", "rows": 3, "width": 1000, "dtype": "bf16", "norm": "rms"}


def warm() -> None:
    """In a solver process, before it is warmed."""
    solver.engine.load_profile = invented
    norm_verification.load_profile = invented
    answers.warm()


def warm_starved() -> None:
    """The same of a device whose memory is slow to answer: there specialising pays."""

    def starved(name: str = "h200") -> object:
        return invented(name, memory_latency_us=6.0, block_start_us=30.0, refill_cycles=1e5)

    solver.engine.load_profile = starved  # type: ignore[assignment]
    norm_verification.load_profile = starved  # type: ignore[assignment]
    answers.warm()
