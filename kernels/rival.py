"""What another library can do about a product, as far as comparing needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.placed import OperandSet


class RivalAbsent(Exception):
    """Nothing to compare with; the message says why. Nothing was launched for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way in which a library makes the product.

    ``how`` names it, as a record keeps it. ``products`` gives, for input sets, a function that
    enqueues the product of each; either may raise RivalAbsent.
    """

    how: dict[str, Any]
    products: Callable[[Sequence[OperandSet]], Callable[[], None]]
