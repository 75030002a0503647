"""How fast the kernel is next to others and next to the device, in tables for docs/results.md.

Each part is None where nothing of it was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.records import SUITES, Result, Row, passed, question, ratios, regrets
from kernels.bench_plan import problem_of
from solver.accuracy import geomean

MEMORY_BOUND_M = 64
MEMORY_BOUND_BYTES = 100e6

Sources = Mapping[str, Sequence[Mapping[str, Result]]]
"""Results by role, then by suite, of each kind of file, the first of them that tells before the
others."""

RIVALS = {
    "ratio_to_cublaslt_best8": "cuBLASLt, best of its first eight algorithms",
    "ratio_to_triton": "Triton's persistent kernel, autotuned",
}


def _figures(values: Sequence[float], form: str = ".3f") -> str:
    """Geometric mean, least and most; dashes where there are none."""
    if not values:
        return "- | - | -"
    return " | ".join(format(x, form) for x in (geomean(values), min(values), max(values)))


def _groups(rows: Iterable[Row]) -> list[tuple[str, Callable[[Row], bool]]]:
    """Every M of the rows, then all of them, with what belongs to it."""

    def of(m: int) -> Callable[[Row], bool]:
        return lambda row: row["m"] == m

    return [(str(m), of(m)) for m in sorted({row["m"] for row in rows})] + [("all", bool)]


def by_m_part(suite: str, beside: Result | None, best: Result | None) -> str | None:
    """Ratio to cuBLAS by M, of the pick and of the best, and the pick's regret.

    ``beside`` are the picks of the best's own run.
    """
    if beside is None or best is None:
        return None
    rows, best_rows = passed(beside["rows"]), passed(best["rows"])
    lost = regrets(rows, best_rows)
    lines = [
        "| M | shapes | pick: geomean | worst | best | best of several: geomean | worst | best "
        "| pick over best: geomean | least | most |",
        f"|{'---|' * 11}",
    ]
    for name, belongs in _groups(rows):
        mine = [row for row in rows if belongs(row)]
        chosen = [row for row in best_rows if belongs(row)]
        losses = [regret for row, regret in lost if belongs(row)]
        lines.append(
            f"| {name} | {len(mine)} | {_figures(ratios(mine))} | {_figures(ratios(chosen))} "
            f"| {_figures(losses)} |"
        )
    words = (
        "Time of cuBLAS over ours. The best is the fastest of several configurations, the model's "
        "first ones and others of further tiles, chosen in one pass and timed afresh; pick over "
        "best is the time of the pick over that of the best, each told by its ratio to cuBLAS."
    )
    return "\n\n".join([f"## {SUITES[suite]}, by M", words, "\n".join(lines)])


def rivals_part(sources: Sources) -> str | None:
    """Time of each rival over ours, by suite and role."""
    lines = []
    for suite, title in SUITES.items():
        for role, results in sources.items():
            runs = [of_suite[suite]["rows"] for of_suite in results if suite in of_suite]
            for field, name in RIVALS.items():
                asked = (rows for rows in runs if any(field in row for row in rows))
                rows = next(asked, None)
                if rows is None:
                    continue
                values = ratios(rows, field)
                lines.append(
                    f"| {title} | {role} | {name} | {len(values)} of {len(rows)} "
                    f"| {_figures(values)} |"
                )
    if not lines:
        return None
    head = ["| suite | role | against | shapes | geomean | worst | best |", f"|{'---|' * 7}"]
    return "\n\n".join(
        [
            "## Against more than cuBLAS's default",
            "Time of the other over ours, interleaved with ours in the same process. Each runs the "
            "fastest of its candidates for the problem, all of which gave our result but for "
            "rounding: the algorithms that cuBLASLt's heuristic names first, with 32 MiB of "
            "workspace, and configurations of a persistent TMA kernel in Triton.",
            "\n".join([*head, *lines]),
        ]
    )


def memory_part(
    suite: str, results: dict[str, dict[str, Result]], ceilings: dict[str, Any] | None
) -> str | None:
    """Rows that memory bounds, as a part of the measured bandwidth of reads."""
    read = None if ceilings is None else ceilings.get("read_gb_per_s")
    if read is None:
        return None
    lines = []
    for role, of_role in results.items():
        rows = [
            row
            for row in passed(of_role.get(suite, {"rows": []})["rows"])
            if row["cache"] == "cold"
            and row["m"] <= MEMORY_BOUND_M
            and problem_of(row).operand_bytes > MEMORY_BOUND_BYTES
        ]
        for name, belongs in _groups(rows) if rows else []:
            mine = [row for row in rows if belongs(row)]
            shares = [_gb_per_s(row) / read for row in mine]
            theirs = [
                _gb_per_s(row) / read / row["ratio_to_cublas"] for row in mine if ratios([row])
            ]
            lines.append(
                f"| {role} | {name} | {len(mine)} | {_figures(shares)} | {_figures(theirs)} |"
            )
    if not lines:
        return None
    head = [
        "| role | M | shapes | ours: geomean | least | most | cuBLAS: geomean | least | most |",
        f"|{'---|' * 9}",
    ]
    return "\n\n".join(
        [
            "## Bound by memory",
            f"Of {SUITES[suite]}, products of M at most {MEMORY_BOUND_M} whose operands are over "
            f"{MEMORY_BOUND_BYTES / 1e6:.0f} MB: bytes of A, B and C over time, as a part of "
            f"what a kernel that only reads gets ({read:.0f} GB/s).",
            "\n".join([*head, *lines]),
        ]
    )


def _gb_per_s(row: Row) -> float:
    return problem_of(row).operand_bytes / float(row["median_us"]) / 1e3


def ceilings_part(ceilings: dict[str, Any] | None) -> str | None:
    """The measured ceilings in a sentence each."""
    if ceilings is None:
        return None
    told = {
        "copy_gb_per_s": "a large copy moves {:.0f} GB/s, reads and writes",
        "read_gb_per_s": "a kernel that only reads gets {:.0f} GB/s",
        "tensor_tflops": "wgmma alone, no loads, does {:.0f} TFLOP/s, timed as a row is",
        "tensor_held_tflops": "and {:.0f} TFLOP/s over a second",
    }
    words = [form.format(ceilings[name]) for name, form in told.items() if ceilings.get(name)]
    clock = ceilings.get("tensor_held_sm_clock_mhz")
    if clock:
        words[-1] += f", at {clock} MHz"
    return f"Measured ceilings (`bench.gpu_ceilings`): {'; '.join(words)}." if words else None


def sustained_part(sources: Sources) -> str | None:
    """Large products, each side for a second at a time."""
    lines, seen = [], set()
    for role, results in sources.items():
        every = [row for of_suite in results for r in of_suite.values() for row in r["rows"]]
        for row in passed(every):
            key = (role, *question(row))
            if row.get("sustained_us") and key not in seen:
                seen.add(key)
                lines.append(_sustained_line(role, row))
    if not lines:
        return None
    head = [
        "| m | n | k | role | ours, TFLOP/s | MHz | W | cuBLAS, TFLOP/s | MHz | W | ratio | low "
        "| high |",
        f"|{'---|' * 13}",
    ]
    return "\n\n".join(
        [
            "## Held for a second",
            "Ours and cuBLAS in turn, each for a second of GPU time, at the clock and power that "
            "it holds; the ratio is of holds that follow one another.",
            "\n".join([*head, *lines]),
        ]
    )


def _sustained_line(role: str, row: Row) -> str:
    flops = problem_of(row).flops

    def side(prefix: str) -> str:
        time_us, watts = row.get(f"{prefix}_us"), row.get(f"{prefix}_power_w")
        cells = (
            "-" if not time_us else f"{flops / time_us / 1e6:.0f}",
            str(row.get(f"{prefix}_sm_clock_mhz") or "-"),
            "-" if watts is None else f"{watts:.0f}",
        )
        return " | ".join(cells)

    names = ("sustained_ratio_to_cublas", "sustained_ratio_low", "sustained_ratio_high")
    ratio = " | ".join(f"{row[name]:.3f}" if row.get(name) else "-" for name in names)
    return (
        f"| {row['m']} | {row['n']} | {row['k']} | {role} | {side('sustained')} "
        f"| {side('sustained_cublas')} | {ratio} |"
    )


HOW_TO = """## How to make these

