"""Figures and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def listing(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def digits(share: float) -> str:
    """A share of 1 as a percentage, with as many digits as tell small ones apart."""
    if share < 5e-7:
        return "under 0.0001%"
    return f"{share:.{1 if share >= 0.01 else 2 if share >= 5e-4 else 4}%}"


def compared(value: float, base: float, words: tuple[str, str, str]) -> str:
    """How much more or less a value is than another; ``words`` for more, less and the same."""
    more, less, same = words
    if value == base or not base:
        return same if value == base else more
    change = value / base - 1
    return f"{digits(abs(change))} {more if change > 0 else less}"
