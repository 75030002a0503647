"""``kernels.gemm`` on a GPU, what a call costs and ``torch.mm`` beside it, in words for
docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solver.accuracy import geomean

NAME = "gemm"
TITLE = "## Products of your own arrays"

Record = dict[str, Any]


def gemm_part(record: Record | None) -> str:
    """The section on ``bench.gpu_gemm``."""
    if record is None:
        return f"{TITLE}\n\n`bench.gpu_gemm`: not run."
    about = f"{record['device']}, driver {record['driver']}, {record['date'][:10]}"
    commit = str(record["commit"])[:12]
    return "\n\n".join(
        [
            f"{TITLE}\n\n`bench.gpu_gemm`, {about}, commit {commit}: "
            "[`kernels.gemm`](gemm.md) in one process. " + _failures(record["failures"]),
            _overhead(record["overhead"]),
            *(_at_once(row) for row in record["at_once"]),
            _beside_torch(record["beside_torch"]),
        ]
    )


def _failures(failures: Sequence[Record]) -> str:
    if not failures:
        return "Every step came to its end."
    return "**Failed**: " + "; ".join(f"{f['step']} {f['arguments']}: {f['why']}" for f in failures)


def _overhead(rows: Sequence[Record]) -> str:
    head = (
        "CPU time of a call of known arrays, in µs:\n\n"
        "| arrays of | bare launch | `gemm` into `out` | over the launch | `gemm` that makes C "
        "| `torch.mm` into `out` |\n|---|---|---|---|---|---|"
    )
    names = ("bare_us", "gemm_us", "over_us", "new_out_us", "torch_us")
    lines = [
        f"| {row['library']} | "
        + " | ".join(f"{row[name]:.1f}" if name in row else "-" for name in names)
        + " |"
        for row in rows
    ]
    return "\n".join([head, *lines])


def _at_once(row: Record) -> str:
    return (
        f"From many threads and streams at once, arrays of {row['library']}: {row['calls']} "
        f"products, {row['wrong']} wrong."
    )


def _beside_torch(rows: Sequence[Record]) -> str:
    wrong = sum(row["wrong"] for row in rows)
    head = (
        f"GPU time of `torch.mm` over that of `kernels.gemm`, {len(rows)} products in turns, "
        f"operands where the calls before left them; {wrong} wrong elements:\n\n"
        "| M | products | geomean | worst | best |\n|---|---|---|---|---|"
    )
    by_m = [
        (f"{m:,}", [row for row in rows if row["m"] == m]) for m in sorted({r["m"] for r in rows})
    ]
    lines = []
    for name, part in [("all", rows), *by_m]:
        against = [float(row["torch_over_gemm"]) for row in part]
        lines.append(
            f"| {name} | {len(part)} | {geomean(against):.3f} | {min(against):.3f} "
            f"| {max(against):.3f} |"
        )
    return "\n".join([head, *lines])
