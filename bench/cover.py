"""Few launches that take every branch: chosen greedily, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any


def cover(offers: Sequence[AbstractSet[Any]]) -> list[int]:
    """Few of these sets that hold between them what all do, each adding most of what is left."""
    wanted = set().union(*offers)
    chosen = []
    while wanted:
        best = max(range(len(offers)), key=lambda index: len(offers[index] & wanted))
        chosen.append(best)
        wanted -= offers[best]
    return chosen


def tally(taken: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """How often each branch is taken, as ``axis=value``, sorted."""
    counts = Counter(f"{axis}={value}" for branches in taken for axis, value in branches.items())
    return dict(sorted(counts.items()))
