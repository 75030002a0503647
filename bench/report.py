"""Remake everything that is shown of recorded results: docs/results.md, the README's table, plots.

    python -m bench.report

Reads bench/results/; measures nothing. Needs the extra ``bench``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.ablation import NAME as ABLATION
from bench.ablation import ablation_table
from bench.accuracy_page import IMAGES as ACCURACY_IMAGES
from bench.accuracy_page import accuracy_line, accuracy_parts, draw_accuracy, read_accuracy
from bench.evidence_page import evidence_part, read_evidence
from bench.fused_page import draw_fused, fused_line, fused_part, read_fused
from bench.gemm_page import NAME as GEMM
from bench.gemm_page import gemm_part
from bench.losses_page import losses_part
from bench.plots import (
    plot_predictions,
    plot_ratios,
    plot_ratios_by_m,
    plot_roofline,
    plot_solve_times,
)
from bench.power_page import power_part
from bench.records import (
    DEVICE,
    RESULTS,
    SUITES,
    Result,
    Row,
    passed,
    ratios,
    read_best,
    read_ceilings,
    read_picks,
    read_picks_beside_best,
    read_record,
    read_solver,
)
from bench.service_page import NAME as SERVICE
from bench.service_page import http_part, load_part, service_part
from bench.solver_page import solver_lines, solver_parts
from bench.speed_page import (
    HOW_TO,
    by_m_part,
    ceilings_part,
    memory_part,
    rivals_part,
    sustained_part,
)
from bench.trace_page import TIMELINES, draw_traces, trace_line, trace_part
from kernels.bench_plan import problem_of
from solver.accuracy import geomean
from solver.engine import Engine
from solver.families.sm90_gemm_operands import copied_operands, stores_by_tma
from solver.model_version import MODEL_VERSION
from solver.problem import Problem
from solver.question import Question
from solver.split import is_held_out

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "img"
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
SHOWN, WORST = 100, 20  # shapes of a suite that are shown whole; of others the worst alone
START, END = "<!-- results: made by python -m bench.report -->", "<!-- end of results -->"


def stale_line(picks: dict[str, Result]) -> str | None:
    """How many recorded picks are no longer the present model's; None where all are."""
    engine, stale, count = Engine(), 0, 0
    for result in picks.values():
        for row in result["rows"]:
            question = Question(problem_of(row), proof="none", cache=row["cache"])
            stale += engine.optimize(question).config.to_dict() != row["config"]
            count += 1
    if not stale:
        return None
    return (
        f"**Not measured yet with model {MODEL_VERSION}**: {stale} of the {count} picks below were "
        "an earlier model's when they were timed, and the present one picks others."
    )


def _error(row: Row) -> float:
    return abs(float(row["predicted_us"]) / float(row["median_us"]) - 1)


def _suite_line(name: str, rows: Sequence[Row]) -> str:
    done = passed(rows)
    against, errors = ratios(rows), [_error(row) for row in done]
    cells = ["-"] * 5
    if against:
        cells[:3] = (f"{x:.3f}" for x in (geomean(against), min(against), max(against)))
    if errors:
        cells[3:] = (f"{x:.1%}" for x in (sum(errors) / len(errors), max(errors)))
    return f"| {name} | {len(done)} of {len(rows)} | {' | '.join(cells)} |"


def suite_table(picks: dict[str, dict[str, Any]], parts: bool = True) -> str:
    """One line a suite: passed, ratio to cuBLAS, prediction error; ``parts`` of the LLM suite
    too."""
    head = (
        "| picks on one H200 | passed | cuBLAS / ours, geomean | worst | best "
        "| prediction error, mean | worst |\n|---|---|---|---|---|---|---|"
    )
    lines = []
    for suite, title in SUITES.items():
        if suite not in picks:
            lines.append(f"| {title} | not run | | | | | |")
            continue
        rows = picks[suite]["rows"]
        lines.append(_suite_line(title, rows))
        lines += _llm_lines(rows) if suite == "llm" and parts else []
    return "\n".join([head, *lines])


