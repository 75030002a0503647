"""What the searches of barrier programs are made of: warps, states, moves and faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeVar

from solver.ring.steps import Program

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, and the steps that lead there, in words."""

    kind: str
    words: str
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = "\n".join(f"  {at}. {step}" for at, step in enumerate(self.trace, start=1))
        return f"{self.kind}: {self.words}\n{steps}"


@dataclass(frozen=True, slots=True)
class Warps:
    """``count`` warps that walk the same program in step: one place among the others' orders.

    ``warpgroup`` is that of MATH warps, None for others.
    """

    name: str
    steps: Program
    count: int = 1
    cta: int = 0
    warpgroup: int | None = None


class Move(NamedTuple):
    """A step, in words: who takes it and what it is."""

    who: str
    words: str


class Barrier(NamedTuple):
    """An mbarrier: the parity of the phase that runs, and what it still waits for."""

    parity: int
    arrivals: int
    tx_bytes: int


class Flight(NamedTuple):
    """A copy on its way into a CTA's slot; ``barrier`` by number."""

    cta: int
    slot: int
    barrier: int
    tx_bytes: int


class State(NamedTuple):
    """Where everything stands; hashable, so that states can be told apart.

    ``at`` is the next step of each group of warps; ``barriers`` are None before they are
    initialised; ``landed`` counts the copies that each slot of each CTA has received; ``running``
    lists the slots that each group's products still read, oldest first, ``stores`` its TMA stores
    that may not have read their buffer yet, as (buffer, committed).
    """

    at: tuple[int, ...]
    barriers: tuple[Barrier | None, ...]
    copies: tuple[Flight, ...]
    landed: tuple[int, ...]
    running: tuple[tuple[int, ...], ...]
    stores: tuple[tuple[tuple[int, bool], ...], ...]


def parties(first: int, warps: Mapping[int, int], total: int) -> Iterator[tuple[int, ...]]:
    """Every set of groups that has ``total`` warps and ``first`` for its lowest; ``warps`` are
    those of each group. A named barrier lets such a set pass, whichever it is."""
    others = [group for group in warps if group > first]
    for size in range(len(others) + 1):
        for more in combinations(others, size):
            if sum(warps[group] for group in (first, *more)) == total:
                yield first, *more


def replaced(items: tuple[T, ...], i: int, value: T) -> tuple[T, ...]:
    """A tuple with one item replaced."""
    return (*items[:i], value, *items[i + 1 :])
