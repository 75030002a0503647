"""What is said where there is no GPU (the package, the driver or the device is missing), and of how
one is used."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.errors import GpuAbsent
from kernels.host import (
    find_gpu,
    gpu_use,
    host_gpu,
    host_gpus,
    visible_devices,
    visible_gpus,
    why_absent,
)


class Nvml:
    """NVML as far as a host without a usable GPU gets."""

    class NVMLError(Exception):
        """What its calls raise."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def nvmlInit(self) -> None:
        if self.missing == "driver":
            raise self.NVMLError("NVML Shared Library Not Found")

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        raise self.NVMLError("Invalid Argument")

    nvmlDeviceGetHandleByUUID = nvmlDeviceGetHandleByIndex


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (None, "nvidia-ml-py is not installed"),
        (Nvml("driver"), "its driver is not to be found here .*--gpus all"),
        (Nvml("device"), "device 0 is not there"),
    ],
)
def test_what_is_missing_is_said(
    nvml: Nvml | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(GpuAbsent, match=words):
        find_gpu()
    assert host_gpu() is None
    assert host_gpus() == ()
    assert why_absent()


@pytest.mark.parametrize("value", ["", "-1", "none-"])
def test_devices_that_are_hidden_are_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml("device"))
    assert "no NVIDIA GPU" in why_absent()


class SeveralNvml(Nvml):
    """Four devices, of which those ``lost`` fell off the bus."""

    NVML_CLOCK_SM = 1

    def __init__(self, *lost: int) -> None:
        super().__init__("")
        self.lost = lost

    def nvmlDeviceGetCount(self) -> int:
        return 4

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if index in self.lost or index >= 4:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return self.nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=2**37)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetClockInfo(self, handle: int, which: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0

    def __getattr__(self, name: str) -> int:
        if name.startswith("nvmlClocksThrottleReason"):
            return 1
        raise AttributeError(name)


@pytest.mark.parametrize(
    ("value", "devices", "found"),
    [
        (None, None, [0, 1, 2, 3]),
        ("2, 0", (2, 0), [2, 0]),
        ("GPU-3,1", ("GPU-3", 1), [3, 1]),
        ("1,-1,2", (1,), [1]),
        ("", (), []),
        ("9", (9,), []),
    ],
)
def test_every_visible_gpu_is_found_in_cudas_order(
    value: str | None,
    devices: tuple[Any, ...] | None,
    found: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_devices(environment) == devices
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, words in environment.items():
        monkeypatch.setenv(name, words)
    monkeypatch.setitem(sys.modules, "pynvml", SeveralNvml())
    assert [gpu.uuid for gpu in host_gpus()] == [f"GPU-{number}" for number in found]


def test_a_gpu_that_is_lost_hides_no_other_and_moves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", SeveralNvml(0, 2))
    assert [gpu.uuid for gpu in host_gpus()] == ["GPU-1", "GPU-3"]
    assert [gpu and gpu.uuid for gpu in visible_gpus()] == [None, "GPU-1", None, "GPU-3"]


class UsedNvml(Nvml):
    """A device whose utilisation, of the last second, is told by what ran in it until ``ended``."""

    NVML_CLOCK_SM = 1

    def __init__(self, ended: float, neighbour: int = 0) -> None:
        super().__init__("")
        self.now, self._ended, self._neighbour = 0.0, ended, neighbour

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def nvmlDeviceGetHandleByUUID(self, index: Any) -> Any:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        ours = round(100 * max(0.0, 1.0 - (self.now - self._ended)))
        return SimpleNamespace(gpu=max(ours, self._neighbour))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[str]:
        return ["ours"]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, which: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0

    def __getattr__(self, name: str) -> int:
        if name.startswith("nvmlClocksThrottleReason"):
            return 1
        raise AttributeError(name)


@pytest.mark.parametrize(("neighbour", "busy"), [(0, 0.0), (40, 0.4)])
def test_what_we_ran_ourselves_before_a_look_is_no_neighbour(
    neighbour: int, busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = UsedNvml(ended=0.0, neighbour=neighbour)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(time, "sleep", nvml.sleep)
    use = gpu_use("GPU-0", own_contexts=1)
    assert (use.busy, use.others, use.highest_clock_mhz) == (busy, 0, 1980)
