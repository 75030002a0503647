"""Bodies of advice, the same over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.schemas.advice import OPS, AdviseRequest
from solver.advice.advise import advise
from solver.advice.figures import KernelFigures
from solver.advice.ncu import FIELD, read_launch
from solver.advice.ncu_metrics import figures_of
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families.norm_activation import NormProblem
from solver.families.norm_activation_advice import advise_problem
from solver.limits import check_choice
from solver.problem import CACHES
from solver.words import listing

PROBLEM = ("rows", "width", "dtype", "norm", "activation", "degree")
ASKED = ("warps_per_sm", "rival")
FORMS = {
    "op": ("op", *PROBLEM, "cache", *ASKED, "device"),
    "figures": ("figures", "device"),
    "ncu_csv": ("ncu_csv", "kernel", "device"),
}
"""What a request is about, and the members that go with it."""

Work = tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]


def work_of(request: AdviseRequest, host_device: str) -> Work:
    """What answers a request, and with which arguments: a task for a solver process.

    Raises InvalidInput for a member that is missing or does not go with the others.
    """
    device = host_device if request.device is None else request.device
    match _form(request):
        case "figures":
            return by_figures, (request.figures.model_dump(), device)
        case "ncu_csv":
            return by_ncu, (request.ncu_csv, request.kernel, device)
    check_choice("op", request.op, OPS)
    for name in ("rows", "width"):
        if name not in request.model_fields_set:
            raise InvalidInput(name, f"is required with op {request.op}")
    problem = NormProblem.asked(**{name: getattr(request, name) for name in PROBLEM})
    return by_problem, (problem, request.cache, request.warps_per_sm, request.rival, device)


def _form(request: AdviseRequest) -> str:
    given = [name for name in FORMS if name in request.model_fields_set]
    if len(given) != 1:
        raise InvalidInput(
            given[-1] if given else "op",
            f"exactly one of {listing([*FORMS])} must be given, got {listing(given or ['none'])}",
        )
    others = request.model_fields_set - set(FORMS[given[0]])
    if others:
        raise InvalidInput(min(others), f"does not go with {given[0]}")
    return given[0]


def by_problem(
    problem: NormProblem, cache: str, warps_per_sm: int | None, rival: str, device: str
) -> dict[str, Any]:
    """Advice for a problem of norm_activation; its kernel is ``config``."""
    check_choice("cache", cache, CACHES)
    profile = load_profile(device)
    found = advise_problem(problem, profile, cache, warps_per_sm=warps_per_sm, rival=rival)
    about = _about(
        problem=problem.to_dict(),
        config=found.config.to_dict(),
        kernels=[kernel.to_dict() for kernel in found.kernels],
        cache=cache,
        warps_per_sm=warps_per_sm,
        rival=rival,
        notes=list(found.notes),
    )
    return {**about, **found.advice.to_dict()}


def by_figures(values: dict[str, Any], device: str) -> dict[str, Any]:
    """Advice for a kernel that its figures describe. Raises InvalidInput naming one of them."""
    profile = load_profile(device)
    try:
        advice = advise(KernelFigures(**values), profile)
    except InvalidInput as error:
        raise _under("figures", error) from None
    return {**_about(), **advice.to_dict()}


def by_ncu(text: str, kernel: str | None, device: str) -> dict[str, Any]:
    """Advice for a launch of an Nsight Compute export. Raises InvalidInput naming the metric."""
    profile = load_profile(device)
    launch = read_launch(text, kernel)
    try:
        figures, notes = figures_of(launch, profile)
        advice = advise(figures, profile)
    except InvalidInput as error:
        raise _under(FIELD, error) from None
    about = _about(launch={"id": launch.id, "kernel": launch.kernel}, notes=notes)
    return {**about, **advice.to_dict()}


def _under(member: str, error: InvalidInput) -> InvalidInput:
    """A figure's error under the member of the request that has the figures."""
    if error.field in (member, "device"):
        return error
    return InvalidInput(f"{member}.{error.field}", error.message)


def _about(**known: Any) -> dict[str, Any]:
    """What the advice is about: a problem and its kernel, or a launch that was profiled."""
    of_problem = dict.fromkeys(("problem", "cache", "warps_per_sm", "rival", "config"))
    return {**of_problem, "kernels": [], "launch": None, "notes": [], **known}
