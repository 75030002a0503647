"""How far each constant may be from where a calibration starts: by what it is a constant of.

A few hundred rows decide some constants and hardly touch others. Each has a width, the standard
deviation of its logarithm before anything is measured; what rows don't decide stays where it was.
``docs/new-gpu.md`` says why each is of its kind, and what was measured of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from solver.calibration.rows import FAMILY
from solver.device import DeviceProfile

SCRATCH_WIDTH = 0.7
"""From scratch: a factor of two either way."""
CEILING_WIDTH = 0.15
"""Of what a microbenchmark has just told."""


class Kind(StrEnum):
    """What a constant belongs to."""

    CHOSEN = "chosen"
    """The model's own or an instruction's: never fitted."""
    ARCHITECTURE = "architecture"
    """The SM's and its instructions', in its cycles."""
    PART = "part"
    """This part's memory, L2, clocks and power."""
    SYSTEM = "system"
    """Driver, host and the launch's way."""


WIDTH: Mapping[Kind, float] = MappingProxyType(
    {Kind.ARCHITECTURE: 0.1, Kind.PART: 0.7, Kind.SYSTEM: 0.3}
)

_OF: dict[Kind, str] = {
    Kind.CHOSEN: "mma_macs_per_cycle clock_ghz load_norm",
    Kind.PART: """
        clock_power_tflops clock_memory_tflops clock_l2_tflops clock_settle_us mma_overhead
        l2_bytes_per_us l2_kept_fraction miss_latency_cycles
        hbm_bytes_per_us hbm_sms_exponent hbm_apart_fraction hbm_refetch_fraction hbm_write_fraction
        hbm_split_fraction copy_bytes_per_us""",
    Kind.SYSTEM: """
        launch_us launch_warpgroup_us launch_pair_us launch_cluster_us launch_serial_us
        copy_launch_us""",
    Kind.ARCHITECTURE: """
        clock_power_exponent clock_burst_exponent
        mma_min_n mma_issue_cycles mma_drain_cycles release_lag_fraction
        load_bytes_per_cycle load_floor_cycles load_broken_bytes_per_cycle load_narrow_penalty
        load_latency_cycles load_jitter_cycles
        l2_share_exponent l2_step_exponent l2_step_iterations l2_b_weight
        l2_odd_pitch_penalty l2_narrow_penalty l2_outside_weight
        epilogue_cycles epilogue_chunk_cycles epilogue_unaligned_cycles
        split_epilogue_cycles split_tile_bytes_per_cycle split_reduce_latency_cycles
        split_reduce_bytes_per_cycle split_inner_factor""",
}
KIND: Mapping[str, Kind] = MappingProxyType(
    {name: kind for kind, names in _OF.items() for name in names.split()}
)
FIXED = tuple(name for name, kind in KIND.items() if kind is Kind.CHOSEN)

LEAST: Mapping[str, float] = MappingProxyType({"mma_overhead": 0.968})
"""The least a constant may be: at 0.967 one SM at ``clock_ghz`` has its datasheet's tensor rate."""


def free_names(device: DeviceProfile) -> list[str]:
    """The family's constants that are fitted, in the profile's order."""
    return [name for name in device.models[FAMILY] if name not in FIXED]


def widths(
    device: DeviceProfile, *, scratch: bool, told: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """The width of each constant that is fitted; ``told`` are those a microbenchmark tells."""
    return {
        name: CEILING_WIDTH if name in told else SCRATCH_WIDTH if scratch else WIDTH[KIND[name]]
        for name in free_names(device)
    }
