"""A launch's time held against its other figures: what can't be so is told, not advised on."""

from __future__ import annotations

from solver.advice.figures import L2, KernelFigures
from solver.advice.rates import Rates
from solver.errors import InvalidInput

BYTES = "read_bytes and written_bytes"
NOISE = 1.1
"""What measured figures may be off against one another, counters of several runs among them."""
MOST_FLOPS = 2.0
"""Over the fp32 peak: packed halves."""
MOST_TENSOR_FLOPS = 4.0
"""Over the peak of 16-bit inputs: sparse ones of 8 bits."""


def check_time(figures: KernelFigures, rates: Rates) -> None:
    """Raise InvalidInput for a ``time_us`` in which the launch can't have done what the other
    figures say, naming the one that needs most."""
    if figures.time_us is None:
        return
    name, least_us = least_time(figures, rates)
    if figures.time_us * NOISE < least_us:
        hint = "; what the L2 serves has data_in l2" if name == BYTES else ""
        raise InvalidInput(
            "time_us",
            f"must be at least {least_us:.4g}, by {name} on this device{hint}; got "
            f"{figures.time_us:g}",
        )


def least_time(figures: KernelFigures, rates: Rates) -> tuple[str, float]:
    """What needs most of a launch's time, and how much of it in µs at the least."""
    least = {
        "load_us": figures.load_us or 0.0,
        "compute_us": figures.compute_us or 0.0,
        "flops": (figures.flops or 0.0) / (MOST_FLOPS * rates.flops_per_us),
        "tensor_flops": (figures.tensor_flops or 0.0)
        / (MOST_TENSOR_FLOPS * rates.tensor_flops_per_us),
    }
    if figures.data_in != L2:
        least[BYTES] = figures.moved_bytes / rates.memory_peak_bytes_per_us
    name = max(least, key=lambda each: least[each])
    return name, least[name]
