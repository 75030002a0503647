"""The kinds of problems that are asked about, by the name that a request has for them.

What differs between their families is reached from here and, of the model, from
``solver.families.registry``; requests are told apart in ``app.schemas.ops``, verifications in
``app.verification``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kernels.norm.compile import compile_key as norm_key
from kernels.norm.compile import kernel_id as norm_kernel_id
from kernels.sources import kernel_id
from solver.config import Config
from solver.device import load_profile
from solver.families import norm_activation, norm_activation_words, sm90_gemm
from solver.families.norm_activation import NormConfig, NormProblem
from solver.problem import Problem
from solver.report import config_words, problem_words

GEMM = "gemm"
NORM = norm_activation.NAME


@dataclass(frozen=True, slots=True)
class Op:
    """What is asked of the problems of one name.

    ``inputs`` are what a warm launch finds in the L2, in words. ``problem`` and ``config`` are made
    from the members of an answer. ``kernel_id`` takes (problem, configuration, device) and is None
    where the model has no kernel; the others say a problem, and the members of a configuration, in
    words.
    """

    name: str
    inputs: str
    problem: Callable[..., Any]
    config: Callable[[dict[str, Any]], Any]
    kernel_id: Callable[[Any, Any, str], str | None]
    problem_words: Callable[[Any], str]
    config_words: Callable[[Mapping[str, Any]], str]


def hopper_kernel_id(problem: Problem, config: Config) -> str:
    """The id of the kernel that a configuration of the Hopper family is launched with."""
    return kernel_id(sm90_gemm.compile_key(config, problem.dtype, problem.kernel_layout))


OPS: Mapping[str, Op] = MappingProxyType(
    {
        GEMM: Op(
            GEMM,
            "A and B",
            Problem,
            Config.from_dict,
            lambda problem, config, device: (
                hopper_kernel_id(problem, config) if config.family == sm90_gemm.NAME else None
            ),
            problem_words,
            config_words,
        ),
        NORM: Op(
            NORM,
            "x",
            NormProblem,
            NormConfig.from_dict,
            lambda problem, config, device: norm_kernel_id(
                norm_key(problem, config), load_profile(device).arch
            ),
            norm_activation_words.problem_words,
            norm_activation_words.config_words,
        ),
    }
)


def op_of(body: Mapping[str, Any]) -> Op:
    """The op of an answer, or of what a job keeps; one that names none is of a product."""
    return OPS[body.get("op", GEMM)]
