"""What cuBLASLt is asked for: its own account of a matmul, in numpy, in the library's place."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.cublaslt as lt
from kernels.bits import from_float32, to_float32
from kernels.cublaslt import (
    ALGORITHMS,
    Algorithm,
    HeuristicResult,
    Library,
    alignment,
    loaded_path,
    lt_candidates,
    lt_product,
)
from kernels.rival import RivalAbsent
from solver.problem import LAYOUTS, Matrix, Problem
from tests.kernels.numpy_reference import numpy_product
from tests.kernels.test_checking import at
from tests.kernels.test_cublas import filled

STREAM = SimpleNamespace(ptr=77)
TYPES = {0: "fp32", 2: "fp16", 14: "bf16"}
HANDLE = ctypes.c_void_p(5)


class FakeLt:
    """cuBLASLt by its manual: descriptors, and a matmul of column-major matrices."""

    def __init__(self, named: int = ALGORITHMS, states: tuple[int, ...] = ()) -> None:
        self.live: dict[int, Any] = {}
        self.ran: list[int] = []
        self.preferred: dict[int, int] = {}
        self._named = named
        self._states = states
        for name in lt._ARGUMENTS:
            method = getattr(self, f"_{name.removeprefix('cublasLt')}", self._destroy)
            setattr(self, name, self._function(method))
        self.cublasLtGetVersion = self._function(lambda: 130101)

    @staticmethod
    def _function(method: Any) -> Any:
        return lambda *arguments: method(*arguments)

    def _create(self, out: Any, what: Any) -> int:
        out._obj.value = len(self.live) + 1000
        self.live[out._obj.value] = what
        return 0

    def _destroy(self, made: Any) -> int:
        del self.live[made.value]
        return 0

    def _Create(self, out: Any) -> int:
        return self._create(out, "handle")

    def _MatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        assert (compute, scale) == (68, 0)
        return self._create(out, {})

    def _MatmulDescSetAttribute(self, made: Any, name: int, value: Any, size: int) -> int:
        assert size == 4
        self.live[made.value][name] = value._obj.value
        return 0

    def _MatrixLayoutCreate(self, out: Any, kind: int, rows: int, columns: int, ld: int) -> int:
        assert ld >= rows
        return self._create(out, (TYPES[kind], rows, columns, ld))

    def _MatmulPreferenceCreate(self, out: Any) -> int:
        return self._create(out, "preference")

    def _MatmulPreferenceSetAttribute(self, made: Any, name: int, value: Any, size: int) -> int:
        assert size == (8 if name == 1 else 4)
        self.preferred[name] = value._obj.value
        return 0

    def _MatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        handle, _, _, _, c, d, _, count, results, found = arguments
        assert handle is HANDLE
        assert c is d
        assert count == ALGORITHMS
        for index in range(self._named):
            results._obj[index].algorithm.data[0] = index
            results._obj[index].state = self._states[index] if self._states else 0
        found._obj.value = self._named
        return 0

    def _Matmul(self, *arguments: Any) -> int:
        (_, made, alpha, a, a_layout, b, b_layout, beta, c, c_layout) = arguments[:10]
        d, d_layout, algorithm, workspace, need, stream = arguments[10:]
        assert (alpha._obj.value, beta._obj.value) == (1.0, 0.0)
        assert (c, c_layout, workspace, need, stream) == (d, d_layout, None, 0, STREAM.ptr)
        if not self.ran and self._states and self._states[0] == -1:
            return 15
        self.ran.append(algorithm._obj.data[0])

        def operand(address: int, layout: Any, transposed: bool) -> tuple[Any, str]:
            kind, rows, columns, pitch = self.live[layout.value]
            matrix = Matrix(columns, rows, pitch, 0, 4 if kind == "fp32" else 2)
            view = at(address, matrix, across=True)
            return (view.T if transposed else view), kind

        ops = self.live[made.value]
        left, kind = operand(a, a_layout, bool(ops[3]))
        right, _ = operand(b, b_layout, bool(ops[4]))
        out, out_kind = operand(d, d_layout, False)
        product = numpy_product(left, right.T, kind).astype(np.float32)
        out[...] = from_float32(np, product, out_kind)
        return 0


def test_the_structures_are_as_large_as_the_librarys() -> None:
    assert ctypes.sizeof(Algorithm) == 64
    assert ctypes.sizeof(HeuristicResult) == 96
    offsets = [getattr(HeuristicResult, name).offset for name, _ in HeuristicResult._fields_]
    assert offsets == [0, 64, 72, 76, 80]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("fp16", "fp32")])
@pytest.mark.parametrize("gap", [0, 3])
def test_an_algorithm_multiplies_the_sets_own_memory(
    layout: str, dtype: str, out: str, gap: int
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
    fake = FakeLt()
    with lt_product(problem, sets, Library(fake), HANDLE) as product:
        assert len(product.algorithms) == 8
        product.products(product.algorithms[3], sets, STREAM)()
    assert fake.ran == [3, 3]
    assert fake.live == {}
    for s in sets:
        expected = numpy_product(s.a.view, s.b.view, dtype).astype(np.float32)
        got = to_float32(np, s.c.view, out)
        assert np.array_equal(got, to_float32(np, from_float32(np, expected, out), out))
        assert s.c.surroundings_changed() == 0


def test_the_heuristic_is_told_the_workspace_and_how_the_memory_is_aligned() -> None:
    problem = Problem(16, 16, 16, b_offset=4, c_offset=1)
    fake = FakeLt()
    with lt_product(problem, filled(problem, 3), Library(fake), HANDLE):
        pass
    assert fake.preferred[1] == 32 << 20
    assert fake.preferred[5] == 8  # cuBLASLt's A is our B
    assert fake.preferred[6] >= 16
    assert fake.preferred[7] == fake.preferred[8] == 2


@pytest.mark.parametrize(
    ("addresses", "expected"), [([512, 1024], 256), ([512, 16], 16), ([6], 2), ([7, 8], 1)]
)
def test_an_alignment_divides_every_address(addresses: list[int], expected: int) -> None:
    assert alignment(addresses) == expected


def test_algorithms_that_the_heuristic_takes_back_are_left_out() -> None:
    problem = Problem(8, 8, 8)
    with lt_product(problem, filled(problem, 1), Library(FakeLt(3, (0, 15, 0))), HANDLE) as product:
        assert [each.algorithm.data[0] for each in product.algorithms] == [0, 2]


def test_a_product_without_an_algorithm_is_said_so_and_nothing_is_left() -> None:
    problem = Problem(8, 8, 8)
    fake = FakeLt(0)
    with (
        pytest.raises(RivalAbsent, match="names no algorithm"),
        lt_product(problem, filled(problem, 1), Library(fake), HANDLE),
    ):
        pass
    assert fake.live == {}


def test_candidates_are_in_the_heuristics_order(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(8, 8, 8)
    made = Library(FakeLt(4))
    monkeypatch.setattr(lt, "library", lambda: made)
    monkeypatch.setattr(lt, "_handle", lambda: HANDLE)
    sets, session = filled(problem, 1), SimpleNamespace(stream=STREAM)
    with lt_candidates(problem, sets, session) as candidates:
        assert [each.how["place"] for each in candidates] == [1, 2, 3, 4]
        assert candidates[0].how["cublaslt"] == 130101
        candidates[2].products(sets)()
    with (
        pytest.raises(RivalAbsent, match="no fp16 of bf16"),
        lt_candidates(Problem(8, 8, 8, out_dtype="fp16"), sets, session),
    ):
        pass


def test_an_algorithm_that_is_refused_says_so() -> None:
    problem = Problem(8, 8, 8)
    sets = filled(problem, 1)
    made = Library(FakeLt(2, (0, 0)))
    with lt_product(problem, sets, made, HANDLE) as product:
        made._functions.cublasLtMatmul = lambda *_: 13
        with pytest.raises(RivalAbsent, match="cublasLtMatmul failed with status 13"):
            product.enqueue(product.algorithms[0], sets[0], STREAM)


def test_the_library_that_is_loaded_is_found() -> None:
    maps = (
        "7f00-7f01 r--p 00000000 fd:00 1    /usr/lib/libc.so.6\n"
        "7f02-7f03 r-xp 00000000 fd:00 2    /opt/a b/lib/libcublasLt.so.13\n"
        "7f04-7f05 rw-p 00000000 00:00 0\n"
    )
    assert loaded_path(maps) == "/opt/a b/lib/libcublasLt.so.13"
    assert loaded_path("") is None
