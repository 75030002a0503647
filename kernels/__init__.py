"""The kernels: CUDA sources, compile, launch, verify and measure; and ``gemm``, a product of
arrays that callers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.calls.gemm import gemm

__all__ = ["gemm"]


def __getattr__(name: str) -> Any:
    # At first use: it imports CuPy, which no other part of this package must have.
    if name == "gemm":
        from kernels.calls.gemm import gemm

        globals()["gemm"] = gemm
        return gemm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
