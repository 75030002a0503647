"""The ring's barrier program: what each warp does to which barrier, described once.

From this description come the programs that a compiled kernel's own are compared with, the
bounded check (``solver.ring.explore``) and the induction (``solver.z3_ring``).

A ring has Q slots. Slot s has two mbarriers: full[s], which takes one arrival of each DMA warp
and the bytes that its loads deliver, and empty[s], which takes one arrival of each MATH warp.
All warps walk the slots in the same order, across units of work. On visit j to a slot a DMA warp
waits for the phase of empty that ended visit j - 1 (a fresh barrier counts as having completed
parity 1), a MATH warp for the phase of full that visit j completes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the phase of this parity is complete: until the current one has the other."""

    barrier: str
    parity: int


@dataclass(frozen=True, slots=True)
class Arrive:
    """Arrive ``count`` times, expecting ``tx_bytes`` more to be delivered in this phase."""

    barrier: str
    count: int = 1
    tx_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Start a bulk copy into a slot that reports ``tx_bytes`` to a barrier when it has landed."""

    slot: int
    barrier: str
    tx_bytes: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """Issue the matrix products that read a slot; they run on until they are waited for."""

    slot: int


@dataclass(frozen=True, slots=True)
class MultiplyWait:
    """Block until at most ``pending`` of this warp's groups of products still run."""

    pending: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier of ``warps`` whole warps."""

    name: str
    warps: int


Step = Wait | Arrive | Load | Multiply | MultiplyWait | Sync


@dataclass(frozen=True, slots=True)
class Ring:
    """A launch's ring: its slots, the warps at each end, and what a slot is filled with.

    ``loads`` lists for each DMA warp the bytes of each copy it starts for one slot. With
    ``in_flight`` a MATH warp leaves one group of products running, and gives a slot back when
    the group after it has been issued and its own is complete.
    """

    slots: int
    math_warps: int
    loads: tuple[tuple[int, ...], ...]
    in_flight: bool

    @property
    def dma_warps(self) -> int:
        """Warps that fill the ring."""
        return len(self.loads)

    @property
    def copies(self) -> int:
        """Bulk copies that fill one slot."""
        return sum(map(len, self.loads))

    @property
    def lag(self) -> int:
        """Iterations for which a MATH warp keeps a slot after the one it reads."""
        return int(self.in_flight)

    def freed_parity(self, visit: Any) -> Any:
        """The parity that a DMA warp waits for on a slot's empty barrier; in any algebra."""
        return (visit + 1) % 2

    def filled_parity(self, visit: Any) -> Any:
        """The parity that a MATH warp waits for on a slot's full barrier; in any algebra."""
        return visit % 2

    def counts(self) -> dict[str, int]:
        """Arrivals that complete a phase of each barrier."""
        full = {f"full[{s}]": self.dma_warps for s in range(self.slots)}
        return full | {f"empty[{s}]": self.math_warps for s in range(self.slots)}

    def dma(self, warp: int, units: Sequence[int]) -> Iterator[Step]:
        """What DMA warp ``warp`` does over units of so many k-iterations."""
        copies = self.loads[warp]
        for visit, slot in self._visits(sum(units)):
            yield Wait(f"empty[{slot}]", self.freed_parity(visit))
            yield Arrive(f"full[{slot}]", 1, sum(copies))
            for tx_bytes in copies:
                yield Load(slot, f"full[{slot}]", tx_bytes)

    def math(self, units: Sequence[int]) -> Iterator[Step]:
        """What every MATH warp does."""
        visits = self._visits(sum(units))
        for iterations in units:
            held = None
            for _ in range(iterations):
                visit, slot = next(visits)
                yield Wait(f"full[{slot}]", self.filled_parity(visit))
                yield Multiply(slot)
                yield MultiplyWait(self.lag)
                if not self.in_flight:
                    yield Arrive(f"empty[{slot}]")
                    continue
                if held is not None:
                    yield Arrive(f"empty[{held}]")
                held = slot
            if held is not None:
                yield MultiplyWait(0)
                yield Arrive(f"empty[{held}]")

    def programs(self, units: Sequence[int]) -> dict[str, tuple[Step, ...]]:
        """Every warp's program, by name."""
        dma = {f"dma{w}": tuple(self.dma(w, units)) for w in range(self.dma_warps)}
        return {f"math{w}": tuple(self.math(units)) for w in range(self.math_warps)} | dma

    def _visits(self, iterations: int) -> Iterator[tuple[int, int]]:
        """(visit, slot) of each k-iteration."""
        return ((i // self.slots, i % self.slots) for i in range(iterations))
