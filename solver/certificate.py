"""An answer as a document that stands alone: what ``solver.recheck`` verifies.

It states what was asked, what was found and what identifies the model, the profile and the
tables; every member can be worked out anew from these. Its form: ``docs/certificate.md``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from solver.errors import InvalidInput, Unsupported
from solver.families import sm90_gemm
from solver.families.sm90_gemm_registers import register_table
from solver.model_version import MODEL_VERSION
from solver.pick import Row
from solver.problem import Problem
from solver.report import (
    complete,
    launch,
    listed_row,
    predicted,
    space_counts,
)
from solver.solution import Solution, Unfinished

PREDICTED = ("time_us", "wait_us", "tflops", "sustained")
FORMAT = "warpwright-certificate/1"


def certificate(solution: Solution) -> dict[str, Any]:
    """The certificate of a proved answer.

    Raises InvalidInput where there is no proof, or a time limit came before its end, Unsupported
    for another family than the Hopper GEMM's: ``solver.recheck`` knows no other.
    """
    question, best, table = solution.question, solution.pick, solution.space.allowed
    if not isinstance(question.problem, Problem):
        raise Unsupported("certificate", f"is of {sm90_gemm.NAME} and model paper alone")
    if solution.proof is None:
        raise InvalidInput("proof", "must be full: only what was proved is certified")
    if isinstance(solution.proof, Unfinished):
        raise InvalidInput(
            "time_limit_ms", "came before the end of the proof: only what was proved is certified"
        )
    registers = None
    if question.model == "calibrated":
        shipped = register_table()
        registers = {"nvrtc": shipped.nvrtc, "source_hash": shipped.source_hash}
    figures = predicted(table, best.work, best.kernel, question.problem)
    front = solution.front
    document = {
        "format": FORMAT,
        "model_version": MODEL_VERSION,
        "problem": question.problem.to_dict(),
        **question.to_dict(),
        "top_k": question.top_k,
        "device": {"name": solution.device.name, "profile_sha256": solution.device.sha256},
        "registers": registers,
        "space": space_counts(solution),
        "table_sha256": solution.proof.table_sha256,
        "config": best.config.to_dict(),
        "kernel": launch(table, best),
        "predicted": {name: figures[name] for name in PREDICTED if name in figures},
        "score": solution.score(best),
        "alternatives": [_listed(solution, row) for row in solution.rows[1:]],
        "front": None if front is None else [_listed(solution, row) for row in solution.listed],
        "front_size": None if front is None else len(front.points),
        "complete": None if front is None else complete(solution),
    }
    return {**document, "sha256": digest(document)}


def _listed(solution: Solution, row: Row) -> dict[str, Any]:
    return {**listed_row(solution, row), "score": solution.score(row)}


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON text of all members but ``sha256``."""
    members = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
