"""What nvMatmulHeuristics says of the ground truth's rows, recorded so that no one else needs it.

    python -m bench.nvmmh --out bench/results/h200/nvmmh.json.gz

Needs numpy and the package nvidia-matmul-heuristics (extra ``peers``; NVIDIA's licence), no GPU:
the device is one that the package knows. For each problem its first pick with the time it predicts,
and its estimate of each distinct kernel that was measured, in this family's fields. Rows are those
of the ground truth beside the file, or, while there is none, those of the design.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from solver.config import Config
from solver.ground_truth import CONFIG_FIELDS, load_ground_truth
from solver.peers import ESTIMATED_BY
from solver.problem import Problem
from solver.sweep_design import make_design

PACKAGE = "nvidia-matmul-heuristics"
TARGET, GPU, FLAGS = "CUTLASS3", "H200_SXM", "PERF_MODEL_BASED_AUTO_TUNING"
TYPES = {"bf16": "T", "fp16": "H", "fp32": "S"}
INSTRUCTION = (64, 8, 16)  # what the package itself names for this target
TIME_DIGITS = 4

Kernel = tuple[int, ...]
"""Values of ESTIMATED_BY."""


def precision(problem: Problem) -> str:
    """The package's letters: of A and B, of accumulation, of C."""
    return f"{TYPES[problem.dtype]}S{TYPES[problem.out]}"


def measured_kernels(
    rows: Iterable[tuple[Problem, str, Config]],
) -> dict[tuple[Problem, str], list[Kernel]]:
    """Distinct kernels without a split of k, by problem and cache state, in order."""
    found: dict[tuple[Problem, str], dict[Kernel, None]] = {}
    for problem, cache, config in rows:
        kernels = found.setdefault((problem, cache), {})
        if config.split_k == 1:
            kernels[tuple(getattr(config, name) for name in ESTIMATED_BY)] = None
    return {key: list(kernels) for key, kernels in found.items()}


def rows_of(table: Path) -> Iterator[tuple[Problem, str, Config]]:
    """Rows of the ground truth, or, where it is not there, of the design."""
    if not table.is_file():
        for row in make_design().rows:
            yield row.problem, row.cache, row.config
        return
    for group in load_ground_truth(table):
        cache = "cold" if group.cold else "warm"
        for values in zip(*(group.columns[name].tolist() for name in CONFIG_FIELDS), strict=True):
            fields = dict(zip(CONFIG_FIELDS, values, strict=True))
            yield group.problem, cache, Config("sm90_gemm", **fields)


class Heuristics:
    """The package, asked about one predefined GPU."""

    def __init__(self) -> None:
        import nvMatmulHeuristics as nvmmh

        self._module = nvmmh
        self._asked = nvmmh.NvMatmulHeuristicsInterfaceEx(
            backend=nvmmh.NvMatmulHeuristicsTarget[TARGET],
            flags=nvmmh.NvMatmulHeuristicsFlags[FLAGS],
            gpu=nvmmh.NvMatmulHeuristicsNvidiaGpu[GPU],
        )

    def _described(self, problem: Problem) -> Any:
        layout = self._module.NvMatmulHeuristicsMatmulLayout[f"{problem.layout.upper()}_ROW_MAJOR"]
        return self._asked.makeNvMatmulHeuristicsProblem(problem.m, problem.n, problem.k, layout)

    def pick(self, problem: Problem) -> tuple[dict[str, int], float] | None:
        """The first pick, in this family's fields, and its time in µs; None where there is none."""
        found = self._asked.get(self._described(problem), 1, precision=precision(problem))
        if not found or not found[0]["runtime"]:
            return None
        kernel = found[0]["kernel"]
        pick = {
            "tile_m": kernel.cta_tile_m,
            "tile_n": kernel.cta_tile_n,
            "tile_k": kernel.cta_tile_k,
            "stages": kernel.stages,
            "split_k": kernel.split_k,
            "cluster_m": kernel.cluster_m,
            "cluster_n": kernel.cluster_n,
        }
        return pick, found[0]["runtime"] * 1e6

    def estimate_us(self, problem: Problem, kernel: Kernel) -> float | None:
        """Its time of a kernel of ours in its terms; None where it has none.

        Of a tile's warps and instruction it does not depend.
        """
        wanted = dict(zip(ESTIMATED_BY, kernel, strict=True))
        tile = (wanted["tile_m"], wanted["tile_n"], wanted["tile_k"])
        asked = self._asked
        configuration = asked.nvmmhKernelConfiguration(
            cta=(ctypes.c_uint16 * 3)(*tile),
            warp=(ctypes.c_uint16 * 3)(INSTRUCTION[0], *tile[1:]),
            instr=(ctypes.c_uint16 * 3)(*INSTRUCTION),
            splitK=1,
            loadStages=wanted["stages"],
            gridSwizzle=wanted["raster_group"],
            ctaOrder=0,
            cluster=(ctypes.c_uint8 * 2)(wanted["cluster_m"], wanted["cluster_n"]),
        )
        time_s = asked.nvMatmulHeuristicsEstimateRuntime(
            asked.handle,
            precision(problem).encode(),
            ctypes.c_int(asked.target),
            ctypes.byref(self._described(problem)),
            ctypes.byref(configuration),
            asked.hardware_descriptor,
        )
        return time_s * 1e6 if time_s > 0 else None


def record_of(
    heuristics: Heuristics, kernels: dict[tuple[Problem, str], list[Kernel]]
) -> dict[str, Any]:
    """The record: a row for each problem and cache state, which the package does not tell apart."""
    rows = []
    for (problem, cache), measured in kernels.items():
        picked = heuristics.pick(problem)
        estimates = [(kernel, heuristics.estimate_us(problem, kernel)) for kernel in measured]
        rows.append(
            {
                **problem.to_dict(),
                "cache": cache,
                "pick": None if picked is None else picked[0],
                "time_us": None if picked is None else round(picked[1], TIME_DIGITS),
                "estimates": [
                    [*kernel, round(time_us, TIME_DIGITS)]
                    for kernel, time_us in estimates
                    if time_us is not None
                ],
            }
        )
    return {
        "package": PACKAGE,
        "version": version(PACKAGE),
        "target": TARGET,
        "gpu": GPU,
        "flags": FLAGS,
        "estimated_by": list(ESTIMATED_BY),
        "date": datetime.now(UTC).date().isoformat(),
        "rows": rows,
    }


def main() -> None:
    """Ask, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json.gz")
    out = parser.parse_args().out
    kernels = measured_kernels(rows_of(out.parent / "ground_truth.csv.gz"))
    record = record_of(Heuristics(), kernels)
    text = json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n"
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    estimates = sum(len(row["estimates"]) for row in record["rows"])
    asked = sum(map(len, kernels.values()))
    print(f"{PACKAGE} {record['version']}: {len(kernels)} problems, {estimates} of {asked} kernels")


if __name__ == "__main__":
    main()
