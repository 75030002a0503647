"""Verifications of norm_activation: which kernels are run, and what a job keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app import answers
from app.ops import NORM
from kernels.norm.verdict import VERIFIED, Entrant
from kernels.norm.verify import NormVerificationRequest
from kernels.protocol import NORM_VERIFY
from solver.device import load_profile
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_cost import predicted_us
from solver.families.norm_activation_legality import check_legal
from solver.question import NormQuestion


def verification(
    problem: NormProblem, config: NormConfig | None, device: str, cache: str
) -> NormVerificationRequest:
    """What verifying a configuration, else the pick, takes: it, and the best kernel of each kind by
    the model, each once. A task for a solver process.

    Raises IllegalConfig where the configuration breaks a limit, Unsupported for a device without
    constants.
    """
    question = NormQuestion(problem, device=device, proof="none", cache=cache)
    body, _ = answers.optimize(question)
    verified, time_us = NormConfig.from_dict(body["config"]), body["predicted"]["time_us"]
    if config is not None:
        profile = load_profile(device)
        check_legal(problem, config, profile)
        verified, time_us = config, predicted_us(problem, config, profile, cache)
    roles: dict[NormConfig, list[str]] = {verified: [VERIFIED]}
    times_us = {verified: time_us}
    for kind, best in body["kinds"].items():
        if best is not None:
            of_kind = NormConfig.from_dict(best["config"])
            roles.setdefault(of_kind, []).append(kind)
            times_us.setdefault(of_kind, best["time_us"])
    entrants = tuple(Entrant(tuple(roles[each]), each, times_us[each]) for each in roles)
    protocol = NORM_VERIFY.with_cache(cache)
    return NormVerificationRequest(problem, entrants, protocol=protocol, picked=config is None)


def request_of(request: NormVerificationRequest) -> dict[str, Any]:
    """What a job keeps of its question."""
    first, *others = request.entrants
    return {
        "op": NORM,
        "problem": request.problem.to_dict(),
        **first.to_dict(),
        "cache": request.protocol.cache,
        "others": [other.to_dict() for other in others],
        "picked": request.picked,
    }


def requested(kept: Mapping[str, Any]) -> NormVerificationRequest:
    """What ``request_of`` kept. Raises KeyError, TypeError, ValueError or InvalidInput where it is
    no such thing."""
    return NormVerificationRequest(
        NormProblem(**kept["problem"]),
        tuple(_entrant(each) for each in (kept, *kept["others"])),
        protocol=NORM_VERIFY.with_cache(kept["cache"]),
        picked=kept["picked"] is True,
    )


def _entrant(kept: Mapping[str, Any]) -> Entrant:
    time_us = kept["predicted_us"]
    if not isinstance(time_us, float | int):
        raise TypeError(f"predicted_us must be a number, is {time_us!r}")
    return Entrant(tuple(map(str, kept["roles"])), NormConfig.from_dict(kept["config"]), time_us)
