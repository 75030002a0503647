"""What is said where there is no GPU: the package, the driver or the device is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kernels.errors import GpuAbsent
from kernels.host import find_gpu, host_gpu, why_absent


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
