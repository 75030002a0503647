"""Remake everything that is shown of recorded results: docs/results.md, the README's table, plots.

    python -m bench.report

Reads bench/results/; measures nothing. Needs the extra ``bench``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.evidence_page import evidence_part, read_evidence
from bench.fit import is_held_out
from bench.plots import plot_predictions, plot_ratios, plot_solve_times
from kernels.bench_plan import problem_of
from kernels.sources import source_hash
from kernels.table import table_keys
from solver.engine import Engine
from solver.families.sm90_gemm_operands import copied_operands, stores_by_tma
from solver.problem import Problem
from solver.question import Question

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "docs" / "img"
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
START, END = "<!-- results: made by python -m bench.report -->", "<!-- end of results -->"

SUITES = {
    "llm": "96 shapes of language models, cold",
    "paper64": "64 small cubes of the paper's suite, warm",
    "odd20": "20 shapes that are no multiple of any tile, cold",
    "any30": "30 of every layout, output type, pitch and alignment, cold",
}

Row = dict[str, Any]


def geomean(values: Iterable[float]) -> float:
    """Geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def read_picks() -> dict[str, dict[str, Any]]:
    """The recorded result files of picks, by suite."""
    return {
        suite: json.loads((RESULTS / "h200" / f"picks_{suite}.json").read_text("utf-8"))
        for suite in SUITES
    }


def read_solver(name: str) -> dict[str, Any]:
    """A recorded result of the solver's benches."""
    result: dict[str, Any] = json.loads((RESULTS / "solver" / f"{name}.json").read_text("utf-8"))
    return result


def current_picks() -> dict[str, dict[str, Any]]:
    """``read_picks``; SystemExit where one is not the present model's pick any more."""
    picks = read_picks()
    engine = Engine()
    for suite, result in picks.items():
        for row in result["rows"]:
            problem = problem_of(row)
            question = Question(problem, proof="none", cache=row["cache"])
            if engine.optimize(question).config.to_dict() != row["config"]:
                raise SystemExit(f"{suite}: {problem} was measured with another model's pick")
    return picks


def _error(row: Row) -> float:
    return abs(float(row["predicted_us"]) / float(row["median_us"]) - 1)


def _suite_line(name: str, rows: Sequence[Row]) -> str:
    passed = [row for row in rows if row["status"] == "passed"]
    ratios = [row["ratio_to_cublas"] for row in passed if row.get("ratio_to_cublas")]
    errors = [_error(row) for row in passed]
    return (
        f"| {name} | {len(passed)} of {len(rows)} | {geomean(ratios):.3f} | {min(ratios):.3f} "
        f"| {max(ratios):.3f} | {sum(errors) / len(errors):.1%} | {max(errors):.1%} |"
    )


def suite_table(picks: dict[str, dict[str, Any]]) -> str:
    """One line a suite: passed, ratio to cuBLAS, prediction error."""
    head = (
        "| picks on one H200 | passed | cuBLAS / ours, geomean | worst | best "
        "| prediction error, mean | worst |\n|---|---|---|---|---|---|---|"
    )
    rows = picks["llm"]["rows"]
    lines = [_suite_line(SUITES["llm"], rows)]
    unseen = [row for row in rows if is_held_out(row["m"], row["n"], row["k"])]
    lines.append(_suite_line("of these, shapes that no constant was fitted to", unseen))
    for m in sorted({row["m"] for row in rows}):
        part = [row for row in rows if row["m"] == m]
        if len(part) > 1:
            lines.append(_suite_line(f"of these, M = {m}", part))
    lines += [_suite_line(SUITES[s], picks[s]["rows"]) for s in SUITES if s != "llm"]
    return "\n".join([head, *lines])


