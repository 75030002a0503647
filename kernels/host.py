"""The GPU beside us, seen through NVML: no CUDA context is made in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from kernels.errors import GpuAbsent, NoKernelFamily, PowerUnread
from solver.device import device_names, families_of
from solver.families.sm90_gemm import NAME as FAMILY

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"

PROFILE_BY_NAME = {
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100_sxm",
    "NVIDIA H20": "h20",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx4090",
    "NVIDIA RTX A6000": "a6000",
}
"""Names as the driver reports them. Parts of another form factor (H200 NVL, MIG slices) have
other limits and clocks, so only the exact name matches."""

THROTTLE_REASONS = {  # idleness, which NVML counts among them, is none
    "ClocksThrottleReasonApplicationsClocksSetting": "application_clocks",
    "ClocksThrottleReasonSwPowerCap": "power_cap",
    "ClocksThrottleReasonHwSlowdown": "hw_slowdown",
    "ClocksThrottleReasonSyncBoost": "sync_boost",
    "ClocksThrottleReasonSwThermalSlowdown": "sw_thermal",
    "ClocksThrottleReasonHwThermalSlowdown": "hw_thermal",
    "ClocksThrottleReasonHwPowerBrakeSlowdown": "hw_power_brake",
}

USE_LOOKS, USE_POLL_S = 10, 0.15
USE_SETTLE_S = 1.2
"""NVML's utilisation is over the last sixth of a second to a second: what we ourselves ran before a
look is out of it after so long."""


@dataclass(frozen=True, slots=True)
class HostGpu:
    """One GPU as NVML describes it. ``compute_capability`` is (major, minor); the clock is
    None where the device does not report it (a MIG slice)."""

    name: str
    uuid: str
    driver: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    sm_clock_mhz: int | None
    throttle: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The GPU under its own field names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """SM clock, power and throttle reasons (names of ours; empty: none) at one moment."""

    sm_clock_mhz: int | None
    power_w: float | None
    throttle: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What NVML says of a GPU at a moment at which nothing of ours runs on it.

    ``busy`` is its utilisation, 0 to 1; ``others`` how many processes beside ours have a context
    on it; None each where the driver doesn't tell.
    """

    busy: float | None
    others: int | None
    throttle: tuple[str, ...]
    highest_clock_mhz: int | None


def visible_devices(environment: Mapping[str, str]) -> tuple[int | str, ...] | None:
    """CUDA's devices in its order, each an NVML index or a UUID; None where CUDA_VISIBLE_DEVICES
    hides none. What follows an entry that is none of these is hidden too.

    Indices are in PCI order, which workers set for CUDA too.
    """
    value = environment.get(VISIBLE_VARIABLE)
    if value is None:
        return None
    devices: list[int | str] = []
    for entry in map(str.strip, value.split(",")):
        if not entry or entry.startswith("-"):
            break
        devices.append(int(entry) if entry.isdigit() else entry)
    return tuple(devices)


def visible_device(environment: Mapping[str, str]) -> int | str | None:
    """Which GPU CUDA's device 0 is: an NVML index, a UUID, or None where none is visible."""
    devices = visible_devices(environment)
    if devices is None:
        return 0
    return devices[0] if devices else None


