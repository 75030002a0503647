"""Whether everything in a certificate is true, and if not, what should stand there instead."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from solver.recheck.answer import allowed_space, find_answer, legal_space, standing
from solver.recheck.members import differences, object_faults, shown
from solver.recheck.question import Question, question_faults, read_question
from solver.recheck.space import POWER

FORMAT = "warpwright-certificate/1"
MODEL_VERSION = "6"
"""The model's equations that this package implements."""
ASKED = (
    "problem",
    "model",
    "cache",
    "divergence",
    "objective",
    "constraints",
    "top_k",
    "device",
)
ANSWERED = (
    "registers",
    "space",
    "table_sha256",
    "config",
    "kernel",
    "predicted",
    "score",
    "alternatives",
    "front",
    "front_size",
    "complete",
)
REASONS_MAX = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a certificate holds. ``reasons`` say why not, each naming a member.

    ``checked`` counts what was gone through: ``legal`` and ``configurations`` of the space,
    ``played`` those whose events were needed; the others' bounds rule them out.
    """

    holds: bool
    reasons: tuple[str, ...]
    checked: dict[str, int] = field(default_factory=dict)


def recheck(document: object) -> Verdict:
    """The verdict on a parsed certificate; any JSON value is taken and none raises."""
    if type(document) is not dict:
        return _verdict([f"the certificate must be a JSON object, got {shown(document)}"])
    reasons = list(
        object_faults("", document, ("format", "model_version", *ASKED, *ANSWERED, "sha256"))
    )
    if reasons:
        return _verdict(reasons)
    reasons += differences("format", FORMAT, document["format"])
    reasons += differences("model_version", MODEL_VERSION, document["model_version"])
    reasons += _digest_faults(document)
    faults = list(question_faults(document))
    if faults or document["model_version"] != MODEL_VERSION:
        return _verdict(reasons + faults)
    return _answer_verdict(document, read_question(document), reasons)


def _answer_verdict(document: dict[str, Any], question: Question, reasons: list[str]) -> Verdict:
    legal = legal_space(question)
    needs_power = question.objective.counts_energy or POWER in question.bounds
    if needs_power and not all(work.power for work in legal.works):
        return _verdict([*reasons, "the device's profile has no constants to count energy by"])
    allowed = allowed_space(question, legal)
    checked = {"legal": legal.size, "configurations": allowed.size}
    if not allowed.size:
        fault = "constraints leave no" if legal.size else "problem has no legal"
        return _verdict([*reasons, f"{fault} configuration to claim"], checked)
    answer = find_answer(question, legal, allowed)
    wrong = list(differences("config", answer.members["config"], document["config"]))
    if wrong:
        reasons.append(f"config {standing(answer, document['config'])}")
    for name, expected in answer.members.items():
        reasons += differences(name, expected, document[name])
    return _verdict(reasons, {**checked, "played": answer.played})


def _digest_faults(document: dict[str, Any]) -> list[str]:
    rest = {name: value for name, value in document.items() if name != "sha256"}
    try:
        text = json.dumps(
            rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except (TypeError, ValueError, RecursionError) as error:
        return [f"sha256 must be that of the document's text, which has none: {error}"[:200]]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return list(differences("sha256", digest, document["sha256"]))


def _verdict(reasons: list[str], checked: dict[str, int] | None = None) -> Verdict:
    left_out = len(reasons) - REASONS_MAX
    if left_out > 0:
        reasons = [*reasons[:REASONS_MAX], f"and {left_out} more"]
    return Verdict(not reasons, tuple(reasons), checked or {})
