"""Where a calibration from scratch begins: what can be known of a device before it is measured.

Rates come from the device's datasheet and its limits, the rest are round figures: from public
microbenchmarks of the architecture, from what a term means, or one half where it is a fraction of
which nothing is known. None comes from a fit of ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from solver.calibration.prior import LEAST, widths
from solver.calibration.rows import FAMILY, with_constants
from solver.device import Constant, DeviceProfile

MACS_PER_CYCLE = 2048
"""Dense bf16 of one Hopper SM (PTX ISA, wgmma shapes)."""
L2_BYTES_PER_CYCLE = 5120
"""Read by all SMs together: NVIDIA's A100 whitepaper, and no figure says less of Hopper."""

PUBLIC = "public microbenchmarks of Hopper, rounded"
MEANING = "a round figure from what the term means"
UNKNOWN = "a round figure of no authority"
PHYSICS = "dynamic power goes with the cube of the clock"

ROUND: dict[str, tuple[float, str]] = {
    "clock_power_exponent": (0.33, PHYSICS),
    "clock_settle_us": (1000.0, UNKNOWN),
    "clock_burst_exponent": (0.1, UNKNOWN),
    "mma_overhead": (1.0, "the datasheet's rate"),
    "mma_min_n": (32.0, UNKNOWN),
    "mma_issue_cycles": (100.0, UNKNOWN),
    "mma_drain_cycles": (64.0, PUBLIC),
    "load_bytes_per_cycle": (64.0, PUBLIC),
    "load_floor_cycles": (100.0, UNKNOWN),
    "load_broken_bytes_per_cycle": (32.0, "half of load_bytes_per_cycle: two accesses a line"),
    "load_narrow_penalty": (1.0, MEANING),
    "load_latency_cycles": (300.0, PUBLIC),
    "miss_latency_cycles": (300.0, PUBLIC),
    "load_jitter_cycles": (300.0, "as long as the latency itself"),
    "release_lag_fraction": (0.5, MEANING),
    "l2_share_exponent": (0.1, UNKNOWN),
    "l2_step_exponent": (0.1, UNKNOWN),
    "l2_step_iterations": (100.0, UNKNOWN),
    "l2_b_weight": (1.0, MEANING),
    "l2_odd_pitch_penalty": (1.0, MEANING),
    "l2_narrow_penalty": (1.0, MEANING),
    "l2_outside_weight": (1.0, MEANING),
    "l2_kept_fraction": (0.5, MEANING),
    "hbm_sms_exponent": (0.5, MEANING),
    "hbm_apart_fraction": (0.5, MEANING),
    "hbm_refetch_fraction": (1.0, MEANING),
    "hbm_write_fraction": (1.0, MEANING),
    "hbm_split_fraction": (1.0, MEANING),
    "epilogue_cycles": (500.0, UNKNOWN),
    "epilogue_chunk_cycles": (200.0, UNKNOWN),
    "epilogue_unaligned_cycles": (1000.0, UNKNOWN),
    "split_epilogue_cycles": (1000.0, UNKNOWN),
    "split_tile_bytes_per_cycle": (32.0, UNKNOWN),
    "split_reduce_latency_cycles": (500.0, UNKNOWN),
    "split_reduce_bytes_per_cycle": (64.0, PUBLIC),
    "split_inner_factor": (1.0, MEANING),
    "launch_us": (2.0, UNKNOWN),
    "launch_warpgroup_us": (0.1, UNKNOWN),
    "launch_pair_us": (0.2, UNKNOWN),
    "launch_cluster_us": (0.5, UNKNOWN),
    "launch_serial_us": (0.5, UNKNOWN),
    "copy_launch_us": (3.0, UNKNOWN),
}


def from_datasheet(device: DeviceProfile) -> DeviceProfile:
    """The device's profile with every constant of the family as it is known without a measurement.

    Of the profile itself the limits are used, which are the datasheet's and the toolkit's, and the
    units. What is chosen and never fitted (``load_norm``) stays.
    """
    sms = device.limit("sms")
    tflops = float(device.limits["tensor_tflops"].value)
    memory = float(device.limits["memory_bytes_per_us"].value)
    clock_ghz = round(tflops * 1e3 / (2 * MACS_PER_CYCLE * sms), 3)
    sheet = "the datasheet's"
    known: dict[str, tuple[float, str]] = ROUND | {
        "clock_ghz": (clock_ghz, f"at which its SMs give {sheet} tensor_tflops"),
        "mma_macs_per_cycle": (MACS_PER_CYCLE, "PTX ISA wgmma shapes"),
        "clock_power_tflops": (2 * tflops, f"twice {sheet} tensor_tflops: no limit is met at once"),
        "clock_memory_tflops": (tflops, f"{sheet} tensor_tflops: memory draws as much"),
        "clock_l2_tflops": (tflops, f"{sheet} tensor_tflops: the L2 draws as much"),
        "l2_bytes_per_us": (
            L2_BYTES_PER_CYCLE * clock_ghz * 1e3,
            "5,120 B/cycle (A100 whitepaper) at clock_ghz",
        ),
        "hbm_bytes_per_us": (memory, f"{sheet} bandwidth"),
        "copy_bytes_per_us": (memory, f"{sheet} bandwidth"),
    }
    table = {
        name: Constant(known[name][0], constant.unit, "derived", known[name][1])
        if name in known
        else constant
        for name, constant in device.models[FAMILY].items()
    }
    return dataclasses.replace(device, models={**device.models, FAMILY: table})


TOLD_SOURCE = "microbenchmark of this GPU"


def told_by(ceilings: Mapping[str, float], device: DeviceProfile) -> dict[str, float]:
    """The constants that microbenchmarks tell (``kernels.ceilings``), by name.

    The tensor cores' rate is at whatever clock they held: over the datasheet's rate it is
    ``mma_overhead``, whose least is kept.
    """
    overhead = float(device.limits["tensor_tflops"].value) / ceilings["tensor_tflops"]
    return {
        "hbm_bytes_per_us": ceilings["read_gb_per_s"] * 1e3,
        "copy_bytes_per_us": ceilings["copy_gb_per_s"] * 1e3,
        "mma_overhead": max(LEAST["mma_overhead"], overhead),
    }


def with_told(device: DeviceProfile, told: Mapping[str, float]) -> DeviceProfile:
    """The profile that begins where microbenchmarks say."""
    return with_constants(device, told, TOLD_SOURCE)


def with_limits(device: DeviceProfile, limits: Mapping[str, int]) -> DeviceProfile:
    """The profile with limits as they were read off the device."""
    now = {
        name: dataclasses.replace(device.limits[name], value=value)
        for name, value in limits.items()
    }
    return dataclasses.replace(device, limits={**device.limits, **now})


@dataclass(frozen=True, slots=True)
class Start:
    """Where a calibration begins: constants, and how far each may be from there."""

    device: DeviceProfile
    widths: Mapping[str, float]


def start_of(
    present: DeviceProfile,
    limits: Mapping[str, int],
    ceilings: Mapping[str, float],
    *,
    scratch: bool,
) -> Start:
    """The present profile's constants, or, from scratch, what the datasheet and microbenchmarks
    tell; limits are the device's own."""
    device = with_limits(present, limits)
    if not scratch:
        return Start(device, widths(device, scratch=False))
    bare = from_datasheet(device)
    told = told_by(ceilings, bare)
    return Start(with_told(bare, told), widths(bare, scratch=True, told=told))