@contextmanager
def _nvml() -> Iterator[Any]:
    """NVML, initialised. Raises GpuAbsent where its package or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        raise GpuAbsent(
            "nvidia-ml-py is not installed: install warpwright[gpu] or warpwright[gpu-cuda12]"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise GpuAbsent(
            f"no NVIDIA GPU: its driver is not to be found here ({error}); a container gets the "
            "host's where it is started with --gpus all and the NVIDIA Container Toolkit"
        ) from error
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _handle(pynvml: Any, device: int | str) -> Any:
    if isinstance(device, int):
        return pynvml.nvmlDeviceGetHandleByIndex(device)
    return pynvml.nvmlDeviceGetHandleByUUID(device)


def _sm_clock_mhz(pynvml: Any, handle: Any) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return None


def _throttle(pynvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except pynvml.NVMLError:
        return ("not_reported",)
    return tuple(
        word for name, word in THROTTLE_REASONS.items() if bits & getattr(pynvml, f"nvml{name}")
    )


def find_gpu() -> HostGpu:
    """The GPU that CUDA's device 0 would be. A MIG slice is reported under its own name and memory.

    Raises GpuAbsent, which says what is missing: NVML's package, the driver or a visible device.
    """
    device = visible_device(os.environ)
    if device is None:
        value = os.environ[VISIBLE_VARIABLE]
        raise GpuAbsent(f"no NVIDIA GPU: CUDA_VISIBLE_DEVICES is {value!r}")
    with _nvml() as pynvml:
        try:
            return _described(pynvml, device)
        except pynvml.NVMLError as error:
            raise GpuAbsent(f"no NVIDIA GPU: device {device} is not there ({error})") from error


def _described(pynvml: Any, device: int | str) -> HostGpu:
    handle = _handle(pynvml, device)
    return HostGpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        driver=str(pynvml.nvmlSystemGetDriverVersion()),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        compute_capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        sm_clock_mhz=_sm_clock_mhz(pynvml, handle),
        throttle=_throttle(pynvml, handle),
    )


def host_gpu() -> HostGpu | None:
    """``find_gpu``, or None where there is none."""
    try:
        return find_gpu()
    except GpuAbsent:
        return None


def visible_gpus() -> tuple[HostGpu | None, ...]:
    """Every GPU that CUDA would find here, in its order; None in the place of one that does not
    answer now, so that the others keep their numbers."""
    devices = visible_devices(os.environ)
    found: list[HostGpu | None] = []
    try:
        with _nvml() as pynvml:
            try:
                if devices is None:
                    devices = tuple(range(pynvml.nvmlDeviceGetCount()))
            except pynvml.NVMLError:
                return ()
            for device in devices:
                try:
                    found.append(_described(pynvml, device))
                except pynvml.NVMLError:  # lost
                    found.append(None)
    except GpuAbsent:
        return ()
    return tuple(found)


def host_gpus() -> tuple[HostGpu, ...]:
    """Those of ``visible_gpus`` that answer now."""
    return tuple(gpu for gpu in visible_gpus() if gpu is not None)


def why_absent() -> str:
    """What ``host_gpu`` misses where it finds none."""
    try:
        find_gpu()
    except GpuAbsent as absent:
        return str(absent)
    return "no NVIDIA GPU"


def match_profile(gpu: HostGpu | None) -> str | None:
    """The device profile of this GPU, or None where no shipped profile is of it."""
    return None if gpu is None else _profile_named(gpu.name)


def _profile_named(name: str) -> str | None:
    profile = PROFILE_BY_NAME.get(name)
    return profile if profile in device_names() else None


def require_family(gpu: HostGpu) -> str:
    """The name of this GPU's profile, where the kernel family runs on it.

    Raises NoKernelFamily elsewhere, naming the devices on which it does.
    """
    return family_profile(gpu.name)


def family_profile(name: str) -> str:
    """The name of the profile of a GPU that the driver calls ``name``, as ``require_family``."""
    profile = _profile_named(name)
    if profile is None or FAMILY not in families_of(profile):
        able = [each for each in device_names() if FAMILY in families_of(each)]
        raise NoKernelFamily(f"no kernel family runs on {name}; there is one for {', '.join(able)}")
    return profile


def gpu_use(uuid: str, own_contexts: int, looks: int = USE_LOOKS) -> GpuUse:
    """How a GPU is used now, on which ``own_contexts`` processes of ours have a context and do
    nothing: the highest of so many utilisations, USE_POLL_S apart, from USE_SETTLE_S on. Raises
    GpuAbsent."""
    with _nvml() as pynvml:

        def told(read: Any) -> Any:
            try:
                return read()
            except pynvml.NVMLError:
                return None

        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        busy = []
        time.sleep(USE_SETTLE_S)
        for _ in range(looks):
            time.sleep(USE_POLL_S)
            rates = told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
            if rates is not None:
                busy.append(rates.gpu / 100)
        processes = told(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        clock = told(lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
        return GpuUse(
            busy=max(busy) if busy else None,
            others=None if processes is None else max(0, len(processes) - own_contexts),
            throttle=_throttle(pynvml, handle),
            highest_clock_mhz=None if clock is None else int(clock),
        )


class ClockMonitor:
    """Reads one GPU's clock repeatedly; NVML stays initialised while the object lives."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._pynvml = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> ClockReading:
        """The clock now; power is None where the device does not report it."""
        pynvml, handle = self._pynvml, self._handle
        try:
            power_w = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
        except pynvml.NVMLError:
            power_w = None
        return ClockReading(
            _sm_clock_mhz(pynvml, handle),
            power_w,
            _throttle(pynvml, handle),
        )

    def energy_mj(self) -> int:
        """Millijoules that the GPU has taken since its driver was loaded. Raises PowerUnread."""
        try:
            return int(self._pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._pynvml.NVMLError as error:
            raise PowerUnread(
                f"NVML counts no energy of this GPU ({error}): GPUs from Volta on have a counter, "
                "MIG slices and some virtual GPUs don't"
            ) from error

    def power_limit_w(self) -> float:
        """The power limit that the driver enforces. Raises PowerUnread."""
        try:
            limit_mw = self._pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle)
        except self._pynvml.NVMLError as error:
            raise PowerUnread(f"NVML tells no power limit of this GPU ({error})") from error
        return float(limit_mw) / 1000
