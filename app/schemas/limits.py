"""Limits as the OpenAPI document states them. The solver checks them; nothing is checked twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from solver.problem import OUT_BYTES, VECTOR_BYTES

OFFSETS_MAX = {dtype: VECTOR_BYTES // size - 1 for dtype, size in OUT_BYTES.items()}
"""Most elements of each type that an operand can start past a 16-byte boundary."""

OFFSETS_WORDS = ", ".join(f"{most} in {dtype}" for dtype, most in OFFSETS_MAX.items())

OFFSET_MAX = max(OFFSETS_MAX.values())

NAME_LONGEST = 60
"""Longest text that can be a name; a longer one is refused here, so that no message repeats it."""

Name = Annotated[str, Field(max_length=NAME_LONGEST)]


def one_of(values: Iterable[Any]) -> dict[str, Any]:
    """Schema of a value that is one of several."""
    return {"enum": list(values)}


def between(low: float, high: float) -> dict[str, Any]:
    """Schema of a number, both ends included."""
    return {"minimum": low, "maximum": high}


def up_to(longest: int) -> dict[str, Any]:
    """Schema of a list of 1 to ``longest`` values."""
    return {"minItems": 1, "maxItems": longest}
