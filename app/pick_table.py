"""A table of picks, made offline for ``kernels.gemm``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from app import __version__, answers
from kernels.picks import table_document
from solver.config import Config
from solver.device import load_profile
from solver.errors import Unsupported
from solver.families.sm90_gemm import NAME
from solver.families.sm90_gemm_registers import register_table
from solver.model_version import MODEL_VERSION
from solver.problem import Problem
from solver.question import Question


def make_table(
    problems: Iterable[Problem],
    *,
    device: str,
    cache: str,
    proof: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """The table's document: each problem once, in the order of its first mention.

    A pure function of the problems, the profile, the model and the sources: the same bytes on any
    day. Raises Unsupported for a device without the kernel family.
    """
    profile = load_profile(device)
    if NAME not in profile.families:
        raise Unsupported("device", f"{device} runs no kernel family: there is nothing to launch")
    asked = list(dict.fromkeys(problems))
    rows = []
    for done, problem in enumerate(asked):
        progress(done, len(asked))
        body, _ = answers.optimize(Question(problem, device=device, cache=cache, proof=proof))
        rows.append((problem, Config.from_dict(body["config"])))
    made_by = {
        "warpwright": __version__,
        "model_version": MODEL_VERSION,
        "register_table_nvrtc": register_table().nvrtc,
        "cache": cache,
        "proof": proof,
    }
    return table_document(rows, profile, made_by)
