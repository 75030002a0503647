"""What the GPU tests of ``kernels.gemm`` run in a worker process."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.gemm_work import matrices, signs, to_numpy, wait


def _view(array: Any, by_columns: bool, library: str) -> Any:
    """The same values in memory with gaps between lines, off its alignment."""
    rows, columns = array.shape[::-1] if by_columns else array.shape
    if library == "torch":
        import torch

        memory = torch.full((rows, columns + 3), torch.nan, dtype=array.dtype, device=array.device)
    else:
        import cupy as cp

        memory = cp.full((rows, columns + 3), cp.nan, array.dtype)
    view = memory[:, 1 : columns + 1]
    view = view.T if by_columns else view
    view[...] = array
    return view


def wrong_of_views(library: str, extents: tuple[int, int, int], by_columns: tuple[int, ...]) -> int:
    """How many elements of a product of views are wrong."""
    from kernels import gemm

    *operands, wanted = matrices(library, *extents, seed=1)
    a, b, out = (_view(x, bool(c), library) for x, c in zip(operands, by_columns, strict=True))
    assert gemm(a, b, out) is out
    wait()
    return int((to_numpy(out) != wanted).sum())


def wrong_of_scalars(library: str, out_dtype: str | None, scalars: tuple[float, float]) -> int:
    """How many elements of alpha·A·B + beta·C are wrong."""
    import cupy as cp

    from kernels import gemm

    alpha, beta = scalars
    a, b, out, wanted = matrices(library, 96, 160, 64, seed=2)
    start = signs(96, 160, 3) if beta else np.zeros((96, 160), np.float32)
    if beta == 0:
        out = gemm(a, b, alpha=alpha, out_dtype=out_dtype)
    else:
        if library == "torch":
            import torch

            kinds = {"fp16": torch.float16, "fp32": torch.float32, None: torch.bfloat16}
            out = torch.from_numpy(start).cuda().to(kinds[out_dtype])
        else:
            out = cp.asarray(start).astype(cp.float32 if out_dtype == "fp32" else cp.float16)
        gemm(a, b, out, alpha=alpha, beta=beta)
    wait()
    return int((to_numpy(out) != alpha * wanted + beta * start).sum())


def wrong_of_bits() -> int:
    """How many elements of a product of bf16 bits in uint16 are wrong."""
    import cupy as cp

    from kernels import gemm
    from kernels.bits import from_float32, to_float32

    a, b = signs(64, 128, 4), signs(128, 64, 5)
    bits = [from_float32(cp, cp.asarray(x), "bf16") for x in (a, b)]
    out = gemm(*bits, dtype="bf16")
    wait()
    return int((cp.asnumpy(to_float32(cp, out, "bf16")) != a @ b).sum())


class Opaque:
    """An array that nobody knows but through DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__dlpack_device__ = array.__dlpack_device__

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


def wrong_of_dlpack() -> int:
    """How many elements of a product through DLPack are wrong."""
    from kernels import gemm

    a, b, out, wanted = matrices("cupy", 64, 128, 256, seed=6)
    gemm(Opaque(a), Opaque(b), Opaque(out))
    wait()
    return int((to_numpy(out) != wanted).sum())


def wrong_in_a_chain(library: str) -> int:
    """A product in the middle of the library's own work on a stream of its own, again and again."""
    from kernels import gemm

    a, b, out, wanted = matrices(library, 65, 127, 333, seed=7)
    wrong = 0
    if library == "torch":
        import torch

        wait()
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(50):
                scaled = a * (step % 3)
                result = gemm(scaled, b, out) + 1
                wrong += int((result.float().cpu().numpy() != wanted * (step % 3) + 1).sum())
        return wrong
    import cupy as cp

    wait()
    with cp.cuda.Stream(non_blocking=True):
        for step in range(50):
            scaled = a * cp.float16(step % 3)
            result = gemm(scaled, b, out) + cp.float16(1)
            wrong += int((cp.asnumpy(result) != wanted * (step % 3) + 1).sum())
    return wrong


def wrong_of_a_graph() -> int:
    """How many elements are wrong after a product with split-K is replayed on new operands."""
    import cupy as cp

    from bench.gemm_work import SPLIT
    from kernels import gemm

    a, b, out, _ = matrices("cupy", 64, 192, 1024, seed=8)
    stream = cp.cuda.Stream(non_blocking=True)
    wrong = 0
    with stream:
        gemm(a, b, out, config=SPLIT)
        copy = out.copy()  # captured where it has not been called: only its addresses are new
        stream.begin_capture(cp.cuda.runtime.streamCaptureModeGlobal)
        gemm(a, b, copy, config=SPLIT)
        gemm(a, b, out, config=SPLIT)
        graph = stream.end_capture()
        for seed in (9, 10):
            new = signs(64, 1024, seed)
            a[...] = cp.asarray(new).astype(cp.float16)
            out.fill(0)
            graph.launch(stream)
            wanted = new @ cp.asnumpy(b).astype(np.float32)
            wrong += int((cp.asnumpy(out).astype(np.float32) != wanted).sum())
    return wrong


def stream_after_a_call() -> tuple[int, int, int]:
    """The chosen stream, the current one after a product on another, and its wrong elements."""
    import cupy as cp

    from bench.gemm_work import SPLIT
    from kernels import gemm

    a, b, out, wanted = matrices("cupy", 64, 192, 1024, seed=12)
    wait()
    chosen, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    chosen.use()
    try:
        gemm(a, b, out, config=SPLIT, stream=other)
        current = int(cp.cuda.get_current_stream().ptr)
    finally:
        cp.cuda.Stream.null.use()
    wait()
    return int(chosen.ptr), current, int((to_numpy(out) != wanted).sum())


def refusals(library: str) -> list[str]:
    """The arguments that are named where a product is refused."""
    from kernels import gemm
    from solver.errors import InvalidInput

    a, b, out, _ = matrices(library, 64, 64, 64, seed=11)
    named = []
    for arguments in (
        (a[::2, ::2], b[:32], out[:32]),
        (a, b[:32], out),
        (a, b, out[:32]),
        (a, b, a),
    ):
        try:
            gemm(*arguments)
        except InvalidInput as error:
            named.append(error.field)
    return named
