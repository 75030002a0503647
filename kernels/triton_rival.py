"""Triton's persistent product over our own input sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from subprocess import SubprocessError
from typing import Any

from kernels.cublas import torch_tensor
from kernels.placed import OperandSet, Placed
from kernels.rival import Candidate, RivalAbsent
from kernels.session import Session
from solver.problem import VECTOR_BYTES, Problem


def why_not(problem: Problem) -> str | None:
    """Why Triton's kernel can't make this product; None where it can."""
    if problem.kernel_layout != "tn":
        return "its kernel takes both operands contiguous in k"
    matrices = {"A": problem.a, "B": problem.b, "C": problem.c}
    for name, matrix in matrices.items():
        pitch_bytes = matrix.pitch * matrix.element_bytes
        if not matrix.aligned or pitch_bytes % VECTOR_BYTES:
            return f"{name} does not lie in steps of {VECTOR_BYTES} bytes, which TMA needs"
    return None


@contextmanager
def triton_candidates(
    problem: Problem, sets: Sequence[OperandSet], session: Session
) -> Iterator[list[Candidate]]:
    """One candidate for each configuration of ``kernels.triton_gemm``.

    Raises RivalAbsent where Triton or torch is not there, or the problem is none for the kernel.
    """
    reason = why_not(problem)
    if reason is not None:
        raise RivalAbsent(reason)
    try:
        import torch
        import triton

        from kernels import triton_gemm
    except ImportError as error:
        raise RivalAbsent(f"not installed: {error}") from error
    if not torch.cuda.is_available():
        raise RivalAbsent("this torch has no CUDA")

    def candidate(config: Any) -> Candidate:
        def products(some: Sequence[OperandSet]) -> Callable[[], None]:
            return _products(config, problem, some, session)

        return Candidate({**config.to_dict(), "triton": triton.__version__}, products)

    yield [candidate(config) for config in triton_gemm.CONFIGS]


def _products(
    config: Any, problem: Problem, sets: Sequence[OperandSet], session: Session
) -> Callable[[], None]:
    """A function that launches one configuration on each set.

    Raises RivalAbsent where Triton can't compile it or the device has no room for it.
    """
    import torch
    from triton.errors import TritonError
    from triton.tools.tensor_descriptor import TensorDescriptor

    from kernels.triton_gemm import GROUP, persistent_gemm

    external = torch.cuda.ExternalStream(session.stream.ptr)
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
    grid = (min(tiles, session.sms),)
    c_box = [config.tile_m, config.tile_n // 2 if config.halves else config.tile_n]
    options = {
        "tile_m": config.tile_m,
        "tile_n": config.tile_n,
        "tile_k": config.tile_k,
        "group": GROUP,
        "halves": config.halves,
        "num_warps": config.warps,
        "num_stages": config.stages,
        "launch_pdl": True,
    }

    def described(placed: Placed, dtype: str, box: list[int]) -> Any:
        matrix = placed.matrix
        base = torch_tensor(placed, dtype)
        return TensorDescriptor(base, [matrix.lines, matrix.length], [matrix.pitch, 1], box)

    def arguments(operands: OperandSet) -> tuple[Any, ...]:
        return (
            described(operands.a, problem.dtype, [config.tile_m, config.tile_k]),
            described(operands.b, problem.dtype, [config.tile_n, config.tile_k]),
            described(operands.c, problem.out, c_box),
            problem.m,
            problem.n,
            problem.k,
        )

    with torch.cuda.stream(external):
        bound = [arguments(operands) for operands in sets]
        try:
            # Compiles and loads, and launches nothing: what goes wrong leaves the device as it was.
            _ = persistent_gemm.warmup(*bound[0], grid=grid, **options).run
        except (TritonError, RuntimeError, AssertionError, OSError, SubprocessError) as error:
            text = (str(error).splitlines() or [""])[0]
            raise RivalAbsent(f"{type(error).__name__}: {text}") from error

    def enqueue() -> None:
        with torch.cuda.stream(external):
            for operands in bound:
                persistent_gemm[grid](*operands, **options)

    return enqueue
