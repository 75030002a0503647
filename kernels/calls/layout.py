"""From three arrays to the product that the kernel knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernels.calls.arrays import BITS, Array
from solver.errors import InvalidProblem
from solver.limits import check_choice
from solver.problem import ELEMENT_BYTES, OUT_BYTES, VECTOR_BYTES

_BYTES = {**ELEMENT_BYTES, **OUT_BYTES}


@dataclass(frozen=True, slots=True)
class Product:
    """C = A·B of these extents: addresses of the first elements, and ``fields``, those of a
    Problem but for m, n and k. Extents may be zero."""

    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    fields: dict[str, Any]


def product_of(a: Array, b: Array, out: Array, dtype: str | None, out_dtype: str | None) -> Product:
    """The product of arrays; one whose ``out`` lies by columns is that of the transposed arrays.

    ``dtype`` and ``out_dtype`` say what arrays of bits hold. Raises InvalidProblem, naming the
    argument, for what the kernel can't take.
    """
    for name, array in (("a", a), ("b", b), ("out", out)):
        if len(array.shape) != 2:
            raise InvalidProblem(
                name, f"must be a matrix, got {len(array.shape)} dimensions {array.shape}"
            )
        if array.device != a.device:
            raise InvalidProblem(
                name, f"must be on a's device {a.device}, got device {array.device}"
            )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise InvalidProblem("b", f"must have a's {k} columns as rows, got shape {b.shape}")
    if out.shape != (m, n):
        raise InvalidProblem("out", f"must be of shape {(m, n)}, got {out.shape}")
    inputs, output = input_type(a, b, dtype), output_type(a, b, out, dtype, out_dtype)
    a, b = replace(a, dtype=inputs), replace(b, dtype=inputs)
    out = replace(out, dtype=output)
    names = ("a", "b")
    if 0 not in (m, n) and not _by_rows(out) and _by_rows(transposed(out)):
        a, b, out = transposed(b), transposed(a), transposed(out)
        m, n = n, m
        names = ("b", "a")
    if 0 in (m, n, k):
        a = b = replace(a, shape=(1, 1), strides=(1, 1))
    return _row_major(m, n, k, a, b, out, names)


def input_type(a: Array, b: Array, dtype: str | None) -> str:
    """The type of A's and B's elements."""
    if dtype is not None:
        check_choice("dtype", dtype, tuple(ELEMENT_BYTES), InvalidProblem)
    kinds = {array.dtype for array in (a, b)} - {BITS}
    if dtype is not None:
        kinds.add(dtype)
    if not kinds:
        raise InvalidProblem("dtype", f"must say what uint16 holds: {' or '.join(ELEMENT_BYTES)}")
    if len(kinds) > 1:
        told = "" if dtype is None else f" and dtype {dtype}"
        raise InvalidProblem("b", f"must be of a's type, got {a.dtype}, {b.dtype}{told}")
    (kind,) = kinds
    if kind not in ELEMENT_BYTES:
        raise InvalidProblem("a", f"must be of {' or '.join(ELEMENT_BYTES)}, got {kind}")
    return kind


def output_type(
    a: Array, b: Array, out: Array | None, dtype: str | None, out_dtype: str | None
) -> str:
    """The type of C's elements; of a new C, or one of bits, A's where nothing else is said."""
    if out_dtype is not None:
        check_choice("out_dtype", out_dtype, tuple(OUT_BYTES), InvalidProblem)
    if out is None or out.dtype == BITS:
        kind = out_dtype or input_type(a, b, dtype)
        if out is not None and OUT_BYTES[kind] != 2:
            raise InvalidProblem("out", f"must be of {kind}, got uint16")
        return kind
    if out_dtype not in (None, out.dtype):
        raise InvalidProblem("out", f"must be of {out_dtype}, got {out.dtype}")
    return out.dtype


def transposed(array: Array) -> Array:
    """The matrix with rows and columns exchanged, the memory as it is."""
    return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])


def _by_rows(array: Array) -> bool:
    """Whether rows are contiguous and do not run into one another."""
    (rows, columns), (row, column) = array.shape, array.strides
    return (columns == 1 or column == 1) and (rows == 1 or row >= columns)


def _row_major(
    m: int, n: int, k: int, a: Array, b: Array, out: Array, names: tuple[str, str]
) -> Product:
    """``names`` are the arguments that A and B came as."""
    letter_a, lda = _lines(names[0], a)
    letter_b, ldb = _lines(names[1], b)
    fields: dict[str, Any] = {
        "dtype": a.dtype,
        "out_dtype": out.dtype,
        "layout": letter_a + letter_b,
        "a_offset": _offset(names[0], a),
        "b_offset": _offset(names[1], b),
    }
    if 0 not in (m, n):
        if not _by_rows(out):
            raise InvalidProblem("out", _no_lines(out))
        fields |= {"c_offset": _offset("out", out), "ldc": _pitch(out)}
        if 0 not in (m, n, k):
            fields |= {"lda": lda, "ldb": ldb}
            for name, array in zip(names, (a, b), strict=True):
                if _overlap(array, out):
                    raise InvalidProblem("out", f"must not overlap {name}")
    return Product(m, n, k, a.address, b.address, out.address, fields)


def _lines(name: str, array: Array) -> tuple[str, int]:
    """A layout's letter and the pitch: t for contiguous rows, n for contiguous columns."""
    if _by_rows(array):
        return "t", _pitch(array)
    if _by_rows(transposed(array)):
        return "n", _pitch(transposed(array))
    raise InvalidProblem(name, _no_lines(array))


def _pitch(array: Array) -> int:
    """Elements from a row to the next; of one row, what it holds."""
    return array.strides[0] if array.shape[0] > 1 else array.shape[1]


def _no_lines(array: Array) -> str:
    return (
        "must have contiguous rows or columns that do not overlap, got shape "
        f"{array.shape} with strides {array.strides}; a copy has them"
    )


def _offset(name: str, array: Array) -> int:
    size = _BYTES[array.dtype]
    offset, odd = divmod(array.address % VECTOR_BYTES, size)
    if odd:
        raise InvalidProblem(
            name, f"must start on a whole element of {size} bytes, got {array.address:#x}"
        )
    return offset


def _overlap(x: Array, out: Array) -> bool:
    """Whether two matrices may share an element: their memory overlaps, and they are not different
    columns of rows of one pitch."""
    lines = (x if _by_rows(x) else transposed(x), out)
    (x_first, x_end), (out_first, out_end) = (_reach(each) for each in lines)
    if x_end <= out_first or out_end <= x_first:
        return False
    pitches = {_pitch(each) * _BYTES[each.dtype] for each in lines if each.shape[0] > 1}
    if len(pitches) != 1:
        return True
    (pitch,) = pitches
    x_bytes, out_bytes = (each.shape[1] * _BYTES[each.dtype] for each in lines)
    apart = (x_first - out_first) % pitch
    return not (apart >= out_bytes and apart + x_bytes <= pitch)


def _reach(rows: Array) -> tuple[int, int]:
    """Addresses of the first byte and behind the last one."""
    elements = (rows.shape[0] - 1) * _pitch(rows) + rows.shape[1]
    return rows.address, rows.address + elements * _BYTES[rows.dtype]
