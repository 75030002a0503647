"""How far an fp32 output is off where k is long: ours and cuBLAS against float64.

    python -m bench.gpu_long_k --out bench/results/h200/long_k.json

Tensor cores truncate the fp32 sum at each step, so that the error grows with k; shares of a
split k are shorter sums. Normal inputs in bf16, one output tile of 128×128, k whole and split in
four.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bench.branches import Pair
from bench.evidence import begin, crew_parser_of, failure, record
from bench.gpu_work import long_sums
from kernels.process import Outcome
from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.problem import Problem

DEADLINE_S = 120.0
K = (4096, 16_384, 65_536)
SPLITS = (1, 4)
TILE = 128


def cases(ks: Sequence[int], device: DeviceProfile) -> list[Pair]:
    """A pair for each k and split. Raises InvalidInput for a k that can't be had so."""
    found = []
    for k in ks:
        for split_k in SPLITS:
            problem = Problem(TILE, TILE, k, out_dtype="fp32")
            config = Config(family.NAME, TILE, TILE, 64, 4, math_warpgroups=2, split_k=split_k)
            legality.check(config, problem, device)
            found.append(Pair(problem, config, device.limit("sms")))
    return found


class LongFindings:
    """A row for each pair, ``reason`` None where the errors are within the check's limit."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    @property
    def failed(self) -> int:
        """Pairs that gave something wrong, or nothing."""
        return sum(row["reason"] is not None for row in self._rows)

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one ``long_sums``."""
        pair, seed, _ = arguments
        row = {
            "k": pair.problem.k,
            "split_k": pair.config.split_k,
            **pair.to_dict(),
            "seed": seed,
            "reason": None,
        }
        self._rows.append(row | (outcome.value or {}) | (failure(outcome) or {}))

    def to_dict(self) -> dict[str, Any]:
        """The rows, by k and split."""
        rows = sorted(self._rows, key=lambda row: (row["k"], row["split_k"]))
        return {"failed": self.failed, "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every error was within its limit; 1: some were not; 2: a k that can't be had; 3: no GPU
    or no family."""
    parser = crew_parser_of("gpu_long_k", __doc__, workers=1)
    parser.add_argument("--k", type=int, nargs="+", default=K, help="default: %(default)s")
    chosen, facts, device = begin(parser, arguments)
    try:
        pairs = cases(chosen.k, device)
    except InvalidInput as error:
        parser.error(f"argument --k: {error}")
    calls = [(pair, chosen.seed, device.name) for pair in pairs]
    return record(chosen, facts, long_sums, [calls], DEADLINE_S, LongFindings())


if __name__ == "__main__":
    sys.exit(main())
