"""cuBLASLt by ctypes: the algorithms that its heuristic names for a product, each to be run.

The library is the one that torch or CuPy has loaded, so that it is compared with itself.
Structures and numbers are those of ``cublasLt.h`` (CUDA 12 and 13).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.placed import OperandSet
from kernels.rival import Candidate, RivalAbsent
from kernels.session import Session
from solver.problem import Problem

WORKSPACE_BYTES = 32 << 20  # what torch gives cuBLAS on Hopper
MOST_ALIGNMENT = 256  # bytes; the heuristic looks no further
ALGORITHMS = 8

_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
_COMPUTE_32F = 68
_OP_N, _OP_T = 0, 1
_DESC_TRANSA, _DESC_TRANSB = 3, 4
_PREFER_WORKSPACE = 1
_PREFER_ALIGNMENT = {"a": 5, "b": 6, "c": 7, "d": 8}
_NOT_SUPPORTED = 15


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: 64 opaque bytes."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: 96 bytes."""

    _fields_ = [
        ("algorithm", Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


_P, _INT, _SIZE, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_P,),
    "cublasLtMatmulDescCreate": (_P, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": (_P, _INT, _P, _SIZE),
    "cublasLtMatmulDescDestroy": (_P,),
    "cublasLtMatrixLayoutCreate": (_P, _INT, _U64, _U64, ctypes.c_int64),
    "cublasLtMatrixLayoutDestroy": (_P,),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _INT, _P, _SIZE),
    "cublasLtMatmulPreferenceDestroy": (_P,),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _INT, _P, _P),
    "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _SIZE, _P),
}


class Library:
    """cuBLASLt's functions, each of which raises RivalAbsent where it does not succeed."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions
        for name, arguments in _ARGUMENTS.items():
            function = getattr(functions, name)
            function.argtypes, function.restype = arguments, _INT
        functions.cublasLtGetVersion.argtypes = ()
        functions.cublasLtGetVersion.restype = _SIZE

    @property
    def version(self) -> int:
        """The library's own number."""
        return int(self._functions.cublasLtGetVersion())

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name without the prefix."""
        status = int(getattr(self._functions, f"cublasLt{name}")(*arguments))
        if status == _NOT_SUPPORTED:
            raise RivalAbsent(f"cublasLt{name}: no algorithm for this product")
        if status:
            raise RivalAbsent(f"cublasLt{name} failed with status {status}")


def loaded_path(maps: str) -> str | None:
    """Where the cuBLASLt that a process has loaded lies, by its ``/proc/PID/maps``."""
    for line in maps.splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith("libcublasLt.so"):
            return f"/{path}"
    return None


def _load_cublas() -> list[str]:
    """Have torch, or CuPy where there is no torch, load its cuBLAS; why those that can't do not."""
    reasons = []
    try:
        import torch

        if torch.cuda.is_available():
            torch.cuda.current_blas_handle()
            return []
        reasons.append("torch: has no CUDA")
    except (ImportError, RuntimeError) as error:
        reasons.append(f"torch: {error}")
    try:
        import cupy as cp
        from cupy_backends.cuda.libs import cublas  # noqa: F401

        cp.cuda.device.get_cublas_handle()
        return []
    except (ImportError, RuntimeError) as error:
        reasons.append(f"CuPy: {error}")
    return reasons


@cache
def library() -> Library:
    """The process's cuBLASLt. Raises RivalAbsent where torch and CuPy have none to load."""
    maps = Path("/proc/self/maps")
    path = loaded_path(maps.read_text("utf-8"))
    if path is None:
        reasons = _load_cublas()
        path = loaded_path(maps.read_text("utf-8"))
        if path is None:
            raise RivalAbsent("; ".join(reasons) or "cuBLAS was loaded, and no libcublasLt with it")
    try:
        return Library(ctypes.CDLL(path))
    except (OSError, AttributeError) as error:
        raise RivalAbsent(f"{path}: {error}") from error


@cache
def _handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    library().call("Create", ctypes.byref(handle))
    return handle


@cache
def _workspace() -> Any:
    import cupy as cp

    return cp.empty(WORKSPACE_BYTES, cp.uint8)


def alignment(addresses: Sequence[int]) -> int:
    """The power of two, MOST_ALIGNMENT at most, that divides every address."""
    together = MOST_ALIGNMENT
    for address in addresses:
        together |= address
    return together & -together


@dataclass(frozen=True, slots=True)
class Shape:
    """An operand as cuBLASLt sees it: column-major, ``rows`` × ``columns`` before ``op``."""

    op: int
    rows: int
    columns: int
    pitch: int


def shapes(problem: Problem) -> tuple[Shape, Shape, Shape]:
    """cuBLASLt's A, B and C of a problem.

    C in rows is Cᵀ in columns, and Cᵀ = Bᵀ·Aᵀ, so that B comes first. Lines of memory that run
    along k are columns of k.
    """
    m, n, k = problem.m, problem.n, problem.k
    first = Shape(_OP_T, k, n, problem.b.pitch)
    if not problem.b_is_k_major:
        first = Shape(_OP_N, n, k, problem.b.pitch)
    second = Shape(_OP_N, k, m, problem.a.pitch)
    if not problem.a_is_k_major:
        second = Shape(_OP_T, m, k, problem.a.pitch)
    return first, second, Shape(_OP_N, n, m, problem.c.pitch)


