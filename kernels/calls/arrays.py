"""What callers hand over: arrays of CuPy, PyTorch and anything with DLPack.

Each library has a reader. ``key`` is what a call looks at every time, so it is cheap; ``array`` is
read once for each new key.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from kernels.calls.dlpack import Exchanged, exchange
from solver.errors import InvalidInput, InvalidProblem

BITS = "bits"
"""The type of an array of uint16, which holds 16-bit floating-point numbers of either kind."""

_NUMPY_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "uint16": BITS}
_DLPACK_TYPES = {(2, 16): "fp16", (4, 16): "bf16", (2, 32): "fp32", (1, 16): BITS}
_OTHERS = "float16, bfloat16 and, for out, float32 are taken"


@dataclass(frozen=True, slots=True)
class Array:
    """An array in device memory: ``strides`` in elements, ``dtype`` a type of a problem's or
    BITS, ``device`` CUDA's index."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int


class Reader(Protocol):
    """How one library's arrays are read; ``name`` in errors is the argument's."""

    def key(self, x: Any) -> tuple[Any, ...]:
        """All that decides about a launch, hashable."""

    def array(self, x: Any, name: str) -> Array:
        """The array. Raises InvalidProblem for one that no launch can take."""

    def dtype(self, x: Any) -> str | None:
        """The type of its elements as ``array`` has it; None where no launch takes it."""

    def stream(self, x: Any) -> int:
        """The handle of the caller's stream on the array's device."""

    def empty(self, x: Any, rows: int, columns: int, dtype: str) -> Any:
        """A new matrix of the library's on ``x``'s device; of ``x``'s own type where that is it."""


def current_cupy_stream() -> int:
    """The handle of CuPy's current stream."""
    import cupy as cp

    return int(cp.cuda.get_current_stream().ptr)


class CupyReader:
    """cupy.ndarray."""

    def key(self, x: Any) -> tuple[Any, ...]:
        memory = x.data
        return memory.ptr, x.shape, x.strides, x.dtype.num, memory.device_id

    def array(self, x: Any, name: str) -> Array:
        dtype = self.dtype(x)
        if dtype is None:
            raise InvalidProblem(name, f"must not be of {x.dtype.name}: {_OTHERS}")
        strides = tuple(int(stride) // x.itemsize for stride in x.strides)
        return Array(int(x.data.ptr), tuple(x.shape), strides, dtype, int(x.data.device_id))

    def dtype(self, x: Any) -> str | None:
        return _NUMPY_NAMES.get(x.dtype.name)

    def stream(self, x: Any) -> int:
        return current_cupy_stream()

    def empty(self, x: Any, rows: int, columns: int, dtype: str) -> Any:
        import cupy as cp

        own = self.dtype(x)
        if own == dtype or (own == BITS and dtype != "fp32"):
            return cp.empty((rows, columns), x.dtype)
        kinds = {"fp16": cp.float16, "fp32": cp.float32, "bf16": cp.uint16}
        return cp.empty((rows, columns), kinds[dtype])


class TorchReader:
    """torch.Tensor."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._names = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
        self._types = {name: kind for kind, name in self._names.items()}
        # Inductor's and Triton's way to the handle: a Stream object costs ten times as much.
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._is_grad_enabled = torch.is_grad_enabled

    def key(self, x: Any) -> tuple[Any, ...]:
        if x.requires_grad and self._is_grad_enabled():
            raise InvalidInput(  # of a, b or out: a key is looked at too often to say of which
                "requires_grad",
                "must be false of a, b and out while gradients are recorded, since gemm does not "
                "differentiate: call it under torch.no_grad(), or detach them",
            )
        return x.data_ptr(), x.shape, x.stride(), x.dtype, x.get_device()

    def array(self, x: Any, name: str) -> Array:
        dtype = self.dtype(x)
        if x.layout is not self._torch.strided:
            raise InvalidProblem(name, f"must be a strided tensor, got {x.layout}")
        if not x.is_cuda:
            raise InvalidProblem(name, f"must be in GPU memory, got a tensor on {x.device}")
        if dtype is None:
            raise InvalidProblem(name, f"must not be of {x.dtype}: {_OTHERS}")
        strides = tuple(int(stride) for stride in x.stride())
        return Array(int(x.data_ptr()), tuple(x.shape), strides, dtype, int(x.get_device()))

    def dtype(self, x: Any) -> str | None:
        return self._names.get(x.dtype)

    def stream(self, x: Any) -> int:
        device = x.get_device()
        if device < 0:
            raise InvalidProblem("a", f"must be in GPU memory, got a tensor on {x.device}")
        if self._raw_stream is not None:
            return int(self._raw_stream(device))
        return int(self._torch.cuda.current_stream(device).cuda_stream)

    def empty(self, x: Any, rows: int, columns: int, dtype: str) -> Any:
        return x.new_empty((rows, columns), dtype=self._types[dtype])


class ExchangedReader:
    """What came through DLPack."""

    def key(self, x: Exchanged) -> tuple[Any, ...]:
        return x.address, x.shape, x.strides, x.code, x.bits, x.device

    def array(self, x: Exchanged, name: str) -> Array:
        dtype = self.dtype(x)
        if dtype is None:
            raise InvalidProblem(
                name, f"must not be of DLPack's type ({x.code}, {x.bits} bits): {_OTHERS}"
            )
        return Array(x.address, x.shape, x.strides, dtype, x.device)

    def dtype(self, x: Exchanged) -> str | None:
        return _DLPACK_TYPES.get((x.code, x.bits))

    def stream(self, x: Exchanged) -> int:
        return current_cupy_stream()

    def empty(self, x: Exchanged, rows: int, columns: int, dtype: str) -> Any:
        raise InvalidProblem("out", "must be given where a came through DLPack")


_READERS: dict[type, Reader] = {Exchanged: ExchangedReader()}


def reader_of(x: Any) -> Reader | None:
    """The reader of an array's library; None where DLPack is the only way to it."""
    kind = type(x)
    reader = _READERS.get(kind)
    if reader is None:
        reader = _new_reader(x)
        if reader is not None:
            _READERS[kind] = reader
    return reader


def register(kind: type, reader: Reader) -> None:
    """Read arrays of a type with this reader."""
    _READERS[kind] = reader


def _new_reader(x: Any) -> Reader | None:
    # A library whose array this is has been imported.
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(x, torch.Tensor):
        return TorchReader()
    if cupy is not None and isinstance(x, cupy.ndarray):
        return CupyReader()
    return None


def exchanged(x: Any, name: str, stream: int) -> Any:
    """An array that is read as it is, or else through DLPack for work on a stream.

    Raises InvalidProblem where neither can be done.
    """
    return x if reader_of(x) is not None else exchange(x, name, stream)
