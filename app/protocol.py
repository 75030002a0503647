"""The ring's protocol, over compile keys: the kernel's own program, every order, all iterations."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kernels.ring_check import check_kernel, ring_of
from kernels.sources import source_hash
from kernels.table import table_keys
from solver.ring.explore import Fault, explore_ring
from solver.ring.program import Ring
from solver.z3_ring import prove_ring

EXPLORED = 4  # k-iterations of a unit in the bounded check, which tries every order of them
TURNS_OVER = 2  # and of the unit after it


def check_protocol(
    sample: int | None = None, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Compare every legal key's kernel, or a seeded sample's, with the ring that is proved.

    ``launches`` programs were read off PTX and compared step by step, ``mismatches`` lists what
    differs and what it leads to. Of the distinct ``rings`` (warps and copies at each end) each is
    proved by induction and, at its least depth, in every order of a few iterations (``states``).
    Raises CompilerAbsent, and ProofError where the protocol itself does not hold.
    """
    keys = table_keys()
    if sample is not None:
        keys = random.Random(seed).sample(keys, min(sample, len(keys)))
    mismatches: list[dict[str, str]] = []
    rings: set[Ring] = set()
    launches = 0
    for done, key in enumerate(keys, start=1):
        for plan, mismatch in check_kernel(key):
            launches += 1
            ring = ring_of(plan)
            # Bytes do not decide the order of steps: rings that differ in these alone are one.
            copies = tuple((1,) * len(loads) for loads in ring.loads)
            rings.add(Ring(2 + ring.lag, ring.math_warps, copies, ring.in_flight))
            if mismatch is not None:
                mismatches.append({"kernel": key.name, "mismatch": str(mismatch)})
        if progress:
            progress(done, len(keys))
    faults, states, lemmas = [], 0, 0
    for ring in sorted(rings, key=repr):
        lemmas += len(prove_ring(ring))
        outcome = explore_ring(ring, [EXPLORED, TURNS_OVER])
        if isinstance(outcome, Fault):
            faults.append(str(outcome))
        else:
            states += outcome
    return {
        "keys": len(keys),
        "launches": launches,
        "mismatches": mismatches,
        "rings": len(rings),
        "lemmas": lemmas,
        "states": states,
        "faults": faults,
        "source_hash": source_hash(),
    }
