"""Whether the lanes of a warp come together before one of them speaks for all.

An mbarrier's arrival orders what its own thread did before it, and a bulk store reads what its own
thread has written; of the other lanes' accesses either knows only through ``__syncwarp``, or a
barrier that takes every lane. The description of the blocks (``solver.ring.stream``) has warps that
act as one, so this is held against the kernel itself, lane by lane, as its PTX was read.
"""

from __future__ import annotations

from kernels.barrier_steps import WarpBarrier
from kernels.ptx_parser import PtxError
from solver.ring.steps import ALL, Arrive, Program, Sync, words
from solver.ring.stream_steps import ReadSlot, Rewrite, StoreSlot, WriteSlot

ACCESSES = (WriteSlot, ReadSlot, Rewrite)
"""What lanes do in slots by themselves. Asynchronous copies are arrived for by their own lanes."""
SPEAKS = (Arrive, StoreSlot)
"""What one lane does for its warp."""
TOGETHER = (WarpBarrier, Sync)
"""Where whole warps wait for one another: after it what each lane did is ordered for all."""


def require_together(name: str, program: Program) -> None:
    """Raise PtxError where lanes of the warp ``name`` have used a slot since they last came
    together, and another lane arrives, or has results stored, for them."""
    apart: dict[int, str] = {}  # each lane that has used a slot since, and for what
    for number, step in enumerate(program, start=1):
        if isinstance(step.op, TOGETHER) and step.lanes == ALL:
            apart.clear()
        elif isinstance(step.op, ACCESSES):
            apart |= dict.fromkeys(_lanes(step.lanes), step.op.words)
        elif isinstance(step.op, SPEAKS):
            others = apart.keys() - _lanes(step.lanes)
            if others:
                lane = min(others)
                raise PtxError(
                    f"{name}, step {number}: {words(step)}, for lane {lane} too, which has not "
                    f"come together with it since it did: {apart[lane]}"
                )


def _lanes(mask: int) -> set[int]:
    return {lane for lane in range(ALL.bit_length()) if mask >> lane & 1}
