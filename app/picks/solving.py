"""One pick without a GPU: solved and proved, proved again, played, compiled. Runs in a process of
its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app import answers
from app.ops import hopper_kernel_id
from app.picks.step import Status, Step
from app.plan import candidates
from kernels.compile import check_compiled, compile_kernel
from kernels.errors import CompileFailed, CompilerAbsent, CompilerMismatch, KernelError
from kernels.nvrtc import version as nvrtc_version
from solver.certificate import certificate
from solver.config import Config
from solver.device import load_profile
from solver.engine import play_pick
from solver.errors import InvalidInput, ProofError
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_registers import register_table
from solver.question import Question
from solver.recheck import recheck
from solver.solution import Solution
from solver.units import us_from_ticks


@dataclass(frozen=True, slots=True)
class Found:
    """A proved pick, as JSON values: ``config``, ``kernel_id``, ``predicted`` and ``proof``."""

    config: dict[str, Any]
    kernel_id: str
    predicted: dict[str, float]
    proof: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of a pick's question: the pick, None where there is none, and the steps taken.

    ``others`` are further candidates for the fastest, where they were asked for.
    """

    found: Found | None
    steps: tuple[Step, ...]
    others: tuple[dict[str, Any], ...] = ()


def solve(question: Question, static: bool, top_k: int, compiled: bool) -> Solved:
    """Solve a question whose proof is full; with ``static`` hold the pick to all that needs no GPU.

    With ``top_k`` above 1 the candidates for the fastest come with it, the pick left out; with
    ``compiled`` their kernels are in the cache then, so that the GPU does not wait for them.
    """
    started = time.monotonic()
    try:
        solution = answers.solve(question)
        document = certificate(solution)
    except (InvalidInput, ProofError) as error:  # constraints that leave nothing, too
        return Solved(None, (_step("proof", started, Status.FAILS, str(error)),))
    space = document["space"]
    found = Found(
        document["config"],
        hopper_kernel_id(question.problem, solution.pick.config),
        {name: document["predicted"][name] for name in ("time_us", "wait_us")},
        {"configurations": space["configurations"], "sha256": document["sha256"]},
    )
    words = f"Z3: none of {space['configurations']:,} configurations is better by the model"
    steps = [_step("proof", started, Status.HOLDS, words)]
    if static:
        checks: tuple[Callable[[], Step], ...] = (
            lambda: _proved_again(document),
            lambda: _played(solution),
            lambda: _compiled(question, solution.pick.config),
        )
        steps += [check() for check in checks]
    others: tuple[dict[str, Any], ...] = ()
    if top_k > 1:
        first = [config for config, _ in candidates(question, top_k)]
        others = tuple(config for config in first if config != found.config)[: top_k - 1]
    if compiled:
        for config in (found.config, *others):
            _cache_kernel(question, Config.from_dict(config))
    return Solved(found, tuple(steps), others)


def _cache_kernel(question: Question, config: Config) -> None:
    """Compile a kernel into the cache; what is wrong with it is told where it is run."""
    problem = question.problem
    with suppress(KernelError):
        compile_kernel(family.compile_key(config, problem.dtype, problem.kernel_layout))


def _step(
    name: str, started: float, status: Status, words: str, figures: dict[str, Any] | None = None
) -> Step:
    return Step(name, status, words, time.monotonic() - started, figures or {})


def _proved_again(document: dict[str, Any]) -> Step:
    """The certificate, verified by the second implementation, which knows neither Z3 nor numpy's
    tables."""
    started = time.monotonic()
    verdict = recheck(document)
    if not verdict.holds:
        reasons = "; ".join(verdict.reasons)
        return _step("recheck", started, Status.FAILS, f"the certificate does not hold: {reasons}")
    legal = verdict.checked["legal"]
    words = f"a second implementation finds the same among {legal:,} legal configurations"
    return _step("recheck", started, Status.HOLDS, words, dict(verdict.checked))


def _played(solution: Solution) -> Step:
    started = time.monotonic()
    try:
        iterations, wait, whole = play_pick(solution)
    except ProofError as error:
        return _step("simulate", started, Status.FAILS, str(error))
    if not whole:
        words = f"{iterations:,} k-iterations: only the first events were played"
        return _step("simulate", started, Status.HOLDS, words, {"iterations": iterations})
    wait_us = us_from_ticks(wait)
    words = f"{iterations:,} k-iterations played: {wait_us:.2f} µs MATH wait, as predicted"
    figures = {"iterations": iterations, "wait_us": wait_us}
    return _step("simulate", started, Status.HOLDS, words, figures)


def _compiled(question: Question, config: Config) -> Step:
    started = time.monotonic()
    problem = question.problem
    try:
        kernel = compile_kernel(family.compile_key(config, problem.dtype, problem.kernel_layout))
        check_compiled(kernel, config, load_profile(question.device))
    except CompilerAbsent as error:
        return _step("compile", started, Status.LACKS, str(error))
    except CompilerMismatch as error:
        measured = register_table().nvrtc
        if nvrtc_version() == measured:
            return _step("compile", started, Status.FAILS, str(error))
        words = f"the register table is NVRTC {measured}'s, this is another: {error}"
        return _step("compile", started, Status.LACKS, words)
    except CompileFailed as error:
        return _step("compile", started, Status.FAILS, str(error))
    figures = {
        "kernel_id": kernel.kernel_id,
        "nvrtc": kernel.nvrtc,
        "registers_per_thread": kernel.registers,
        "smem_bytes": kernel.smem_bytes_by_stages[config.stages],
        "from_cache": kernel.from_cache,
    }
    words = (
        f"NVRTC {kernel.nvrtc}: {kernel.registers} registers a thread, "
        f"{figures['smem_bytes']:,} B shared memory, no spills, as the solver counted"
    )
    return _step("compile", started, Status.HOLDS, words, figures)
