"""A GPU for ``kernels.gemm``: a driver that notes launches, arrays that are addresses alone."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from kernels import launch as launching
from kernels.calls import arrays, device, scratch
from kernels.calls import gemm as calls
from kernels.calls.arrays import Array
from kernels.calls.gemm import Gemm
from kernels.errors import LaunchFailed
from kernels.launch import LoadedKernel
from kernels.launch_plan import ARGUMENTS, LaunchPlan
from kernels.tensor_map import TENSOR_MAP_BYTES, encode_tensor_map

SUCCESS = driver.CUresult.CUDA_SUCCESS
NO_CONTEXT = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT


@dataclass(frozen=True)
class FakeArray:
    """An array without memory, of the library whose current stream is ``FakeGpu.stream``."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str = "bf16"
    device: int = 0


def matrix(address: int, rows: int, columns: int, kind: str = "bf16") -> FakeArray:
    return FakeArray(address, (rows, columns), (columns, 1), kind)


@dataclass
class Enqueued:
    """One launch as the driver saw it: ``what`` is gemm, copies or scale."""

    what: str
    stream: int
    thread: int
    arguments: Any = None


@dataclass
class FakeGpu:
    """What was enqueued, encoded, compiled and allocated."""

    stream: int = 7
    enqueued: list[Enqueued] = field(default_factory=list)
    encoded: list[int] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    planned: int = 0
    made: int = 0
    capturing: bool = False
    contexts: set[int] = field(default_factory=set)
    lost: bool = False
    pause_s: float = 0.0

    @property
    def blocks(self) -> list[Any]:
        """The argument blocks of all products."""
        return [each.arguments for each in self.enqueued if each.what == "gemm"]


class FakeReader:
    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def key(self, x: FakeArray) -> tuple[Any, ...]:
        return x.address, x.shape, x.strides, x.kind, x.device

    def array(self, x: FakeArray, name: str) -> Array:
        return Array(x.address, x.shape, x.strides, x.kind, x.device)

    def dtype(self, x: FakeArray) -> str | None:
        return x.kind

    def stream(self, x: FakeArray) -> int:
        return self.gpu.stream

    def empty(self, x: FakeArray, rows: int, columns: int, dtype: str) -> FakeArray:
        self.gpu.made += 1
        return matrix((64 + self.gpu.made) << 24, rows, columns, dtype)


class FakeStream:
    """cupy.cuda.ExternalStream, and no context manager: the end of CuPy's forgets ``use``."""

    def __init__(self, gpu: FakeGpu, handle: int) -> None:
        self._gpu = gpu
        self.ptr = handle

    def use(self) -> None:
        self._gpu.stream = self.ptr

    def is_capturing(self) -> bool:
        return self._gpu.capturing


class FakeDevice:
    """cupy.cuda.Device."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class FakeCopies:
    """OperandCopies."""

    gpu: FakeGpu

    def __init__(self, plan: LaunchPlan, *_: int) -> None:
        self._needed = plan.a.copied or plan.b.copied

    def launch(self, stream: Any) -> None:
        if self._needed:
            if threading.get_ident() not in self.gpu.contexts:
                raise LaunchFailed("no context")
            time.sleep(self.gpu.pause_s)
            self.gpu.enqueued.append(Enqueued("copies", stream.ptr, threading.get_ident()))
            time.sleep(self.gpu.pause_s)


class Memory:
    """A CuPy array of bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held = np.zeros(size + 512, np.uint8)
        start = self._held.ctypes.data
        self.data = SimpleNamespace(ptr=start + -start % 512)


def fake_gpu(monkeypatch: pytest.MonkeyPatch, name: bytes = b"NVIDIA H200") -> tuple[Gemm, FakeGpu]:
    """A fresh ``Gemm`` on such a GPU."""
    gpu = FakeGpu()
    ready = threading.Lock()

    def launch(config: Any, function: Any, pointers: int, extra: Any) -> tuple[Any]:
        if gpu.lost or threading.get_ident() not in gpu.contexts:
            return (NO_CONTEXT,)
        at = (ctypes.c_void_p * 4).from_address(pointers)[3]
        block = np.frombuffer(ctypes.string_at(at, ARGUMENTS.itemsize), ARGUMENTS)[0]
        gpu.enqueued.append(Enqueued("gemm", int(config.hStream), threading.get_ident(), block))
        return (SUCCESS,)

    def encode(*given: Any) -> tuple[Any, ...]:
        if threading.get_ident() not in gpu.contexts:
            return (NO_CONTEXT,)
        gpu.encoded.append(given[2])
        held = (ctypes.c_uint8 * TENSOR_MAP_BYTES)()
        return SUCCESS, SimpleNamespace(getPtr=lambda: ctypes.addressof(held), held=held)

    def load(compiled: Any) -> LoadedKernel:
        with ready:
            gpu.compiled.append(compiled.key)
        return LoadedKernel(compiled, object())

    def free(_: int) -> None:
        if gpu.capturing:
            raise LaunchFailed("cudaErrorStreamCaptureUnsupported")
        gpu.contexts.add(threading.get_ident())

    cuda = SimpleNamespace(
        Device=FakeDevice,
        ExternalStream=lambda handle, index: FakeStream(gpu, handle),
        get_current_stream=lambda: FakeStream(gpu, gpu.stream),
        runtime=SimpleNamespace(
            free=free,
            getDeviceProperties=lambda _: {"name": name, "multiProcessorCount": 132},
        ),
    )
    cupy = SimpleNamespace(
        cuda=cuda,
        uint8=np.uint8,
        empty=lambda size, _: Memory(size),
        zeros=lambda size, _: Memory(size),
    )
    for module in (calls, device, scratch):
        monkeypatch.setattr(module, "cp", cupy)
    FakeCopies.gpu = gpu
    monkeypatch.setattr(launching, "OperandCopies", FakeCopies)
    monkeypatch.setattr(launching.LoadedKernel, "load", load)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", encode)
    monkeypatch.setattr(
        driver, "cuCtxGetCurrent", lambda: (SUCCESS, int(threading.get_ident() in gpu.contexts))
    )
    monkeypatch.setattr(driver, "cuGetErrorString", lambda _: (SUCCESS, b"no context"))
    plan = device.plan_launch

    def planned(*given: Any) -> LaunchPlan:
        gpu.planned += 1
        return plan(*given)

    monkeypatch.setattr(device, "plan_launch", planned)
    monkeypatch.setattr(
        calls,
        "scale",
        lambda operands, c, beta, stream: gpu.enqueued.append(
            Enqueued("scale", stream.ptr, threading.get_ident(), (operands, c, beta))
        ),
    )
    monkeypatch.setitem(arrays._READERS, FakeArray, FakeReader(gpu))
    monkeypatch.delenv(calls.TABLE_VARIABLE, raising=False)
    encode_tensor_map.cache_clear()
    gpu.contexts.add(threading.get_ident())
    return Gemm(), gpu
