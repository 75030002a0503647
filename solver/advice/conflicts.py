"""Figures of a launch held against one another: what can't be so is told, not advised on."""

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


def check_times(figures: KernelFigures, rates: Rates) -> None:
    """Raise InvalidInput for a ``load_us`` in which the bytes can't have been moved, and for a
    ``time_us`` in which the launch can't have done what the other figures say, naming the one that
    needs most."""
    least = least_times(figures, rates)
    _check("load_us", figures.load_us, BYTES, least.get(BYTES, 0.0))
    name = max(least, key=lambda each: least[each])
    _check("time_us", figures.time_us, name, least[name])


def least_times(figures: KernelFigures, rates: Rates) -> dict[str, float]:
    """What the launch takes at least, in µs, by each figure alone."""
    share = rates.working_sms(figures.grid_blocks) / rates.sms
    flops_us = (figures.flops or 0.0) / rates.flops_per_us
    tensor_us = (figures.tensor_flops or 0.0) / rates.tensor_flops_per_us
    least = {
        "load_us": figures.load_us or 0.0,
        "compute_us": figures.compute_us or 0.0,
        "flops": flops_us / (MOST_FLOPS * share),
        "tensor_flops": tensor_us / (MOST_TENSOR_FLOPS * share),
    }
    if figures.data_in != L2:
        rate = min(rates.memory_peak_bytes_per_us, share * rates.sms * rates.sm_bytes_per_us)
        least[BYTES] = figures.moved_bytes / rate
    return least


def _check(field: str, given_us: float | None, name: str, least_us: float) -> None:
    if given_us is not None and given_us * NOISE < least_us:
        hint = "; what the L2 serves has data_in l2" if name == BYTES else ""
        raise InvalidInput(
            field,
            f"must be at least {least_us:.4g}, by {name} on this device{hint}; got {given_us:g}",
        )
