"""The recorded results that the report shows; one that is not there is None, or left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernels.bench_plan import problem_of

RESULTS = Path(__file__).resolve().parent / "results"
DEVICE = "h200"

SUITES = {
    "llm": "96 shapes of language models, cold",
    "paper": "512 small cubes of the paper's suite, warm",
    "odd20": "20 shapes that are no multiple of any tile, cold",
    "any30": "30 of every layout, output type, pitch and alignment, cold",
    "odd40": "40 of odd pitch, cold",
    "unaligned20": "20 unaligned, cold",
    "further60": "60 further shapes of the ground truth, cold",
}
SQUARES = "squares2"
"""The suite of what is held for a second; the others hold its shapes too."""

Row = dict[str, Any]
Result = dict[str, Any]


def read_record(path: Path) -> Any:
    """A JSON file; None where it is not there."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def read_solver(name: str, results: Path = RESULTS) -> Any:
    """A recorded result of the solver's benches; None where it is not there."""
    return read_record(results / "solver" / f"{name}.json")


def _of_role(result: Result, role: str) -> Result | None:
    rows = [row for row in result["rows"] if row["role"] == role]
    return result | {"rows": rows} if rows else None


def _read_role(role: str, names: Sequence[str], results: Path) -> dict[str, Result]:
    found: dict[str, Result] = {}
    for suite in (*SUITES, SQUARES):
        for name in names:
            result = read_record(results / DEVICE / f"{name}_{suite}.json")
            of_role = None if result is None else _of_role(result, role)
            if of_role is not None:
                found[suite] = of_role
                break
    return found


def read_picks(results: Path = RESULTS) -> dict[str, Result]:
    """The results of picks, by suite: ``picks_SUITE.json``, or the picks in ``best_SUITE.json``."""
    return _read_role("pick", ("picks", "best"), results)


def read_best(results: Path = RESULTS) -> dict[str, Result]:
    """The results of the best of several candidates, by suite, from the same files."""
    return _read_role("best", ("best", "picks"), results)


def read_picks_beside_best(results: Path = RESULTS) -> dict[str, Result]:
    """The picks that were measured in one run with the best, where there are such; else others."""
    return _read_role("pick", ("best", "picks"), results)


def read_ceilings(picks: dict[str, Result], results: Path = RESULTS) -> dict[str, Any] | None:
    """Measured ceilings: those beside the LLM suite's rows, or the device's record."""
    beside: dict[str, Any] | None = picks.get("llm", {}).get("ceilings")
    if beside is None:
        record = read_record(results / DEVICE / "ceilings.json")
        beside = None if record is None else record["ceilings"]
    return beside or None


def passed(rows: Iterable[Row]) -> list[Row]:
    """The rows that have figures."""
    return [row for row in rows if row["status"] == "passed"]


def ratios(rows: Iterable[Row], field: str = "ratio_to_cublas") -> list[float]:
    """A ratio of every row that has it."""
    return [row[field] for row in passed(rows) if row.get(field)]


def question(row: Row) -> tuple[Any, str]:
    """What a row's figures are an answer to."""
    return problem_of(row), row["cache"]


def regrets(picks: Sequence[Row], best: Sequence[Row]) -> list[tuple[Row, float]]:
    """Each best row with the time of the pick over it, where both have figures.

    They were timed one after the other, so that the ratios to cuBLAS are compared, to which each
    was interleaved, where both have one; the same configuration has no regret.
    """
    pick_of = {question(row): row for row in passed(picks)}
    found = []
    for row in passed(best):
        pick = pick_of.get(question(row))
        if pick is None:
            continue
        if pick["config"] == row["config"]:
            regret = 1.0
        elif pick.get("ratio_to_cublas") and row.get("ratio_to_cublas"):
            regret = row["ratio_to_cublas"] / pick["ratio_to_cublas"]
        else:
            regret = pick["median_us"] / row["median_us"]
        found.append((row, regret))
    return found
