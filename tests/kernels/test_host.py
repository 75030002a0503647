"""What is said where there is no GPU (the package, the driver or the device is missing), and of how
one is used."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.errors import GpuAbsent
from kernels.host import find_gpu, gpu_use, host_gpu, why_absent


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
    assert why_absent()


@pytest.mark.parametrize("value", ["", "-1", "none-"])
def test_devices_that_are_hidden_are_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml("device"))
    assert "no NVIDIA GPU" in why_absent()


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
