"""PTX integer and predicate arithmetic on rows of values, one per thread; floats are only moved
and compared.

A value is kept as a uint64 whose bits beyond its type's width are zero. Functions here take
arguments of their declared type, signed ones as int64, and may leave bits beyond the width of
the result: the caller cuts them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.uint64]

TYPE_BITS = {"pred": 1} | {f"{kind}{bits}": bits for kind in "bsu" for bits in (16, 32, 64)}
TYPE_BITS["f32"] = 32


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction's input types, result type and function; ``divides`` by its second input."""

    inputs: tuple[str, ...]
    result: str
    function: Callable[..., npt.NDArray[Any]]
    divides: bool = False


def with_sign(values: Values, kind: str) -> npt.NDArray[Any]:
    """The values of a type as int64 where it is signed, as they are where it is not."""
    if kind[0] != "s":
        return values
    unused = np.uint64(64 - TYPE_BITS[kind])
    signed: npt.NDArray[Any] = (values << unused).view(np.int64) >> unused.astype(np.int64)
    return signed


def _divide(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Towards zero; anything where the divisor is zero, which the caller has refused."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = abs(a) // abs(divisor)
    signed: npt.NDArray[Any] = np.where((a < 0) != (divisor < 0), -quotient, quotient)
    return signed


def _remainder(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    remainder: npt.NDArray[Any] = a - _divide(a, b) * b
    return remainder


def _shift_left(a: Values, by: Values) -> Values:
    return np.where(by < 64, a << np.minimum(by, np.uint64(63)), np.uint64(0))


def _shift_right(a: npt.NDArray[Any], by: Values) -> npt.NDArray[Any]:
    """Fills with the sign where ``a`` is signed; a shift by the width or more leaves only fill."""
    if a.dtype == np.int64:
        return a >> np.minimum(by, np.uint64(63)).astype(np.int64)
    return np.where(by < 64, a >> np.minimum(by, np.uint64(63)), np.uint64(0))


def _insert_bits(field: Values, into: Values, position: Values, length: Values) -> Values:
    """``bfi.b32``: ``length`` low bits of ``field`` over those of ``into`` from ``position``."""
    start, count = position & np.uint64(255), length & np.uint64(255)
    one = np.uint64(1)
    mask = _shift_left(_shift_left(np.ones_like(count), count) - one, start)
    return (into & ~mask) | (_shift_left(field, start) & mask)


def _permute_bytes(a: Values, b: Values, selector: Values) -> Values:
    """``prmt.b32``: each result byte is one of the eight of b:a, or that byte's sign alone."""
    both = b << np.uint64(32) | a
    result = np.zeros(1, np.uint64)
    for byte in range(4):
        control = selector >> np.uint64(4 * byte)
        chosen = both >> ((control & np.uint64(7)) * np.uint64(8)) & np.uint64(255)
        sign = np.where(chosen & np.uint64(128), np.uint64(255), np.uint64(0))
        chosen = np.where(control & np.uint64(8), sign, chosen)
        result = result | chosen << np.uint64(8 * byte)
    return result


def _same(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return a


def _float(a: Values) -> npt.NDArray[np.float32]:
    return a.astype(np.uint32).view(np.float32)


def _operations() -> dict[str, Operation]:
    table: dict[str, Operation] = {}

    def add(name: str, inputs: tuple[str, ...], result: str, function: Any) -> None:
        divides = function in (_divide, _remainder)
        table[name] = Operation(inputs, result, function, divides)

    for kind in ("s32", "u32", "s64", "u64"):
        plain = f"u{kind[1:]}"  # the low bits are the same, with or without a sign
        add(f"add.{kind}", (plain, plain), kind, np.add)
        add(f"sub.{kind}", (plain, plain), kind, np.subtract)
        add(f"mul.lo.{kind}", (plain, plain), kind, np.multiply)
        add(f"mad.lo.{kind}", (plain, plain, plain), kind, lambda a, b, c: a * b + c)
        add(f"min.{kind}", (kind, kind), kind, np.minimum)
        add(f"max.{kind}", (kind, kind), kind, np.maximum)
        if kind[0] == "s":
            add(f"neg.{kind}", (plain,), kind, np.negative)
        add(f"shr.{kind}", (kind, "u32"), kind, _shift_right)
        for name, compare in (
            ("eq", np.equal),
            ("ne", np.not_equal),
            ("lt", np.less),
            ("le", np.less_equal),
            ("gt", np.greater),
            ("ge", np.greater_equal),
        ):
            add(f"setp.{name}.{kind}", (kind, kind), "pred", compare)
    for sign in "su":
        kind, wide = f"{sign}32", f"{sign}64"
        add(f"div.{kind}", (kind, kind), kind, _divide)
        add(f"rem.{kind}", (kind, kind), kind, _remainder)
        add(f"mul.wide.{kind}", (kind, kind), wide, np.multiply)
        add(f"mul.hi.{kind}", (kind, kind), kind, _high_half)
        for to_sign in "su":
            add(f"cvt.{to_sign}64.{kind}", (kind,), f"{to_sign}64", _same)
            add(f"cvt.{to_sign}32.{wide}", (wide,), f"{to_sign}32", _same)
    for kind in ("b16", "b32", "b64"):
        add(f"setp.eq.{kind}", (kind, kind), "pred", np.equal)
        add(f"setp.ne.{kind}", (kind, kind), "pred", np.not_equal)
    for kind in ("b32", "b64", "pred"):
        add(f"and.{kind}", (kind, kind), kind, np.bitwise_and)
        add(f"or.{kind}", (kind, kind), kind, np.bitwise_or)
        add(f"xor.{kind}", (kind, kind), kind, np.bitwise_xor)
        add(f"not.{kind}", (kind,), kind, np.invert)
        add(f"mov.{kind}", (kind,), kind, _same)
    for bits in (32, 64):
        add(f"shl.b{bits}", (f"b{bits}", "u32"), f"b{bits}", _shift_left)
        for sign in "bsu":
            kind = f"{sign}{bits}"
            add(f"selp.{kind}", (kind, kind, "pred"), kind, lambda a, b, p: np.where(p != 0, a, b))
            add(f"mov.{kind}", (kind,), kind, _same)
    for kind in ("s64", "u64"):
        add(f"div.{kind}", (kind, kind), kind, _divide)
        add(f"rem.{kind}", (kind, kind), kind, _remainder)
    for name, compare in (("eq", np.equal), ("ne", np.not_equal)):
        add(f"setp.{name}.s16", ("s16", "s16"), "pred", compare)
    for kind in ("u16", "b16"):
        add(f"mov.{kind}", (kind,), kind, _same)
    add("and.b16", ("b16", "b16"), "b16", np.bitwise_and)
    add("cvt.u16.u32", ("u32",), "u16", _same)
    add("mul.wide.u16", ("u16", "u16"), "u32", np.multiply)
    add("mov.f32", ("f32",), "f32", _same)
    # Where one side is NaN, eq is false and neu is true, as numpy has it.
    add("setp.eq.f32", ("f32", "f32"), "pred", lambda a, b: _float(a) == _float(b))
    add("setp.neu.f32", ("f32", "f32"), "pred", lambda a, b: _float(a) != _float(b))
    add("bfi.b32", ("b32", "b32", "u32", "u32"), "b32", _insert_bits)
    add("prmt.b32", ("b32", "b32", "b32"), "b32", _permute_bytes)
    # Address spaces are told apart by range here, so that a generic address is the address itself.
    add("cvta.param.u64", ("u64",), "u64", _same)
    add("cvta.to.global.u64", ("u64",), "u64", _same)
    return table


def _high_half(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The upper 32 bits of a 64-bit product of 32-bit factors."""
    product = a * b
    upper: npt.NDArray[Any] = product >> np.array([32], product.dtype)
    return upper


OPERATIONS = _operations()
"""Opcode to what it computes."""
