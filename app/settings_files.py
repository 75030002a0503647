"""Picks of many shapes as settings of CUTLASS, Triton and inference servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from app import answers
from kernels.host import PROFILE_BY_NAME
from kernels.settings.cutlass import cutlass_settings, profiler_list
from kernels.settings.triton import EXPRESSIBLE, server_files, triton_settings
from solver.config import Config
from solver.conflict import Unsatisfiable
from solver.constraints import NONE, Constraints
from solver.problem import Problem
from solver.question import Question
from solver.report import naming

CONSUMERS = ("cutlass", "triton", "server")
CANNOT = "cannot_express.json"
HIDDEN = "any of it: a file has one entry for so many rows, and a problem before this one has it"
Files = dict[str, str]


def settings_files(
    problems: Iterable[Problem],
    consumer: str,
    *,
    device: str,
    cache: str,
    progress: Callable[[int, int], None],
) -> tuple[Files, dict[str, Any]]:
    """Files by name, and what each can't express.

    For Triton and servers a pick is the best of what can be said to them, for CUTLASS the best of
    all; a problem of which nothing can be said is left out and named. The same questions give the
    same bytes.
    """
    asked = list(dict.fromkeys(problems))
    constraints = NONE if consumer == "cutlass" else Constraints.from_dict(EXPRESSIBLE)
    rows: list[tuple[Problem, Config]] = []
    left_out = []
    for done, problem in enumerate(asked):
        progress(done, len(asked))
        question = Question(
            problem, device=device, cache=cache, proof="none", constraints=constraints
        )
        try:
            with naming(problem):
                body, _ = answers.optimize(question)
        except Unsatisfiable as nothing:
            left_out.append({**problem.to_dict(), "cannot_express": [f"any of it: {nothing}"]})
        else:
            rows.append((problem, Config.from_dict(body["config"])))
    match consumer:
        case "cutlass":
            files, cannot = _cutlass(rows)
        case "triton":
            files, cannot = _triton(rows)
        case _:
            files, cannot = _server(rows, device)
    cannot["further"] += left_out
    return {**files, CANNOT: _json(cannot)}, cannot


def _cutlass(rows: list[tuple[Problem, Config]]) -> tuple[Files, dict[str, Any]]:
    said = [(problem, cutlass_settings(problem, config)) for problem, config in rows]
    listed = [each["testlist_row"] for _, each in said if each["testlist_row"] is not None]
    files = {
        "heuristics_problems.json": _json([each["heuristics_problem"] for _, each in said]),
        "profiler_arguments.txt": "".join(" ".join(each["arguments"]) + "\n" for _, each in said),
    }
    if listed:
        files["testlist.csv"] = profiler_list(listed)
        files["kernels.txt"] = "".join(
            f"{name}\n" for name in dict.fromkeys(row["operation_name"] for row in listed)
        )
    return files, _by_problem((problem, each["cannot_express"]) for problem, each in said)


def _triton(rows: list[tuple[Problem, Config]]) -> tuple[Files, dict[str, Any]]:
    said = [(problem, triton_settings(config)) for problem, config in rows]
    configs = [{**problem.to_dict(), "config": each["config"]} for problem, each in said]
    return {"triton_configs.json": _json(configs)}, _by_problem(
        (problem, each["cannot_express"]) for problem, each in said
    )


def _server(rows: list[tuple[Problem, Config]], device: str) -> tuple[Files, dict[str, Any]]:
    title = next((name for name, profile in PROFILE_BY_NAME.items() if profile == device), device)
    tables, cannot = server_files(rows, title)
    first: dict[tuple[int, int, int], Problem] = {}
    for problem, _ in rows:
        first.setdefault((problem.m, problem.n, problem.k), problem)
    hidden = [
        {**problem.to_dict(), "cannot_express": [HIDDEN]}
        for problem, _ in rows
        if first[problem.m, problem.n, problem.k] != problem
    ]
    files = {name: _json(table) for name, table in tables.items()}
    return files, {"all": cannot, "further": hidden}


def _by_problem(said: Iterable[tuple[Problem, list[str]]]) -> dict[str, Any]:
    """What can't be said of all problems, and of each what else can't."""
    listed = list(said)
    first = listed[0][1] if listed else []
    common = [words for words in first if all(words in each for _, each in listed)]
    rest = [
        {**problem.to_dict(), "cannot_express": more}
        for problem, each in listed
        if (more := [words for words in each if words not in common])
    ]
    return {"all": common, "further": rest}


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
