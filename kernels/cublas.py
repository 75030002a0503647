"""cuBLAS over the same memory, for comparison: ``torch.mm``, or CuPy's binding without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

from kernels.placed import OperandSet, Placed
from solver.problem import Problem

_CUDA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
_TORCH_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_COMPUTE_32F = 68
_DEFAULT_ALGORITHM = -1

Products = tuple[str, Callable[[], None]]
"""The library's name, and a function that enqueues one product per set."""


class CublasAbsent(Exception):
    """No cuBLAS product to compare with; the message says why."""


def torch_tensor(placed: Placed, dtype: str) -> Any:
    """A torch tensor over an operand's own memory, as the product sees it."""
    import torch

    signed = cp.int32 if placed.matrix.element_bytes == 4 else cp.int16
    kind = getattr(torch, _TORCH_TYPES[dtype])
    return torch.from_dlpack(placed.view.view(signed)).view(kind)


def torch_products(sets: Sequence[OperandSet], problem: Problem, stream: Any) -> Products:
    """``torch.mm`` of the sets' own memory, strides and all.

    Raises ImportError where torch, or its CUDA build, is not there, TypeError where it is too
    old for an output of another type than the inputs.
    """
    import torch

    if not torch.cuda.is_available():
        raise ImportError("this torch has no CUDA")
    external = torch.cuda.ExternalStream(stream.ptr)
    out_type = getattr(torch, _TORCH_TYPES[problem.out])
    options = {} if problem.out == problem.dtype else {"out_dtype": out_type}

    with torch.cuda.stream(external):
        bound = [
            (
                torch_tensor(s.a, problem.dtype),
                torch_tensor(s.b, problem.dtype).t(),
                torch_tensor(s.c, problem.out),
            )
            for s in sets
        ]

    def enqueue() -> None:
        with torch.cuda.stream(external):
            for a, b, c in bound:
                torch.mm(a, b, out=c, **options)

    return f"torch.mm {torch.__version__}", enqueue


def cupy_products(sets: Sequence[OperandSet], problem: Problem, stream: Any) -> Products:
    """cublasGemmEx of the sets' own memory. Raises ImportError where CuPy finds no cuBLAS."""
    from cupy_backends.cuda.libs import cublas

    handle = cp.cuda.device.get_cublas_handle()
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    # Column-major, C is Cᵀ = Bᵀ·Aᵀ, and so is each operand of the lines that memory has: what
    # is contiguous along k is k×n (k×m for A).
    op_b = cublas.CUBLAS_OP_T if problem.b_is_k_major else cublas.CUBLAS_OP_N
    op_a = cublas.CUBLAS_OP_N if problem.a_is_k_major else cublas.CUBLAS_OP_T
    kind, out_kind = _CUDA_TYPES[problem.dtype], _CUDA_TYPES[problem.out]

    def enqueue() -> None:
        cublas.setStream(handle, stream.ptr)
        for s in sets:
            cublas.gemmEx(
                handle,
                op_b,
                op_a,
                problem.n,
                problem.m,
                problem.k,
                one.ctypes.data,
                s.b.address,
                kind,
                s.b.matrix.pitch,
                s.a.address,
                kind,
                s.a.matrix.pitch,
                zero.ctypes.data,
                s.c.address,
                out_kind,
                s.c.matrix.pitch,
                _COMPUTE_32F,
                _DEFAULT_ALGORITHM,
            )

    return f"cuBLAS {cublas.getVersion(handle)} by CuPy {cp.__version__}", enqueue


def cublas_products(sets: Sequence[OperandSet], problem: Problem, stream: Any) -> Products:
    """cuBLAS with its default heuristic, by torch where it can, else by CuPy.

    Each set's product is enqueued once, to see that the library takes it. Raises CublasAbsent
    with both reasons where neither does.
    """
    if problem.out not in (problem.dtype, "fp32"):
        raise CublasAbsent(f"cuBLAS makes no {problem.out} of {problem.dtype} inputs")
    reasons = []
    for name, products in (("torch", torch_products), ("CuPy", cupy_products)):
        try:
            library, enqueue = products(sets, problem, stream)
            enqueue()
        except (ImportError, TypeError, RuntimeError) as error:
            reasons.append(f"{name}: {_first_line(error)}")
        else:
            return library, enqueue
    raise CublasAbsent("; ".join(reasons))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