def _llm_lines(rows: Sequence[Row]) -> list[str]:
    """Parts of the LLM suite: what the fit has not seen, and each M of several shapes."""
    unseen = [row for row in rows if is_held_out(row["m"], row["n"], row["k"])]
    parts = {"of these, shapes that no constant was fitted to": unseen}
    for m in sorted({row["m"] for row in rows}):
        part = [row for row in rows if row["m"] == m]
        if len(part) > 1:
            parts[f"of these, M = {m}"] = part
    return [_suite_line(name, part) for name, part in parts.items() if part]


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
        measured = row["reason"] if row["median_us"] is None else f"{row['median_us']:.2f}"
        times = f"{row['predicted_us']:.2f} | {measured}"
        lines.append(
            f"| {row['m']} | {row['n']} | {row['k']} | {_operands(row)} | {tile} | {c['stages']} "
            f"| {c['split_k']} | {cluster} | {times} | {_compared(row)} | {answer} |"
        )
    return "\n".join(lines)


def shapes_part(title: str, rows: Sequence[Row], solve: dict[Problem, Row]) -> str:
    """A suite's shapes; of one with more than SHOWN those that lose most to cuBLAS."""
    note = ""
    if len(rows) > SHOWN:
        compared = sorted((r for r in rows if r.get("ratio_to_cublas")), key=_ratio)
        rows, note = compared[:WORST], f"\n\nThe {WORST} that lose most to cuBLAS."
    return f"## {title}{note}\n\n{shape_table(rows, solve)}"


def _ratio(row: Row) -> float:
    return float(row["ratio_to_cublas"])


def _about(picks: dict[str, Result]) -> str:
    """What the picks were measured on, by the first suite that was."""
    result = next(iter(picks.values()), None)
    if result is None:
        return "No pick has been timed on a GPU."
    compared = sorted({str(row["comparison"]) for row in result["rows"]})
    return (
        f"Device {result['device']}, driver {result['driver']}, NVRTC {result['nvrtc']}, "
        f"{result['date'][:10]}, commit {str(result['commit'])[:12]}. A row passes with the exact "
        "and the statistical check of `docs/kernels.md`. Compared with "
        f"{', '.join(compared)}, interleaved in the same process."
    )


def draw(
    picks: dict[str, Result],
    best: dict[str, Result],
    ceilings: dict[str, Any] | None,
    solve: dict[str, Any] | None,
    images: Path,
) -> dict[str, str]:
    """Draw what there are records for; file names by what a reader is told they show."""
    images.mkdir(exist_ok=True)
    of_suite = {title: picks[s]["rows"] for s, title in SUITES.items() if s in picks}
    compared = {title: rows for title, rows in of_suite.items() if ratios(rows)}
    drawn = {}
    if SUITES["llm"] in compared:
        rows, title = picks["llm"]["rows"], f"{SUITES['llm']}: each interleaved with cuBLAS"
        found = best["llm"]["rows"] if "llm" in best else []
        plot_ratios_by_m(rows, found, title, images / "ratio_by_m.png")
        drawn["ratio to cuBLAS by M"] = "ratio_by_m.png"
    if of_suite and ceilings:
        plot_roofline(of_suite, ceilings, images / "roofline.png")
        drawn["achieved and possible"] = "roofline.png"
    if compared:
        plot_ratios(compared, images / "ratio_to_cublas.png")
        drawn["ratio to cuBLAS"] = "ratio_to_cublas.png"
    if of_suite:
        plot_predictions(of_suite, images / "predictions.png")
        drawn["predicted against measured"] = "predictions.png"
    if solve:
        plot_solve_times(solve["by_shape"], images / "solve_times.png")
        drawn["time of an answer"] = "solve_times.png"
    return drawn


README_IMAGES = (
    "ratio_by_m.png",
    "roofline.png",
    *ACCURACY_IMAGES.values(),
    *(name for _, name in TIMELINES.values()),
)
ACROSS = 2
"""Pictures beside one another."""


def _gallery(drawn: dict[str, str], folder: str) -> str:
    """Pictures as a table with their words above; empty where there is none."""
    shown = list(drawn.items())
    rows = [shown[first : first + ACROSS] for first in range(0, len(shown), ACROSS)]
    lines = []
    for row in rows:
        cells = [
            [words for words, _ in row],
            [f"![{words}]({folder}/{name})" for words, name in row],
        ]
        filled = [" | ".join([*line, *[""] * (ACROSS - len(line))]) for line in cells]
        lines.append(f"| {filled[0]} |\n|{'---|' * ACROSS}\n| {filled[1]} |")
    return "\n\n".join(lines)