class Product:
    """One problem's descriptors; ``algorithms`` are what the heuristic names, best first."""

    def __init__(
        self,
        lib: Library,
        handle: ctypes.c_void_p,
        description: ctypes.c_void_p,
        layouts: Sequence[ctypes.c_void_p],
        algorithms: Sequence[HeuristicResult],
    ) -> None:
        self._lib = lib
        self._handle = handle
        self._description = description
        self._layouts = layouts
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self.algorithms = tuple(algorithms)

    def enqueue(self, algorithm: HeuristicResult, operands: OperandSet, stream: Any) -> None:
        """Enqueue the product of a set by an algorithm. Raises RivalAbsent where it is refused."""
        first, second, out = self._layouts
        need = algorithm.workspace_bytes
        self._lib.call(
            "Matmul",
            self._handle,
            self._description,
            ctypes.byref(self._one),
            operands.b.address,
            first,
            operands.a.address,
            second,
            ctypes.byref(self._zero),
            operands.c.address,
            out,
            operands.c.address,
            out,
            ctypes.byref(algorithm.algorithm),
            int(_workspace().data.ptr) if need else None,
            need,
            stream.ptr,
        )

    def products(
        self, algorithm: HeuristicResult, sets: Sequence[OperandSet], stream: Any
    ) -> Callable[[], None]:
        """A function that enqueues one product per set by an algorithm."""

        def enqueue() -> None:
            for operands in sets:
                self.enqueue(algorithm, operands, stream)

        return enqueue


def _made(lib: Library, stack: ExitStack, kind: str, *arguments: Any) -> ctypes.c_void_p:
    """A descriptor of a kind, destroyed with the stack."""
    made = ctypes.c_void_p()
    lib.call(f"{kind}Create", ctypes.byref(made), *arguments)
    stack.callback(lib.call, f"{kind}Destroy", made)
    return made


def _set(lib: Library, kind: str, made: ctypes.c_void_p, attribute: int, value: Any) -> None:
    lib.call(f"{kind}SetAttribute", made, attribute, ctypes.byref(value), ctypes.sizeof(value))


@contextmanager
def lt_product(
    problem: Problem,
    sets: Sequence[OperandSet],
    lib: Library | None = None,
    handle: ctypes.c_void_p | None = None,
) -> Iterator[Product]:
    """A problem's product with up to ALGORITHMS algorithms for these sets.

    Raises RivalAbsent where there is no library, or no algorithm for the problem.
    """
    lib = library() if lib is None else lib
    handle = _handle() if handle is None else handle
    kind, out_kind = _TYPES[problem.dtype], _TYPES[problem.out]
    with ExitStack() as stack:
        description = _made(lib, stack, "MatmulDesc", _COMPUTE_32F, _TYPES["fp32"])
        first, second, out = shapes(problem)
        for attribute, shape in ((_DESC_TRANSA, first), (_DESC_TRANSB, second)):
            _set(lib, "MatmulDesc", description, attribute, ctypes.c_int32(shape.op))
        layouts = [
            _made(lib, stack, "MatrixLayout", each, shape.rows, shape.columns, shape.pitch)
            for each, shape in ((kind, first), (kind, second), (out_kind, out))
        ]
        preference = _made(lib, stack, "MatmulPreference")
        room = ctypes.c_uint64(WORKSPACE_BYTES)
        _set(lib, "MatmulPreference", preference, _PREFER_WORKSPACE, room)
        addresses = {
            "a": [s.b.address for s in sets],
            "b": [s.a.address for s in sets],
            "c": [s.c.address for s in sets],
        }
        for name, attribute in _PREFER_ALIGNMENT.items():
            least = ctypes.c_uint32(alignment(addresses["c" if name == "d" else name]))
            _set(lib, "MatmulPreference", preference, attribute, least)
        results = (HeuristicResult * ALGORITHMS)()
        found = ctypes.c_int(0)
        lib.call(
            "MatmulAlgoGetHeuristic",
            handle,
            description,
            *layouts,
            layouts[-1],
            preference,
            ALGORITHMS,
            ctypes.byref(results),
            ctypes.byref(found),
        )
        usable = [result for result in results[: found.value] if result.state == 0]
        if not usable:
            raise RivalAbsent("the heuristic names no algorithm for this product")
        yield Product(lib, handle, description, layouts, usable)


@contextmanager
def lt_candidates(
    problem: Problem, sets: Sequence[OperandSet], session: Session
) -> Iterator[list[Candidate]]:
    """One candidate for each of the first ALGORITHMS algorithms, in the heuristic's order.

    Raises RivalAbsent where there is no library, or no algorithm for the problem.
    """
    if problem.out not in (problem.dtype, "fp32"):
        raise RivalAbsent(f"cuBLASLt makes no {problem.out} of {problem.dtype} inputs")
    with lt_product(problem, sets) as product:

        def candidate(index: int, algorithm: HeuristicResult) -> Candidate:
            def products(some: Sequence[OperandSet]) -> Callable[[], None]:
                return product.products(algorithm, some, session.stream)

            how = {
                "place": index,
                "workspace_bytes": int(algorithm.workspace_bytes),
                "cublaslt": library().version,
            }
            return Candidate(how, products)

        yield [candidate(index, each) for index, each in enumerate(product.algorithms, start=1)]