def _operands(row: Row) -> str:
    """Layout, types, pitches and offsets of a row's problem, those that say something."""
    problem = problem_of(row)
    packed = Problem(problem.m, problem.n, problem.k, problem.dtype, problem.layout)
    words = [problem.layout]
    if problem.out != problem.dtype:
        words.append(f"C {problem.out}")
    for field in ("lda", "ldb", "ldc", "a_offset", "b_offset", "c_offset"):
        if getattr(problem, field) != getattr(packed, field):
            words.append(f"{field} {getattr(problem, field)}")
    copied = copied_operands(problem)
    if copied:
        words.append(f"{' and '.join(copied).upper()} copied")
    if not stores_by_tma(problem):
        words.append("C by elements")
    return ", ".join(words)


def _compared(row: Row) -> str:
    """cuBLAS's time and the ratio; a dash each where it takes no such problem."""
    if row.get("ratio_to_cublas") is None:
        return "- | -"
    interval = f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}"
    return f"{row['cublas_us']:.2f} | {row['ratio_to_cublas']:.3f} ({interval})"


def shape_table(rows: Sequence[Row], solve: dict[Problem, Row]) -> str:
    """One line a shape: what was picked, predicted, measured, and how long the answer took."""
    lines = [
        "| m | n | k | operands | tile | stages | split | cluster | predicted µs | measured µs "
        "| cuBLAS µs | ratio (interval) | space | answer ms |",
        f"|{'---|' * 14}",
    ]
    for row in rows:
        c = row["config"]
        asked = solve.get(problem_of(row))
        answer = f"{asked['configurations']} | {asked['total_ms']:.1f}" if asked else "|"
        tile = f"{c['tile_m']}x{c['tile_n']}x{c['tile_k']}"
        cluster = f"{c['cluster_m']}x{c['cluster_n']}"
        times = f"{row['predicted_us']:.2f} | {row['median_us']:.2f}"
        lines.append(
            f"| {row['m']} | {row['n']} | {row['k']} | {_operands(row)} | {tile} | {c['stages']} "
            f"| {c['split_k']} | {cluster} | {times} | {_compared(row)} | {answer} |"
        )
    return "\n".join(lines)


def solve_line(solve: dict[str, Any]) -> str:
    """The solver's figures in a sentence."""
    return (
        f"Answers with proof over {solve['shapes']} shapes, nothing cached, on {solve['cores']} "
        "cores: "
        f"median {solve['p50_ms']:.1f} ms, p99 {solve['p99_ms']:.1f} ms, the pick alone "
        f"{solve['pick_p50_ms']:.1f} ms; {solve['space_p50']:.0f} legal configurations in the "
        f"median ({solve['space_min']} to {solve['space_max']}); start-up "
        f"{solve['startup_s']:.2f} s, {solve['rss_mb']:.0f} MB."
    )


def compile_line(compiled: dict[str, Any], keys: int) -> str:
    """What the compiler makes of every key, or that it was not asked for the present ones."""
    if (compiled["configs"], compiled["source_hash"]) != (keys, source_hash()):
        return (
            f"Launch registers of {keys} compile keys are the compiler's own, measured from these "
            "sources; `bench compile`, which holds every key against them, was not run on these."
        )
    return (
        f"All {keys} distinct compile keys build for {compiled['arch']} with NVRTC "
        f"{compiled['nvrtc']}: {compiled['failed']} failed, {compiled['spilled']} spilled, "
        f"{compiled['smem_mismatch']} and {compiled['register_mismatch']} disagree with the "
        "solver on shared memory and registers."
    )


def check_line(checks: Sequence[dict[str, Any]]) -> str:
    """What brute force found."""
    shapes = sum(check["shapes"] for check in checks)
    equal = sum(check["equal_to_brute_force"] for check in checks)
    refused = sum(check["controls_refused"] for check in checks)
    return (
        f"Over {shapes} shapes (the LLM suite and 100 random ones) {equal} picks equal brute force "
        f"over the whole legal space, every configuration played event by event; claims of one "
        f"tick more time or wait were refused for {refused}."
    )


