"""Choices and bounds of plain numbers, or of arrays element by element, so that a rule is written
once for one configuration and for columns of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

import numpy as np


def where(holds: Any, one: Any, other: Any) -> Any:
    """``one`` where it holds, ``other`` elsewhere."""
    if isinstance(holds, np.ndarray):
        return np.where(holds, one, other)
    return one if holds else other


def smallest(*values: Any) -> Any:
    """The least of these."""
    if any(isinstance(value, np.ndarray) for value in values):
        return reduce(np.minimum, values)
    return min(values)


def largest(*values: Any) -> Any:
    """The greatest of these."""
    if any(isinstance(value, np.ndarray) for value in values):
        return reduce(np.maximum, values)
    return max(values)


def is_any(value: Any, choices: Iterable[Any]) -> Any:
    """Whether it is one of these; there is at least one."""
    return reduce(or_, [value == choice for choice in choices])


def implied(condition: Any, holds: Any) -> Any:
    """Whether it holds wherever the condition does."""
    return (condition ^ True) | holds
