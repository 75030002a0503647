"""Operands of more than 2^31 elements, right in every corner.

    python -m bench.gpu_large --out bench/results/h200/large.json

m·n, m·k and n·k beyond 2^31, elements or distances; m, n and k themselves next to 2^31; through
TMA and element by element, with copies, clusters and every output type. Every element is
checked: by ``kernels.checking``, or against what is known where an extent is extreme. Needs
about 100 GB of device memory with two processes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bench.branches import Pair
from bench.evidence import begin, crew_parser_of, failure, record
from bench.gpu_extremes import check_huge
from kernels.process import Outcome
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import MAX_EXTENT, Problem

DEADLINE_S = 240.0


def _config(tile_m: int, warpgroups: int, tile_n: int, stages: int = 3, **more: int) -> Config:
    return Config(family.NAME, tile_m, tile_n, 64, stages, math_warpgroups=warpgroups, **more)


_WIDE = _config(128, 2, 256, mma_in_flight=1, register_split=1, cluster_m=2, raster_group=8)
_NARROW = _config(128, 2, 64, stages=4, mma_in_flight=1)
_FLAT = _config(64, 1, 256)

CHECKED: dict[str, tuple[Problem, Config]] = {
    "C by TMA": (Problem(46_592, 46_104, 64), _WIDE),
    "C in fp32 by TMA": (
        Problem(46_592, 46_104, 64, layout="tt", out_dtype="fp32"),
        _config(128, 2, 208, cluster_n=2, raster_group=4),
    ),
    "C in fp32 by elements": (
        Problem(46_592, 46_101, 72, dtype="fp16", layout="nn", out_dtype="fp32"),
        _config(128, 2, 192, raster_group=8),
    ),
    "C's rows far apart, by TMA": (
        Problem(3000, 1000, 64, layout="nt", out_dtype="fp32", ldc=800_000),
        _config(128, 1, 128),
    ),
    "C's rows far apart, by elements": (
        Problem(3000, 1000, 64, ldc=1_500_001),
        _config(192, 3, 128),
    ),
    "A": (Problem(1_050_000, 64, 2056), _NARROW),
    "A transposed": (Problem(1_050_000, 64, 2056, layout="nt"), _NARROW),
    "A copied": (Problem(1_050_000, 64, 2051), _NARROW),
    "A copied, transposed": (Problem(1_050_001, 64, 2056, layout="nn"), _NARROW),
    "A's rows far apart": (Problem(3000, 64, 64, lda=1_000_000), _NARROW),
    "A's rows far apart, copied": (Problem(3000, 64, 64, lda=1_000_001), _NARROW),
    "B": (Problem(64, 1_050_000, 2056), _FLAT),
    "B transposed": (Problem(64, 1_050_000, 2056, layout="tt"), _FLAT),
    "B copied": (Problem(64, 1_050_000, 2051), _FLAT),
    "B copied, transposed": (Problem(64, 1_050_001, 2056, layout="tt"), _FLAT),
}
"""Problems for ``kernels.checking``."""

EXTREME: dict[str, tuple[Problem, Config]] = {
    "m": (Problem(MAX_EXTENT, 1, 1, layout="nt"), _config(64, 1, 8)),
    "n by elements": (Problem(1, MAX_EXTENT, 1, layout="nt"), _config(64, 1, 256)),
    "n by TMA": (Problem(1, MAX_EXTENT - 7, 1, dtype="fp16", layout="tt"), _config(64, 1, 16)),
    "k": (
        Problem(1, 1, MAX_EXTENT, out_dtype="fp32"),
        _config(64, 1, 16, stages=12, split_k=32),
    ),
    "k, transposed": (
        Problem(1, 1, MAX_EXTENT, layout="nt", out_dtype="fp32", lda=8, ldb=8),
        _config(64, 1, 16, stages=8, split_k=32),
    ),
}
"""Problems of one extreme extent."""


class LargeFindings:
    """A row for each problem, ``reason`` None where it was right."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    @property
    def failed(self) -> int:
        """Problems that gave something wrong, or nothing."""
        return sum(row["reason"] is not None for row in self._rows)

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one check."""
        name, _, pair, seed, _ = arguments
        row = {"name": name, **pair.to_dict(), "seed": seed, "reason": None, "details": ""}
        self._rows.append(row | (failure(outcome) or {}))

    def to_dict(self) -> dict[str, Any]:
        """The rows."""
        return {"problems": len(self._rows), "failed": self.failed, "rows": self._rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every problem was right; 1: some were not; 3: no GPU or no family."""
    parser = crew_parser_of("gpu_large", __doc__, workers=2)
    chosen, facts, device = begin(parser, arguments)
    sms = device.limit("sms")
    calls = [
        [(name, name in EXTREME, Pair(problem, config, sms), chosen.seed, device.name)]
        for name, (problem, config) in {**CHECKED, **EXTREME}.items()
    ]
    return record(chosen, facts, check_huge, calls, DEADLINE_S, LargeFindings())


if __name__ == "__main__":
    sys.exit(main())