A suite is a CSV file of problems; `llm` and `paper` ship, others are in `bench/suites/`
(`python -m bench.make_suites` remakes odd40, unaligned20 and further60). Plan where the project is
installed (in a checkout `. .venv/bin/activate` puts its commands on the path), measure on the GPU
host, then make the page:

```
warpwright bench plan --suite llm --out plan.json                # picks alone
warpwright bench plan --suite llm --best 30 --out plan.json      # and the best of 30, picks beside
python -m bench.gpu_ceilings --out bench/results/h200/ceilings.json
python -m kernels.bench plan.json --out bench/results/h200/best_llm.json \\
    --triton --cublaslt --ceilings bench/results/h200/ceilings.json
warpwright bench plan --suite bench/suites/squares2.csv --best 30 --out squares.json
python -m kernels.bench squares.json --out bench/results/h200/best_squares2.json --sustained
python -m bench.gpu_profile bench/results/h200/best_llm.json --out bench/results/h200/profile.json
python -m bench.report
```

Results go to `bench/results/h200/` as `picks_SUITE.json` or, of a plan with `--best`,
`best_SUITE.json`; what is not there is left out here. `--triton` and `--cublaslt` take some
seconds a row, `--sustained` half a minute for each product of 2^40 operations or more. Errors and
regrets over the ground truth: [accuracy](accuracy.md)."""
