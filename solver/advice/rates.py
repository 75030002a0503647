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
FP32_LANES = {"sm_80": 64}
"""Multiply-adds of an SM in a cycle, where they are not 128 (CUDA C++ programming guide)."""
SM_BYTES_PER_CYCLE = 64
"""What an SM takes of the L2 in a cycle at most (NVIDIA A100 whitepaper; one H200: 64 to 69)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes and operations per us of the whole device, a loaded SM's latency, what an SM holds.

    ``memory_peak_bytes_per_us`` is the datasheet's, which no launch passes;
    ``sm_bytes_per_us`` what one SM moves at most.
    """

    memory_peak_bytes_per_us: float
    memory_bytes_per_us: float
    sm_bytes_per_us: float
    l2_bytes_per_us: float
    flops_per_us: float
    tensor_flops_per_us: float
    latency_us: float
    sms: int
    sm: SmLimits

    def working_sms(self, blocks: int) -> int:
        """SMs that have one of so many blocks: the others neither load nor compute."""
        return min(self.sms, blocks)


def rates_of(device: DeviceProfile) -> Rates:
    """A device's rates. Raises Unsupported for a device whose SMs work otherwise."""
    if device.name not in FP32_TFLOPS:
        raise Unsupported("device", f"advice is for {', '.join(FP32_TFLOPS)}, got {device.name}")
    peak, sms = device.limits["memory_bytes_per_us"].value, device.limit("sms")
    reached = peak * REACHED_BANDWIDTH.value
    flops_per_us = FP32_TFLOPS[device.name] * 1e6
    cycles_per_us = flops_per_us / (2 * sms * FP32_LANES.get(device.arch, 128))
    return Rates(
        memory_peak_bytes_per_us=peak,
        sm_bytes_per_us=SM_BYTES_PER_CYCLE * cycles_per_us,
        memory_bytes_per_us=reached,
        l2_bytes_per_us=reached * L2_BANDWIDTH.value,
        flops_per_us=flops_per_us,
        tensor_flops_per_us=device.limits["tensor_tflops"].value * 1e6,
        latency_us=device.constant("paper", "dma_startup_us") * LOADED_LATENCY.value,
        sms=sms,
        sm=sm_limits(device),
    )
