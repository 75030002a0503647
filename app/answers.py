"""Answers' bodies, the same over HTTP and on the command line.

Each process that calls them, a solver process or the command line's, holds one Engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from app.measured_answer import MEASURED, Winner, measured_body
from app.ops import op_of
from app.strict_json import dump
from solver.certificate import certificate
from solver.config import Config
from solver.device import DeviceProfile, device_names, load_profile
from solver.engine import Engine
from solver.explain import explain as explanation
from solver.problem import Problem
from solver.question import Asked, Question
from solver.solution import Solution

WARM_DEVICES = ("h200",)


@cache
def _engine() -> Engine:
    return Engine()


def warm() -> None:
    """Let this process's Engine answer once, so that no user pays for its start."""
    _engine().warm(WARM_DEVICES)


def optimize(
    question: Asked, asked_s: float | None = None, winner: Winner | None = None
) -> tuple[dict[str, Any], dict[str, float]]:
    """The body of an answer, and the milliseconds of each of its steps.

    A time limit counts from ``asked_s`` (``time.monotonic``, which all processes share). ``winner``
    is what a race of the problem found, answered where it is allowed and beats the pick.
    """
    answer = _engine().optimize(question, asked_s)
    body = measured_body(_with_kernel_id(answer.to_dict()), answer.solution, winner)
    if body["source"] == MEASURED:
        body = _with_kernel_id(body)
    return body, dict(answer.timings_ms)


def optimize_encoded(
    question: Asked, asked_s: float | None = None, winner: Winner | None = None
) -> tuple[bytes, str, dict[str, float]]:
    """``optimize`` with the body as it is sent, and how its proof stands: what a solver process
    hands to the event loop, which then neither builds nor writes it.
    """
    body, timings_ms = optimize(question, asked_s, winner)
    return dump(body), body["proof"]["status"], timings_ms


def solve(question: Question) -> Solution:
    """What a question leads to, proved where it asks for that."""
    return _engine().optimize(question).solution


def certify(question: Asked) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The body of an answer and its certificate, None where a time limit came before the
    proof's end. Raises InvalidInput for a question that asks for no proof, or of another op than
    gemm.
    """
    answer = _engine().optimize(question)
    body = measured_body(_with_kernel_id(answer.to_dict()), answer.solution, None)
    if body["proof"]["status"] == "timeout":
        return body, None
    return body, certificate(answer.solution)


def explain(
    question: Question, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """The body of an explanation; ``progress`` is told (done, total)."""
    return _with_kernel_id(explanation(_engine(), question, progress))


def simulate(
    problem: Problem,
    config: Config,
    device: str,
    model: str,
    divergence: float = 1.0,
    cache: str = "cold",
) -> dict[str, Any]:
    """The body of a simulation; IllegalConfig names the first limit that is broken."""
    return _with_kernel_id(
        _engine().simulate(problem, config, device, model, divergence, cache).to_dict()
    )


def choose(
    problem: Problem, config: Config | None, device: str, cache: str = "cold"
) -> dict[str, Any]:
    """The body of an answer for a configuration, else for the pick; it is legal either way."""
    if config is None:
        return optimize(Question(problem, device=device, proof="none", cache=cache))[0]
    return simulate(problem, config, device, "calibrated", cache=cache)


def _with_kernel_id(body: dict[str, Any]) -> dict[str, Any]:
    op = op_of(body)
    problem, config = op.problem(**body["problem"]), op.config(body["config"])
    identity = op.kernel_id(problem, config, body["device"]["name"])
    return {**body, "kernel": {"id": identity, **body["kernel"]}}


def devices() -> list[dict[str, Any]]:
    """Every profile: limits and constants with units and provenance, and what a calibration of it
    came to, None of one as it ships."""
    return [_device(load_profile(name)) for name in device_names()]


def _device(profile: DeviceProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "title": profile.title,
        "vendor": profile.vendor,
        "arch": profile.arch,
        "families": list(profile.families),
        "models": list(profile.models),
        "limits": {name: constant.to_dict() for name, constant in profile.limits.items()},
        "constants": {
            model: {name: constant.to_dict() for name, constant in table.items()}
            for model, table in profile.models.items()
        },
        "must_measure": list(profile.must_measure),
        "profile_sha256": profile.sha256,
        "calibration": profile.calibration,
    }
