"""What the solver's own benches recorded, in words and tables for docs/results.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.records import read_solver
from kernels.sources import source_hash
from kernels.table import table_keys


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
    """What the compiler makes of every key or a sample, or that it was not asked for these."""
    asked = compiled["configs"]
    if asked > keys or compiled["source_hash"] != source_hash():
        return (
            f"Launch registers of {keys} compile keys are the compiler's own, measured from these "
            "sources; `bench compile`, which holds every key against them, was not run on these."
        )
    return (
        f"{f'All {keys}' if asked == keys else f'A sample of {asked} of {keys}'} distinct compile "
        f"keys build for {compiled['arch']} with NVRTC "
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


def memory_limits_part(result: dict[str, Any]) -> str:
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


def solver_parts(results: Path) -> list[str]:
    """Sections of the solver's own benches, those that were run."""
    wishes = {name: read_solver(name, results) for name in WISHES}
    constraints, memory = read_solver("constraints", results), read_solver("memory", results)
    strategies = read_solver("strategies", results)
    parts = []
    if constraints and all(wishes.values()):
        parts.append(wishes_part(wishes, constraints))
    if memory:
        parts.append(memory_limits_part(memory))
    if strategies:
        parts.append(strategies_part(strategies))
    return parts


def solver_lines(results: Path) -> list[str]:
    """The solver's and the compiler's figures in sentences, those that were recorded."""
    solve, compiled = read_solver("llm", results), read_solver("compile", results)
    checks = [read_solver(f"check_{name}", results) for name in ("llm", "random100")]
    lines = []
    if solve:
        checked = [check_line(checks)] if all(checks) else []
        lines.append(" ".join([solve_line(solve), *checked]))
    if compiled:
        lines.append(compile_line(compiled, len(table_keys())))
    return lines
