"""Where the time goes: Nsight Compute on rows that lose to cuBLAS, ours and cuBLAS's kernels.

    python -m bench.gpu_profile bench/results/h200/best_llm.json --below 0.95 \\
        --out bench/results/h200/profile.json

Takes the rows of role best whose ``ratio_high`` is below a bound and profiles one cold launch of
each (needs ``ncu`` on the path). Times under the profiler are longer than measured ones: shares
of what the hardware can do are what is read.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.evidence import begin, parser_of, progress_bar
from bench.files import write
from kernels.bench_plan import problem_of
from kernels.errors import ProfilerUnusable
from kernels.profiler import find_ncu, run_profiled

KEPT = re.compile(
    r"gpu__time_duration\.sum|sm__cycles_(active|elapsed)\.(avg|max)|lts__t_sector_hit_rate\.pct"
    r"|(sm|dram|lts|l1tex|gpu__compute_memory|gpu__dram)_*throughput\.avg\.pct_of_peak_\w+"
    r"|sm__\w*(tensor|gmma)\w*\.avg\.pct_of_peak_\w+|dram__bytes(_read|_write)?\.sum(\.per_second)?"
    r"|smsp__average_warps?_(latency_)?issue_stalled_\w+\.(ratio|pct)|sm__warps_active\.[\w.]+"
    r"|launch__(grid_size|block_size|registers_per_thread|waves_per_multiprocessor|cluster_\w+)"
    r"|launch__shared_mem_per_block(_dynamic)?"
)


def losing(path: Path, below: float) -> list[dict[str, Any]]:
    """Rows of role best whose whole interval lies below a ratio, the worst first."""
    rows = json.loads(path.read_text("utf-8"))["rows"]
    found = [
        row
        for row in rows
        if row["role"] == "best" and row["ratio_high"] is not None and row["ratio_high"] < below
    ]
    return sorted(found, key=lambda row: float(row["ratio_high"]))


def kernels_of(text: str) -> Iterator[dict[str, Any]]:
    """The kernels of ncu's raw page in CSV: each by name, with the metrics that are kept."""
    start = text.find('"ID"')
    table = csv.reader(io.StringIO(text[start:] if start >= 0 else ""))
    names, units = next(table, []), next(table, [])
    for values in table:
        if len(values) != len(names):
            continue
        row = dict(zip(names, values, strict=True))
        metrics = {
            f"{name} [{unit}]" if unit else name: float(row[name].replace(",", ""))
            for name, unit in zip(names, units, strict=True)
            if KEPT.fullmatch(name) and re.fullmatch(r"[-\d.,]+", row[name])
        }
        yield {"kernel": row["Kernel Name"], "metrics": metrics}


def profiled(ncu: str, row: dict[str, Any], profile: str) -> dict[str, Any]:
    """What the profiler says of a row; ``reason`` where it said nothing."""
    identity = {**problem_of(row).to_dict(), "config": row["config"]}
    found = identity | {"ratio_to_cublas": row["ratio_to_cublas"], "median_us": row["median_us"]}
    try:
        text = run_profiled(ncu, "bench.profile_launch", [json.dumps(identity), profile])
    except ProfilerUnusable as error:
        return found | {"kernels": [], "reason": str(error)}
    kernels = list(kernels_of(text))
    return found | {"kernels": kernels, "reason": None if kernels else "no kernel was profiled"}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every row was profiled; 1: some were not; 2: wrong arguments or file; 3: no GPU, no family
    or no ncu."""
    parser = parser_of("gpu_profile", __doc__)
    parser.add_argument("results", type=Path, help="a result file of kernels.bench")
    parser.add_argument("--below", type=float, default=0.95, help="upper end of the ratio")
    parser.add_argument("--most", type=int, default=12, help="rows at most, the worst first")
    early = parser.parse_args(arguments)
    try:
        rows = losing(early.results, early.below)[: early.most]
    except (OSError, ValueError, TypeError, KeyError) as error:
        parser.error(f"{early.results} is no result file of kernels.bench: {error!r}")
    try:
        ncu = find_ncu()
    except ProfilerUnusable as error:
        parser.exit(3, f"error: {error}\n")
    chosen, facts, device = begin(parser, arguments)
    found = []
    with progress_bar() as bar:
        task = bar.add_task("profile", total=len(rows), failed="")
        for row in rows:
            found.append(profiled(ncu, row, device.name))
            bar.advance(task)
    write(chosen.out, facts | {"below": chosen.below, "rows": found})
    return int(any(row["reason"] for row in found))


if __name__ == "__main__":
    sys.exit(main())
