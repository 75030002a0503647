"""A table of picks, made offline for ``kernels.gemm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from app import __version__, answers
from app.errors import NoPick
from kernels.picks import table_document
from solver.config import Config
from solver.conflict import Unsatisfiable
from solver.constraints import NONE, Constraints
from solver.device import load_profile
from solver.errors import InvalidInput, Unsupported
from solver.families.sm90_gemm import NAME
from solver.families.sm90_gemm_registers import register_table
from solver.model_version import MODEL_VERSION
from solver.objective import DEFAULT, Objective, Pareto
from solver.problem import Problem
from solver.question import Question
from solver.report import naming, problem_words


def make_table(
    problems: Iterable[Problem],
    *,
    device: str,
    cache: str,
    proof: str,
    objective: Objective = DEFAULT,
    constraints: Constraints = NONE,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """The table's document: each problem once, in the order of its first mention.

    A pure function of the problems, the profile, the model and the sources: the same bytes on any
    day. Raises Unsupported for a device without the kernel family, InvalidInput for an objective or
    a constraint that no launch of ``kernels.gemm`` answers to, and NoPick for a problem of which
    the constraints leave nothing.
    """
    if isinstance(objective, Pareto):
        raise InvalidInput("objective.kind", "must not be pareto: a front is no pick")
    if any(bound.variable == "sms" for bound in constraints.bounds):
        raise InvalidInput("constraints.sms", "can't be kept: kernels.gemm launches on all SMs")
    profile = load_profile(device)
    if NAME not in profile.families:
        raise Unsupported("device", f"{device} runs no kernel family: there is nothing to launch")
    asked = list(dict.fromkeys(problems))
    rows = []
    for done, problem in enumerate(asked):
        progress(done, len(asked))
        question = Question(
            problem,
            device=device,
            cache=cache,
            proof=proof,
            objective=objective,
            constraints=constraints,
        )
        try:
            with naming(problem):
                body, _ = answers.optimize(question)
        except Unsatisfiable as nothing:
            raise NoPick(f"{problem_words(problem)}: {nothing}") from None
        rows.append((problem, Config.from_dict(body["config"])))
    made_by = {
        "warpwright": __version__,
        "model_version": MODEL_VERSION,
        "register_table_nvrtc": register_table().nvrtc,
        "cache": cache,
        "proof": proof,
        "objective": objective.to_dict(),
        "constraints": constraints.to_dict(),
    }
    return table_document(rows, profile, made_by)
