"""The closed form's operations, and lexicographic order, over Z3 integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3


class _Z3Algebra:
    """The closed form's operations over Z3 integers."""

    def maximum(self, a: Any, b: Any) -> Any:
        return z3.If(a >= b, a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return z3.If(condition, a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        return a / b  # Int division; floor for the non-negative a and positive b it gets


ALGEBRA = _Z3Algebra()


def before(place: Sequence[Any], other: Sequence[Any]) -> z3.BoolRef:
    """``place`` comes strictly before ``other`` in lexicographic order."""
    result = place[-1] < other[-1]
    for mine, theirs in list(zip(place, other, strict=True))[-2::-1]:
        result = z3.Or(mine < theirs, z3.And(mine == theirs, result))
    return result
