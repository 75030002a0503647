"""What cuBLAS is asked for: its own account of gemmEx, in numpy, in the library's place."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.cublas as comparison
from kernels.bits import from_float32, to_float32
from kernels.cublas import CublasAbsent, cublas_products
from kernels.inputs import normal
from kernels.placed import OperandSet, place_operands
from solver.problem import LAYOUTS, Matrix, Problem
from tests.kernels.numpy_reference import numpy_product
from tests.kernels.test_checking import at

STREAM = SimpleNamespace(ptr=77)
TYPES = {0: "fp32", 2: "fp16", 14: "bf16"}


class FakeCublas(ModuleType):
    """cublasGemmEx by its manual: column-major, op(A) m×k, op(B) k×n, leading dimensions."""

    CUBLAS_OP_N, CUBLAS_OP_T = 0, 1

    def __init__(self) -> None:
        super().__init__("cublas")
        self.calls = 0

    def setStream(self, handle: Any, stream: int) -> None:
        assert stream == STREAM.ptr

    def getVersion(self, handle: Any) -> int:
        return 130000

    def gemmEx(
        self,
        handle: Any,
        op_a: int,
        op_b: int,
        m: int,
        n: int,
        k: int,
        alpha: int,
        a: int,
        a_type: int,
        lda: int,
        b: int,
        b_type: int,
        ldb: int,
        beta: int,
        c: int,
        c_type: int,
        ldc: int,
        compute: int,
        algorithm: int,
    ) -> None:
        def column_major(address: int, rows: int, columns: int, pitch: int, kind: int) -> Any:
            assert pitch >= rows
            size = 4 if TYPES[kind] == "fp32" else 2
            return at(address, Matrix(columns, rows, pitch, 0, size), across=True)

        left = column_major(a, *((m, k) if op_a == self.CUBLAS_OP_N else (k, m)), lda, a_type)
        right = column_major(b, *((k, n) if op_b == self.CUBLAS_OP_N else (n, k)), ldb, b_type)
        left = left if op_a == self.CUBLAS_OP_N else left.T
        right = right if op_b == self.CUBLAS_OP_N else right.T
        product = numpy_product(left, right.T, TYPES[a_type]).astype(np.float32)
        column_major(c, m, n, ldc, c_type)[...] = from_float32(np, product, TYPES[c_type])
        assert (compute, algorithm) == (68, -1)
        self.calls += 1


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    fake = FakeCublas()
    handle = SimpleNamespace(get_cublas_handle=lambda: 5)
    cupy = SimpleNamespace(cuda=SimpleNamespace(device=handle), __version__="14.0")
    monkeypatch.setattr(comparison, "cp", cupy)
    monkeypatch.setitem(sys.modules, "torch", None)
    libs = ModuleType("cupy_backends.cuda.libs")
    libs.cublas = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    return fake


def filled(problem: Problem, count: int) -> list[OperandSet]:
    sets = [place_operands(np, problem) for _ in range(count)]
    for index, s in enumerate(sets):
        normal(np, problem.m, problem.k, problem.dtype, 3, 2 * index, out=s.a.view)
        normal(np, problem.n, problem.k, problem.dtype, 3, 2 * index + 1, out=s.b.view)
    return sets


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("fp16", "fp32")])
@pytest.mark.parametrize("gap", [0, 3])
def test_cublas_multiplies_the_sets_own_memory(
    cublas: FakeCublas, layout: str, dtype: str, out: str, gap: int
) -> None:
    m, n, k = 13, 21, 34
    problem = Problem(
        m,
        n,
        k,
        dtype,
        layout,
        out,
        lda=(k if layout[0] == "t" else m) + gap,
        ldb=(k if layout[1] == "n" else n) + gap,
        ldc=n + gap,
        a_offset=gap,
        b_offset=gap,
        c_offset=gap,
    )
    sets = filled(problem, 2)
    library, _ = cublas_products(sets, problem, STREAM)
    assert library == "cuBLAS 130000 by CuPy 14.0"
    assert cublas.calls == 2
    for s in sets:
        expected = numpy_product(s.a.view, s.b.view, dtype).astype(np.float32)
        got = to_float32(np, s.c.view, out)
        assert np.array_equal(got, to_float32(np, from_float32(np, expected, out), out))
        assert s.c.surroundings_changed() == 0


def test_an_output_that_cublas_does_not_make_is_said_so(cublas: FakeCublas) -> None:
    problem = Problem(8, 8, 8, "bf16", out_dtype="fp16")
    with pytest.raises(CublasAbsent, match="no fp16 of bf16"):
        cublas_products(filled(problem, 1), problem, STREAM)


def test_a_product_that_no_library_makes_is_told_with_both_reasons(
    cublas: FakeCublas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED\nmore")

    monkeypatch.setattr(cublas, "gemmEx", refuse)
    with pytest.raises(CublasAbsent) as raised:
        cublas_products(filled(Problem(8, 8, 8), 1), Problem(8, 8, 8), STREAM)
    assert str(raised.value).startswith("torch: ")
    assert str(raised.value).endswith("; CuPy: CUBLAS_STATUS_NOT_SUPPORTED")
