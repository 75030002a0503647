"""Thousands of launches that between them take every branch of the kernel, each checked whole.

    python -m bench.gpu_pairs --count 5000 --seed 1 --out bench/results/h200/pairs.json

Pairs of problem and configuration are drawn from the seed (``bench.branch_pairs``), compiled,
launched and checked by ``kernels.checking``: bit for bit on exact inputs, with and without alpha
and beta, and within bounds on random ones; gaps and guard bands too. Several processes share
the GPU; one that hangs or faults is killed and reported, and the others go on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bench.branch_pairs import counted, legal_keys, pairs
from bench.branches import Pair, branches_of, meetings, met
from bench.evidence import begin, crew_parser_of, failure, record
from bench.gpu_work import check_pair
from kernels.process import Outcome
from solver.device import DeviceProfile

PROTOCOL = (
    "kernels.checking.check_config: the exact round covers every k, then alpha and beta; the "
    "random round is held against fp64; every element, gap and guard word is looked at; inputs "
    "from the seed, output poisoned before each launch"
)
DEADLINE_S = 60.0
SEED_STEP = 1_000_003  # seeds of the inputs: the pair's number, far from those of other runs


def batches(drawn: Sequence[Pair], device: str, seed: int) -> list[list[tuple[Any, ...]]]:
    """The arguments of ``check_pair``, those of one kernel together: it is compiled once."""
    by_key: dict[Any, list[tuple[Any, ...]]] = {}
    for index, pair in enumerate(drawn):
        by_key.setdefault(pair.key, []).append((pair, seed * SEED_STEP + index, device))
    return list(by_key.values())


class PairFindings:
    """What has been found so far, on a device."""

    def __init__(self, device: DeviceProfile) -> None:
        self._wanted = set(meetings(legal_keys(device)))
        self._checked: list[Pair] = []
        self._failed: list[Pair] = []
        self._failures: list[dict[str, Any]] = []
        self._draws = 0
        self._k_coverage = 1.0
        self._rel_error: dict[str, float] = {}

    @property
    def failed(self) -> int:
        """Pairs that gave something wrong, or nothing."""
        return len(self._failed)

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one ``check_pair``."""
        pair, seed, _ = arguments
        self._checked.append(pair)
        why = failure(outcome)
        if why is not None:
            self._failed.append(pair)
            self._failures.append({**pair.to_dict(), "seed": seed, **why})
            return
        found, out = outcome.value, pair.problem.out
        self._draws += found["draws"]
        self._k_coverage = min(self._k_coverage, found["k_coverage"])
        self._rel_error[out] = max(self._rel_error.get(out, 0.0), found["rel_error"])

    def to_dict(self) -> dict[str, Any]:
        """Worst figures, counts by branch, the failures and the branches that all of them took."""
        failed = [set(branches_of(pair).items()) for pair in self._failed]
        common = set.intersection(*failed) if failed else set()
        return {
            "protocol": PROTOCOL,
            "checked": len(self._checked),
            "failed": self.failed,
            "kernels": len({pair.key for pair in self._checked}),
            "exact_draws": self._draws,
            "k_coverage_min": self._k_coverage,
            "rel_error_max": dict(sorted(self._rel_error.items())),
            "meetings_wanted": len(self._wanted),
            "meetings_met": len(self._wanted & met(branches_of(pair) for pair in self._checked)),
            "branches": counted(self._checked),
            "failures_share": sorted(f"{axis}={value}" for axis, value in common),
            "failures": self._failures,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every pair passed; 1: some failed or the budget ran out; 3: no GPU or no family."""
    parser = crew_parser_of("gpu_pairs", __doc__, workers=8)
    parser.add_argument("--count", type=int, default=5000)
    chosen, facts, device = begin(parser, arguments)
    drawn = batches(pairs(chosen.count, chosen.seed, device), device.name, chosen.seed)
    return record(chosen, facts, check_pair, drawn, DEADLINE_S, PairFindings(device))


if __name__ == "__main__":
    sys.exit(main())
