"""The ring's barrier program: what each warp does to which barrier, described once.

From this description come the programs that a compiled kernel's own are compared with, the
bounded check (``solver.ring.explore``) and the induction (``solver.z3_ring``).

A ring has Q slots. Slot s has two mbarriers: full[s], which takes one arrival of each DMA warp
and the bytes that land in the slot, and empty[s], which takes one arrival of each MATH warp. All
warps walk the slots in the same order, across units of work. On visit j to a slot a DMA warp waits
for the phase of empty that ended visit j - 1 (a fresh barrier counts as having completed parity
1), a MATH warp for the phase of full that visit j completes.

The two CTAs of a cluster have a ring each and walk them in step. A copy of what they share lands
in the slot of both and is told to both full barriers, so that it may land before the peer's own
DMA warps have announced it; and an empty barrier takes the MATH warps of both CTAs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from solver.ring.steps import Arrive, Init, Load, Multiply, MultiplyWait, Step, Wait

WARPGROUP_WARPS = 4


@dataclass(frozen=True, slots=True)
class Copy:
    """A bulk copy into a slot; ``shared``: into the slot of both CTAs of a cluster."""

    tx_bytes: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Ring:
    """A launch's ring: its slots, the warps at each end, and what a slot is filled with.

    ``loads`` lists for each DMA warp the copies that it starts for one slot. With ``in_flight``
    a MATH warp leaves one group of products running, and gives a slot back when the group after
    it has been issued and its own is complete. ``ctas`` is 2 in a cluster.
    """

    slots: int
    warpgroups: int
    loads: tuple[tuple[Copy, ...], ...]
    in_flight: bool
    ctas: int = 1

    @property
    def math_warps(self) -> int:
        """MATH warps of a CTA."""
        return self.warpgroups * WARPGROUP_WARPS

    @property
    def dma_warps(self) -> int:
        """Warps of a CTA that fill its ring."""
        return len(self.loads)

    @property
    def copies(self) -> int:
        """Bulk copies that land in one slot of a CTA on each visit, the peer's among them."""
        return sum(self._landings(copy) for copies in self.loads for copy in copies)

    @property
    def lag(self) -> int:
        """Iterations for which a MATH warp keeps a slot after the one it reads."""
        return int(self.in_flight)

    @property
    def full_count(self) -> int:
        """Arrivals that complete a phase of a full barrier."""
        return self.dma_warps

    @property
    def empty_count(self) -> int:
        """Arrivals that complete a phase of an empty barrier."""
        return self.math_warps * sum(self.frees(rank) for rank in range(self.ctas))

    def fills(self, warp: int, rank: int) -> bool:
        """Whether DMA warp ``warp`` starts copies into the slots of the CTA that is so many on in
        the cluster: 0 is its own, 1 its peer."""
        return any(copy.shared or not rank for copy in self.loads[warp])

    def frees(self, rank: int) -> bool:
        """Whether MATH warps give slots back to the CTA that is so many on in the cluster."""
        return rank < self.ctas

    def freed_parity(self, visit: Any) -> Any:
        """The parity that a DMA warp waits for on a slot's empty barrier; in any algebra."""
        return (visit + 1) % 2

    def filled_parity(self, visit: Any) -> Any:
        """The parity that a MATH warp waits for on a slot's full barrier; in any algebra."""
        return visit % 2

    def inits(self) -> Iterator[Step]:
        """The barriers' initialisation: lane s those of slot s."""
        for slot in range(self.slots):
            yield Step(Init(f"full[{slot}]", self.full_count), 1 << slot)
        for slot in range(self.slots):
            yield Step(Init(f"empty[{slot}]", self.empty_count), 1 << slot)

    def dma(self, warp: int, iterations: int) -> Iterator[Step]:
        """What the elected lane of DMA warp ``warp`` does over so many k-iterations."""
        copies = self.loads[warp]
        tx_bytes = sum(copy.tx_bytes * self._landings(copy) for copy in copies)
        for at in range(iterations):
            visit, slot = divmod(at, self.slots)
            full = f"full[{slot}]"
            yield Step(Wait(f"empty[{slot}]", self.freed_parity(visit)), 1)
            yield Step(Arrive(full, tx_bytes), 1)
            for copy in copies:
                yield Step(Load(slot, full, copy.tx_bytes, copy.shared), 1)

    def math(self, first: int, iterations: int) -> Iterator[Step]:
        """What every MATH warp does in a unit whose first k-iteration is its CTA's ``first``."""
        held = None
        for at in range(first, first + iterations):
            visit, slot = divmod(at, self.slots)
            yield Step(Wait(f"full[{slot}]", self.filled_parity(visit)))
            yield Step(Multiply(slot, fresh=at == first))
            yield Step(MultiplyWait(self.lag))
            if not self.in_flight:
                yield from self._free(slot)
                continue
            if held is not None:
                yield from self._free(held)
            held = slot
        if held is not None:
            yield Step(MultiplyWait(0))
            yield from self._free(held)

    def _free(self, slot: int) -> Iterator[Step]:
        """One arrival at every CTA whose copies fill the slot."""
        for rank in range(self.ctas):
            if self.frees(rank):
                yield Step(Arrive(f"empty[{slot}]", peer=rank > 0), 1 << rank)

    def _landings(self, copy: Copy) -> int:
        """How many copies like this one land in a slot of a CTA: the peer has its own."""
        return self.ctas if copy.shared else 1
