"""A device with constants of norm_activation that nobody measured: round numbers, made up."""

from __future__ import annotations

import dataclasses

from solver.device import Constant, DeviceProfile, load_profile
from solver.families import norm_activation as family
from solver.families.norm_activation_cost import CONSTANTS

INVENTED = {
    "launch_us": 2.0,
    "block_start_us": 0.5,
    "last_store_us": 0.6,
    "clock_ghz": 1.98,
    "hbm_bytes_per_us": 4.2e6,
    "hbm_sms_exponent": 0.5,
    "l2_bytes_per_us": 7e6,
    "l2_kept_fraction": 0.7,
    "l1_kept_fraction": 0.3,
    "l1_kept_bulk_fraction": 0.7,
    "l1_passing_weight": 1.5,
    "sm_bytes_per_cycle": 64.0,
    "load_norm": 6.0,
    "memory_latency_us": 0.6,
    "l2_latency_us": 0.25,
    "l1_latency_us": 0.03,
    "load_jitter_us": 0.1,
    "static_imbalance": 0.05,
    "bulk_issue_cycles": 40.0,
    "element_instructions_fp32": 6.0,
    "element_instructions_half": 9.0,
    "layer_instructions": 2.0,
    "stream_instructions": 6.0,
    "degree_instructions": 1.05,
    "degree_streamed_instructions": 1.1,
    "gelu_instructions": 20.0,
    "gelu_tanh_instructions": 12.0,
    "silu_instructions": 8.0,
    "vector_instructions": 3.0,
    "row_instructions": 40.0,
    "batch_cycles": 100.0,
    "batch_streamed_cycles": 120.0,
    "turn_cycles": 35.0,
    "turn_streamed_share": 0.8,
    "turn_shared_fraction": 0.6,
    "row_cycles": 300.0,
    "team_cycles": 120.0,
    "team_bulk_cycles": 250.0,
    "mbarrier_cycles": 150.0,
    "named_cycles": 90.0,
    "refill_cycles": 100.0,
    "overlap_norm": 5.0,
}


def bare(name: str = "h200") -> DeviceProfile:
    """A shipped device of which nothing was measured of the family."""
    device = load_profile(name)
    models = {n: m for n, m in device.models.items() if n != family.NAME}
    return dataclasses.replace(device, models=models)


def invented(name: str = "h200", **changed: float) -> DeviceProfile:
    """A shipped device with the constants above, some of them changed."""
    values = INVENTED | changed
    table = {
        each: Constant(values[each], unit, "derived", "invented for tests")
        for each, unit in CONSTANTS.items()
    }
    device = bare(name)
    return dataclasses.replace(device, models={**device.models, family.NAME: table})
