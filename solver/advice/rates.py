"""What a device moves and computes, for figures that were not measured."""

from __future__ import annotations

from dataclasses import dataclass

from solver.advice.thresholds import L2_BANDWIDTH, LOADED_LATENCY, REACHED_BANDWIDTH
from solver.device import DeviceProfile
from solver.errors import Unsupported
from solver.occupancy import SmLimits, sm_limits

FP32_TFLOPS = {
    "a100": 19.5,
    "a6000": 38.7,
    "h100_sxm": 67.0,
    "h20": 44.0,
    "h200": 67.0,
    "h200_datasheet": 67.0,
    "l40s": 91.6,
    "rtx4090": 82.6,
}
"""Peak of the general pipes in fp32, a multiply-add counted as two: NVIDIA's datasheets."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes and operations per us of the whole device, a loaded SM's latency, what an SM holds."""

    memory_bytes_per_us: float
    l2_bytes_per_us: float
    flops_per_us: float
    tensor_flops_per_us: float
    latency_us: float
    sms: int
    sm: SmLimits


def rates_of(device: DeviceProfile) -> Rates:
    """A device's rates. Raises Unsupported for a device whose SMs work otherwise."""
    if device.name not in FP32_TFLOPS:
        raise Unsupported("device", f"advice is for {', '.join(FP32_TFLOPS)}, got {device.name}")
    reached = device.limits["memory_bytes_per_us"].value * REACHED_BANDWIDTH.value
    return Rates(
        memory_bytes_per_us=reached,
        l2_bytes_per_us=reached * L2_BANDWIDTH.value,
        flops_per_us=FP32_TFLOPS[device.name] * 1e6,
        tensor_flops_per_us=device.limits["tensor_tflops"].value * 1e6,
        latency_us=device.constant("paper", "dma_startup_us") * LOADED_LATENCY.value,
        sms=device.limit("sms"),
        sm=sm_limits(device),
    )
