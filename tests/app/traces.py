"""A trace as a verification's result has it, made of what the simulator plays twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.overlay import overlay, played
from kernels.trace_events import CtaEvents

PARAMETERS = {
    "load": 2000,
    "latency": 9000,
    "math": 5000,
    "early": 0,
    "epilogue": 30_000,
    "slots": 4,
    "iterations": 24,
    "units": 3,
}


def trace(units: int = 3, unseen: bool = True) -> dict[str, Any]:
    """What ``kernels.trace.trace_of`` makes, of a GPU that is a little slower than the model."""
    model = played({**PARAMETERS, "units": units}, 30_000)
    slower = played({**PARAMETERS, "units": units, "math": 5300}, 30_000)
    arrived = slower.load_end.copy()
    if unseen:
        arrived[4:] = np.nan
    measured = CtaEvents(
        **{name: getattr(slower, name) for name in CtaEvents.__slots__} | {"load_end": arrived}
    )
    return {
        "kernel_id": "k-traced",
        "grid": 132,
        "cta": 17,
        "disturbance": {"shipped_us": 50.0, "traced_us": 50.5, "ratio": 1.01},
        **overlay(measured, model),
    }
