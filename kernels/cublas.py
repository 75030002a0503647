"""cuBLAS over the same memory, for comparison: ``torch.mm``, or CuPy's binding without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

from kernels.session import OperandSet

_CUDA_TYPES = {"fp16": 2, "bf16": 14}  # CUDA_R_16F, CUDA_R_16BF
_COMPUTE_32F = 68
_DEFAULT_ALGORITHM = -1


class CublasAbsent(Exception):
    """Neither torch nor a cuBLAS that CuPy can load; the message says so."""


def torch_products(
    sets: Sequence[OperandSet], dtype: str, stream: Any
) -> tuple[str, Callable[[], None]]:
    """Name of the library and a function that enqueues ``torch.mm`` once per set.

    Raises ImportError where torch, or its CUDA build, is not there.
    """
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this torch has no CUDA")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    external = torch.cuda.ExternalStream(stream.ptr)

    def tensor(array: Any) -> Any:
        return torch.from_dlpack(array.view(cp.int16)).view(kind)

    with torch.cuda.stream(external):
        bound = [(tensor(s.a), tensor(s.b).t(), tensor(s.c)) for s in sets]

    def enqueue() -> None:
        with torch.cuda.stream(external):
            for a, b, c in bound:
                torch.mm(a, b, out=c)

    return f"torch.mm {torch.__version__}", enqueue


def cupy_products(
    sets: Sequence[OperandSet], dtype: str, stream: Any
) -> tuple[str, Callable[[], None]]:
    """Name of the library and a function that enqueues cublasGemmEx once per set.

    Raises ImportError where CuPy finds no cuBLAS.
    """
    from cupy_backends.cuda.libs import cublas

    handle = cp.cuda.device.get_cublas_handle()
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    kind = _CUDA_TYPES[dtype]

    def enqueue() -> None:
        cublas.setStream(handle, stream.ptr)
        for s in sets:
            (m, k), n = s.a.shape, s.b.shape[0]
            cublas.gemmEx(
                handle,
                cublas.CUBLAS_OP_T,
                cublas.CUBLAS_OP_N,
                n,
                m,
                k,
                one.ctypes.data,
                s.b.data.ptr,
                kind,
                k,
                s.a.data.ptr,
                kind,
                k,
                zero.ctypes.data,
                s.c.data.ptr,
                kind,
                n,
                _COMPUTE_32F,
                _DEFAULT_ALGORITHM,
            )

    return f"cuBLAS {cublas.getVersion(handle)} by CuPy {cp.__version__}", enqueue


def cublas_products(
    sets: Sequence[OperandSet], dtype: str, stream: Any
) -> tuple[str, Callable[[], None]]:
    """cuBLAS with its default heuristic, by torch where it is there, else by CuPy.

    Returns what it was, and a function that enqueues one product per set on ``stream``.
    Raises CublasAbsent with both reasons where neither works.
    """
    try:
        return torch_products(sets, dtype, stream)
    except ImportError as no_torch:
        try:
            return cupy_products(sets, dtype, stream)
        except ImportError as no_cublas:
            raise CublasAbsent(f"torch: {no_torch}; CuPy: {no_cublas}") from no_cublas
