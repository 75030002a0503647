"""The same launch thousands of times: a race would change some bit of some output.

    python -m bench.gpu_soak --launches 5000 --out bench/results/h200/soak.json

Configurations on every SM that between them take every branch of the kernel, each on one set of
random inputs. After each launch a kernel hashes C and all around it; the hashes must be one, and
that of an output which is held against an fp64 reference.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.branch_pairs import counted, covering, pairs
from bench.branches import Pair
from bench.evidence import begin, crew_parser_of, failure, record
from bench.gpu_work import soak_pair
from kernels.process import Outcome
from solver.device import DeviceProfile

LEAST = 20
DRAWN = 4000  # pairs among which the covering ones are chosen
DEADLINE_S = 120.0


def soaked(device: DeviceProfile, seed: int) -> list[Pair]:
    """Pairs on all SMs of a device that take every branch that such pairs can, LEAST at least."""
    everywhere = device.limit("sms")
    drawn = [pair for pair in pairs(DRAWN, seed, device) if pair.sms == everywhere]
    chosen = covering(drawn)
    return chosen + [pair for pair in drawn if pair not in chosen][: max(0, LEAST - len(chosen))]


def scalars(index: int, seed: int) -> tuple[float, float]:
    """alpha and beta of a pair: 1 and 0, or for every other one at random, as fp32 holds them."""
    if index % 2 == 0:
        return 1.0, 0.0
    rng = random.Random(f"{seed}:{index}")
    alpha, beta = (rng.choice((-1, 1)) * rng.uniform(0.25, 1) for _ in range(2))
    return float(np.float32(alpha)), float(np.float32(beta))


class SoakFindings:
    """A row for each pair soaked so far, ``reason`` None where every launch was right."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._pairs: list[Pair] = []

    @property
    def failed(self) -> int:
        """Pairs of which some launch was wrong, or not done."""
        return sum(row["reason"] is not None for row in self._rows)

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one ``soak_pair``."""
        pair, _, alpha, beta, seed, _ = arguments
        self._pairs.append(pair)
        row = {**pair.to_dict(), "alpha": alpha, "beta": beta, "seed": seed, "reason": None}
        self._rows.append(row | (outcome.value or {}) | (failure(outcome) or {}))

    def to_dict(self) -> dict[str, Any]:
        """The rows, and how many of the pairs took each branch."""
        return {
            "configurations": len(self._rows),
            "launches": sum(row.get("launches", 0) for row in self._rows),
            "failed": self.failed,
            "branches": counted(self._pairs),
            "rows": self._rows,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every launch of every pair gave the right bits; 1: not; 3: no GPU or no family."""
    parser = crew_parser_of("gpu_soak", __doc__, workers=4)
    parser.add_argument("--launches", type=int, default=5000, help="of each configuration")
    chosen, facts, device = begin(parser, arguments)
    calls = [
        [(pair, chosen.launches, *scalars(index, chosen.seed), chosen.seed + index, device.name)]
        for index, pair in enumerate(soaked(device, chosen.seed))
    ]
    return record(chosen, facts, soak_pair, calls, DEADLINE_S, SoakFindings())


if __name__ == "__main__":
    sys.exit(main())
