"""A value held against its limits, with a message that says what is allowed and what was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from solver.errors import InvalidInput

LONGEST_SHOWN = 60
LONGEST_BITS = 128  # of an integer that a message repeats


def check_integer(
    field: str,
    value: Any,
    low: int,
    high: int,
    *,
    low_words: str = "",
    high_words: str = "",
    error: type[InvalidInput] = InvalidInput,
) -> None:
    """Raise ``error`` unless ``value`` is an integer from ``low`` to ``high``.

    ``low_words`` and ``high_words`` say the ends where the figures alone don't say why.
    """
    allowed = f"between {low_words or low} and {high_words or high}"
    if type(value) is not int:
        raise error(field, f"must be an integer {allowed}, got {type(value).__name__}")
    if not low <= value <= high:
        raise error(field, f"must be {allowed}, got {_shown(value)}")


def check_number(field: str, value: Any, low: float, high: float) -> None:
    """Raise InvalidInput unless ``value`` is a number from ``low`` to ``high``."""
    allowed = f"between {low:g} and {high:g}"
    if type(value) not in (int, float):
        raise InvalidInput(field, f"must be a number {allowed}, got {type(value).__name__}")
    if not low <= value <= high:
        raise InvalidInput(field, f"must be {allowed}, got {_shown(value)}")


def check_choice(
    field: str, value: Any, choices: Iterable[str], error: type[InvalidInput] = InvalidInput
) -> None:
    """Raise ``error`` unless ``value`` is one of ``choices``."""
    names = tuple(choices)
    if value not in names:
        raise error(field, f"must be one of {', '.join(names)}, got {shortened(repr(value))}")


def shortened(text: str) -> str:
    """``text``, or its first characters and an ellipsis."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _shown(value: float) -> str:
    if isinstance(value, int) and value.bit_length() > LONGEST_BITS:
        return f"an integer of {value.bit_length()} bits"
    return str(value)