def strategies_part(result: dict[str, Any]) -> str:
    """One joint solve against layered ones: what each found and how long it took."""
    lines = [
        "| strategy | shapes | configurations, median | optimum found | gap, geomean | worst "
        "| simulate, ms | solve, ms | both, ms | p99, ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in result["strategies"].items():
        times = (row[key] for key in ("simulate_p50_ms", "solve_p50_ms", "p50_ms", "p99_ms"))
        lines.append(
            f"| {name} | {row['shapes']} | {row['configurations_p50']:.0f} "
            f"| {row['optimum']:.1%} | {row['geomean_gap']:.2%} | {row['worst_gap']:.1%} "
            f"| {' | '.join(f'{time:.1f}' for time in times)} |"
        )
    shapes = result["by_shape"]
    missed = [shape for shape in shapes if not shape["strategies"]["layered_1"]["optimum"]]
    apart = Counter(name for shape in missed for name in shape["optimum_apart"])
    farthest = max(shapes, key=lambda shape: int(shape["optimum_layer_rank"]))
    return "\n\n".join(
        [
            "## One joint solve against simulating first",
            "Liu and Grover (arXiv 2506.11209) suggest to prune by simulation and to solve inside "
            f"what is left. Here a layer is ({', '.join(result['layer'])}); layered_N plays one "
            "configuration of each layer, keeps the N fastest layers and picks and proves inside "
            "these alone, so that its proof says nothing of the others; joint picks and proves "
            "over the whole space. "
            "z3_alone searches the first layer without a candidate, where it has at most "
            f"{result['searched_rows_max']} configurations. Suite {result['suite']}, "
            f"{result['shapes']} shapes, {result['cores']} cores; gaps are of predicted times. "
            f"Of a run at most {result['played_iterations_max']} k-iterations are played (all of "
            f"them for {result['played_whole']:.0%} of the layers); the rest is extended at the "
            "pace reached. Times are medians without the table's own "
            f"{result['tabulate_p50_ms']:.1f} ms.",
            "\n".join(lines),
            f"layered_1 misses {len(missed)} optima: they have what no layer's one configuration "
            f"has, {', '.join(f'{name} in {n}' for name, n in apart.most_common())}. At worst the "
            f"optimum's layer is in place {farthest['optimum_layer_rank']} of "
            f"{farthest['layers']} ({farthest['m']} x {farthest['n']} x {farthest['k']}). "
            "On what z3_alone searched, a pick and a proof with numpy's candidate "
            f"take {result['with_candidate_p50_ms']:.1f} ms.",
        ]
    )


WISHES = {
    "llm": "none",
    "smem_96": "shared memory at most 96 KiB",
    "smem_64": "shared memory at most 64 KiB",
    "smem_32": "shared memory at most 32 KiB",
    "sms_100": "at most 100 SMs",
    "sms_64": "at most 64 SMs",
    "weighted": "time + 0.05 µs for each KiB (20 shapes)",
    "pareto": "front of time, wait and shared memory within 1.25 (20 shapes)",
}


def wishes_part(records: dict[str, dict[str, Any]], constraints: dict[str, Any]) -> str:
    """Answers under constraints and other objectives: how long, and whether right."""
    lines = [
        "| wish | shapes | proved | median, ms | p99, ms | competed, median | as brute force |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, words in WISHES.items():
        row = records[name]
        checked = row.get("equal_to_brute_force", "")
        lines.append(
            f"| {words} | {row['shapes']} | {row['optimal']} | {row['p50_ms']:.1f} "
            f"| {row['p99_ms']:.1f} | {row['space_p50']:.0f} | {checked} |"
        )
    c = constraints
    return "\n\n".join(
        [
            "## Constraints and objectives",
            "Answers with proof, uncached (`bench solve` with `--constraints`, `--objective`).",
            "\n".join(lines),
            f"Of {c['sets']} random constraint sets over the LLM suite (`bench constraints`), "
            f"{c['satisfiable']} leave something: {c['equal_to_brute_force']} picks equal brute "
            f"force. {c['unsatisfiable']} leave nothing: {c['minimal_cores']} cores are minimal by "
            f"trying every subset (sizes {_sizes(c['core_sizes'])}), and all relaxations of "
            f"{c['least_relaxations']} are the least by trying every value. A core is told in "
            f"{c['core_p50_ms']:.1f} ms in the median, {c['core_p99_ms']:.1f} at p99.",
        ]
    )


def _sizes(counts: dict[str, int]) -> str:
    return ", ".join(f"{size}: {count}" for size, count in counts.items())


def memory_part(result: dict[str, Any]) -> str:
    """Shared memory as a limit and as a penalty."""
    lines = [
        "| shared memory | predicted time over the free pick's, geomean | worst "
        "| KiB taken, median | largest |",
        "|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        words = {
            "free": "free",
            "limit": f"at most {row['value']} KiB",
            "penalty": f"{row['value']} µs for each KiB",
        }[row["kind"]]
        lines.append(
            f"| {words} | {row['time_ratio_geomean']:.3f} | {row['time_ratio_worst']:.3f} "
            f"| {row['smem_kib_p50']:.0f} | {row['smem_kib_max']:.0f} |"
        )
    return "\n\n".join(
        [
            "## Shared memory as a limit and as a penalty",
            f"`bench memory` over the LLM suite, {result['shapes']} shapes, predicted times. A "
            "limit holds for every shape; a penalty lets those keep their memory that gain by it, "
            "so that for the same median it costs less time.",
            "\n".join(lines),
        ]
    )


def main() -> None:
    """Write the page, the README's part and the images."""
    picks = current_picks()
    solve = read_solver("llm")
    checks = [read_solver(f"check_{name}") for name in ("llm", "random100")]
    strategies = read_solver("strategies")
    wishes = {name: read_solver(name) for name in WISHES}
    compiled = read_solver("compile")
    IMAGES.mkdir(exist_ok=True)
    plot_ratios({SUITES[s]: picks[s]["rows"] for s in SUITES}, IMAGES / "ratio_to_cublas.png")
    plot_predictions({SUITES[s]: picks[s]["rows"] for s in SUITES}, IMAGES / "predictions.png")
    plot_solve_times(solve["by_shape"], IMAGES / "solve_times.png")

    about = picks["llm"]
    compared = sorted({str(row["comparison"]) for row in about["rows"]})
    figures = "\n\n".join(
        [
            suite_table(picks),
            solve_line(solve) + " " + check_line(checks),
            compile_line(compiled, len(table_keys())),
        ]
    )
    by_problem = {problem_of(row): row for row in solve["by_shape"]}
    parts = [
        "# Recorded results\n\nMade by `python -m bench.report` from `bench/results/`.",
        f"Device {about['device']}, driver {about['driver']}, NVRTC {about['nvrtc']}, "
        f"{about['date'][:10]}, commit {str(about['commit'])[:12]}. A row passes with the exact "
        "and the statistical check of `docs/kernels.md`. Compared with "
        f"{', '.join(compared)}, interleaved in the same process.",
        figures,
        "![ratio to cuBLAS](img/ratio_to_cublas.png)",
        "![predicted against measured](img/predictions.png)",
        "![time of an answer](img/solve_times.png)",
        evidence_part(read_evidence(RESULTS / "h200"), read_solver("protocol")),
        wishes_part(wishes, read_solver("constraints")),
        memory_part(read_solver("memory")),
        strategies_part(strategies),
    ]
    for suite, title in SUITES.items():
        parts.append(f"## {title}\n\n{shape_table(picks[suite]['rows'], by_problem)}")
    PAGE.write_text("\n\n".join(parts) + "\n", "utf-8")

    readme = README.read_text("utf-8")
    before, rest = readme.split(START)
    _, after = rest.split(END)
    README.write_text(f"{before}{START}\n\n{figures}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