def _shown(drawn: dict[str, str], folder: str) -> list[str]:
    return [f"![{words}]({folder}/{name})" for words, name in drawn.items()]


def make(
    picks: dict[str, Result],
    results: Path = RESULTS,
    page: Path = PAGE,
    readme: Path = README,
    images: Path = IMAGES,
) -> None:
    """Write the page, the README's part and the images from these picks and the other records."""
    stale = stale_line(picks)
    notes = [stale] if stale else []
    best, beside = read_best(results), read_picks_beside_best(results)
    sources = {"pick": (beside, picks), "best": (best,)}
    ceilings, solve = read_ceilings(picks, results), read_solver("llm", results)
    drawn = draw(picks, best, ceilings, solve, images)
    truth, why = read_accuracy(results / DEVICE, DEVICE)
    drawn |= draw_accuracy(truth, results / DEVICE, DEVICE, images)
    trace = read_record(results / DEVICE / "trace.json")
    drawn |= draw_traces(trace, images)
    divided, why_not = read_fused(results / DEVICE, DEVICE)
    fused_drawn = draw_fused(divided, images)
    ceilings_line = ceilings_part(ceilings)
    figures = [
        suite_table(picks),
        *solver_lines(results),
        *([ceilings_line] if ceilings_line else []),
    ]
    speed = [
        *(by_m_part(suite, beside.get(suite), best.get(suite)) for suite in ("llm", "odd40")),
        rivals_part(sources),
        memory_part("llm", {"pick": picks, "best": best}, ceilings),
        sustained_part(sources),
        losses_part(read_record(results / DEVICE / "profile.json")),
        ablation_table(read_record(results / DEVICE / ABLATION)),
    ]
    parts = [
        "# Recorded results\n\nMade by `python -m bench.report` from `bench/results/`.",
        _about(picks),
        *notes,
        *figures,
        *accuracy_parts(truth, why, ""),
        *_shown(drawn, "img"),
        *(part for part in speed if part),
        trace_part(trace),
        power_part(
            read_record(results / DEVICE / "power_errors.json"),
            read_record(results / DEVICE / "power_held.json"),
        ),
        fused_part(divided, why_not, _shown(fused_drawn, "img")),
        evidence_part(read_evidence(results / "h200"), read_solver("protocol", results)),
        service_part(read_record(results / DEVICE / f"{SERVICE}.json")),
        http_part(read_record(results / DEVICE / "http_verifications.json")),
        load_part(read_record(results / "service" / "load.json")),
        gemm_part(read_record(results / DEVICE / f"{GEMM}.json")),
        *solver_parts(results),
        HOW_TO,
    ]
    by_problem = {problem_of(row): row for row in solve["by_shape"]} if solve else {}
    for suite, title in SUITES.items():
        if suite in picks:
            parts.append(shapes_part(title, picks[suite]["rows"], by_problem))
    page.write_text("\n\n".join(parts) + "\n", "utf-8")

    before, rest = readme.read_text("utf-8").split(START)
    _, after = rest.split(END)
    shown = {words: name for words, name in drawn.items() if name in README_IMAGES}
    brief = [
        *notes,
        suite_table(picks, parts=False),
        _gallery(shown, "docs/img"),
        accuracy_line(truth, why, "docs/"),
        *(f"**The proof.** {line}" for line in solver_lines(results)[:1]),
        trace_line(trace, "docs/"),
        fused_line(divided, why_not, "docs/"),
    ]
    inside = "\n\n".join(part for part in brief if part)
    readme.write_text(f"{before}{START}\n\n{inside}\n\n{END}{after}", "utf-8")


def main() -> None:
    """Make everything anew, which takes seconds."""
    console = Console(stderr=True)
    with console.status("making the results' page, the README's part and the pictures"):
        make(read_picks())
    print(
        f"made {PAGE.relative_to(ROOT)}, {README.relative_to(ROOT)} and {IMAGES.relative_to(ROOT)}/"
    )


if __name__ == "__main__":
    main()
