"""Where a fit of norm_activation begins: round figures, and how far each may be from them.

Rates come from the device's datasheet and its architecture, the rest from what a term means or from
what the compiler makes of it. What rows don't decide stays where it begins.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from solver.device import Constant, DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation_cost import CONSTANTS

MEANING = "a round figure from what the term means"
CODE = "counted in kernels/cuda/norm_*.cuh, rounded"
PUBLIC = "public microbenchmarks of Hopper, rounded"
UNKNOWN = "a round figure of no authority"

CHOSEN = 0.0  # never fitted
NARROW = 0.15
WIDE = 0.7

_ROUND: dict[str, tuple[float, float, str]] = {
    "launch_us": (2.0, 0.3, MEANING),
    "block_start_us": (0.5, WIDE, UNKNOWN),
    "last_store_us": (0.5, 0.3, MEANING),
    "clock_ghz": (1.98, CHOSEN, "measured: no race of the grid ran at another"),
    "hbm_sms_exponent": (0.5, 0.3, MEANING),
    "l2_kept_fraction": (0.5, 0.3, MEANING),
    "l1_kept_fraction": (0.2, WIDE, UNKNOWN),
    "l1_kept_bulk_fraction": (0.5, WIDE, UNKNOWN),
    "l1_passing_weight": (1.0, WIDE, UNKNOWN),
    "sm_bytes_per_cycle": (64.0, 0.3, PUBLIC),
    "load_norm": (6.0, CHOSEN, "how sharply the slowest part of a load decides"),
    "memory_latency_us": (0.6, 0.3, PUBLIC),
    "l2_latency_us": (0.25, 0.3, PUBLIC),
    "l1_latency_us": (0.03, WIDE, PUBLIC),
    "load_jitter_us": (0.1, WIDE, UNKNOWN),
    "static_imbalance": (0.05, WIDE, UNKNOWN),
    "bulk_issue_cycles": (40.0, WIDE, UNKNOWN),
    "element_instructions_fp32": (6.0, 0.3, CODE),
    "element_instructions_half": (9.0, 0.3, CODE),
    "layer_instructions": (2.0, 0.3, CODE),
    "stream_instructions": (6.0, 0.3, CODE),
    "degree_instructions": (1.05, NARROW, CODE),
    "degree_streamed_instructions": (1.05, NARROW, CODE),
    "gelu_instructions": (20.0, WIDE, UNKNOWN),
    "gelu_tanh_instructions": (12.0, WIDE, UNKNOWN),
    "silu_instructions": (8.0, WIDE, UNKNOWN),
    "vector_instructions": (3.0, WIDE, CODE),
    "row_instructions": (40.0, WIDE, CODE),
    "batch_cycles": (500.0, WIDE, UNKNOWN),
    "batch_streamed_cycles": (300.0, WIDE, UNKNOWN),
    "turn_cycles": (50.0, WIDE, UNKNOWN),
    "turn_streamed_share": (1.0, WIDE, UNKNOWN),
    "turn_shared_fraction": (0.5, WIDE, UNKNOWN),
    "row_cycles": (300.0, WIDE, MEANING),
    "team_cycles": (100.0, WIDE, MEANING),
    "team_bulk_cycles": (300.0, WIDE, MEANING),
    "mbarrier_cycles": (300.0, WIDE, UNKNOWN),
    "named_cycles": (300.0, WIDE, UNKNOWN),
    "refill_cycles": (300.0, WIDE, UNKNOWN),
    "overlap_norm": (4.0, 0.5, "how sharply the longer of loads and math decides"),
}
"""Value, standard deviation of its logarithm before any row is seen, and why."""
MEMORY_PART = 0.88
"""Of the datasheet's bandwidth that a copy reaches."""
L2_OF_MEMORY = 1.5
"""What the L2 gives against the memory, in copies that fit in it."""


@dataclass(frozen=True, slots=True)
class NormStart:
    """A device with constants to begin from, and the width of each that is fitted."""

    device: DeviceProfile
    widths: dict[str, float]


def norm_start(device: DeviceProfile) -> NormStart:
    """The device with constants to begin from: those that it has, the others from above."""
    memory = device.limits["memory_bytes_per_us"].value
    known = {
        **_ROUND,
        "hbm_bytes_per_us": (MEMORY_PART * memory, NARROW, "the datasheet's, times 0.88"),
        "l2_bytes_per_us": (L2_OF_MEMORY * memory, 0.3, "1.5 of the memory's: " + UNKNOWN),
    }
    table = {
        name: Constant(known[name][0], unit, "derived", known[name][2])
        for name, unit in CONSTANTS.items()
    }
    has = device.models.get(family.NAME, {})
    table |= {name: has[name] for name in CONSTANTS if name in has}
    return NormStart(
        dataclasses.replace(device, models={**device.models, family.NAME: table}),
        {name: known[name][1] for name in CONSTANTS if known[name][1] != CHOSEN},
    )
