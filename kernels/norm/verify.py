"""Verification of norm_activation: one configuration checked, and timed in turn with the best of
each kind, on the GPU beside us.

As ``kernels.verify``: the launch runs in a process of its own with a deadline.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from kernels.gpu_lock import call_alone
from kernels.host import HostGpu
from kernels.norm.contest import ContestResult, ContestTask, run_contest
from kernels.norm.device import norm_profile
from kernels.norm.verdict import Entrant
from kernels.process import OutcomeKind, Worker
from kernels.protocol import NORM_VERIFY, Protocol
from kernels.verify import DEADLINE_S, Reason, failure_of, prediction_error, require_gpu
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families.norm_activation import NAME, NormProblem
from solver.families.norm_activation_legality import check_legal

SEED_BITS = 62


@dataclass(frozen=True, slots=True)
class NormVerificationRequest:
    """What to verify: the first of the ``entrants``, next to the others. ``seed`` None draws a
    fresh one. ``picked``: the first is the solver's pick."""

    problem: NormProblem
    entrants: tuple[Entrant, ...]
    seed: int | None = None
    protocol: Protocol = NORM_VERIFY
    picked: bool = False


@dataclass(frozen=True, slots=True)
class NormVerification:
    """The result; what a failed verification did not reach is None or empty.

    ``entrants`` have what each kernel is, what its launch takes, how far its output is off and its
    times; the first is the one verified, of which ``config`` and the flat figures are.
    ``prediction_error`` is (predicted - measured) / measured. ``verdict`` is
    ``kernels.norm.verdict.Verdict``.
    """

    status: str
    reason: Reason | None
    details: str
    problem: dict[str, Any]
    config: dict[str, Any]
    seed: int
    device: str
    driver: str
    protocol: dict[str, Any]
    elapsed_s: float
    entrants: tuple[dict[str, Any], ...]
    predicted_us: float | None = None
    prediction_error: float | None = None
    nvrtc: str | None = None
    kernel_id: str | None = None
    registers: int | None = None
    resident_blocks: int | None = None
    rel_error: float | None = None
    median_us: float | None = None
    median_low_us: float | None = None
    median_high_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    tail_ratio: float | None = None
    verdict: dict[str, Any] | None = None
    sms: int | None = None
    sets: int | None = None
    flushed: bool | None = None
    sm_clock_before_mhz: int | None = None
    sm_clock_mhz: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    op: str = NAME

    @property
    def passed(self) -> bool:
        """Whether it is right, and no slower than the strong kernel."""
        return self.status == "passed"

    def to_dict(self) -> dict[str, Any]:
        """The verification as JSON-ready values."""
        return asdict(self) | {"entrants": list(self.entrants), "throttle": list(self.throttle)}


def require_norm_gpu(uuid: str | None = None) -> tuple[HostGpu, str]:
    """The host's GPU and the name of its profile, as ``kernels.verify.require_gpu``, where
    norm_activation runs on it."""
    return require_gpu(uuid, lambda gpu: norm_profile(gpu).name)


def verify_norm(
    request: NormVerificationRequest,
    deadline_s: float = DEADLINE_S,
    worker: Worker | None = None,
    on_report: Callable[[dict[str, Any]], None] | None = None,
    uuid: str | None = None,
) -> NormVerification:
    """Verify a configuration on the host's GPU, in a fresh process or in ``worker``'s; ``uuid`` as
    in ``kernels.verify.verify``.

    A kernel that is wrong, hangs, faults or is illegal is a result, and so is one that is right and
    slower than the strong kernel. Raises GpuAbsent and NoKernelFamily where nothing could be
    launched at all.
    """
    gpu, device = require_norm_gpu(uuid)
    seed = secrets.randbits(SEED_BITS) if request.seed is None else request.seed
    try:
        for entrant in request.entrants:
            check_legal(request.problem, entrant.config, load_profile(device))
    except (IllegalConfig, InvalidProblem) as error:
        return _failed(request, gpu, seed, Reason.ILLEGAL, str(error), 0.0)
    reached: dict[str, Any] = {}

    def follow(progress: dict[str, Any]) -> None:
        reached.update(progress)
        if on_report is not None:
            on_report(progress)

    task = ContestTask(request.problem, request.entrants, seed, request.protocol)
    with nullcontext(worker) if worker is not None else Worker() as runner:
        outcome = call_alone(runner, gpu.uuid, run_contest, (task,), deadline_s, follow)
    if outcome.kind is not OutcomeKind.OK:
        reason, details = failure_of(outcome)
        if "entrant" in reached:
            details += f" ({reached['stage']}; the last kernel checked was {reached['entrant']})"
        return _failed(request, gpu, seed, reason, details, outcome.elapsed_s)
    return verification_of(request, gpu, seed, outcome.value, outcome.elapsed_s)


def verification_of(
    request: NormVerificationRequest,
    gpu: HostGpu,
    seed: int,
    result: ContestResult,
    elapsed_s: float,
) -> NormVerification:
    """The verification that a GPU process's result makes."""
    reason, details = None, ""
    if result.failure is not None:
        reason, details = Reason.WRONG_RESULT, result.failure
    elif result.verdict is not None and not result.verdict.passed:
        reason, details = Reason.SLOWER_THAN_STRONG, result.verdict.words
    entrants = [entrant.to_dict() for entrant in request.entrants]
    for entrant, launched in zip(entrants, result.launched, strict=False):
        entrant |= asdict(launched)
    for entrant, timed in zip(entrants, result.figures, strict=False):
        entrant |= timed.to_dict()
    first = entrants[0]
    flat = (
        *("kernel_id", "registers", "resident_blocks", "rel_error", "median_us", "median_low_us"),
        *("median_high_us", "p95_us", "p99_us", "tail_ratio"),
    )
    figures: dict[str, Any] = {name: first.get(name) for name in flat}
    return NormVerification(
        status="passed" if reason is None else "failed",
        reason=reason,
        details=details,
        **_about(request, gpu, seed, elapsed_s),
        entrants=tuple(entrants),
        prediction_error=prediction_error(request.entrants[0].predicted_us, figures["median_us"]),
        nvrtc=result.nvrtc,
        verdict=None if result.verdict is None else result.verdict.to_dict(),
        sms=result.sms,
        sets=result.sets,
        flushed=result.flushed,
        sm_clock_before_mhz=result.sm_clock_before_mhz,
        sm_clock_mhz=result.sm_clock_mhz,
        power_w=result.power_w,
        throttle=result.throttle,
        **figures,
    )


def _about(
    request: NormVerificationRequest, gpu: HostGpu, seed: int, elapsed_s: float
) -> dict[str, Any]:
    first = request.entrants[0]
    return {
        "problem": request.problem.to_dict(),
        "config": first.config.to_dict(),
        "predicted_us": first.predicted_us,
        "seed": seed,
        "device": gpu.name,
        "driver": gpu.driver,
        "protocol": request.protocol.to_dict(),
        "elapsed_s": elapsed_s,
    }


def _failed(
    request: NormVerificationRequest,
    gpu: HostGpu,
    seed: int,
    reason: Reason,
    details: str,
    elapsed_s: float,
) -> NormVerification:
    return NormVerification(
        status="failed",
        reason=reason,
        details=details,
        **_about(request, gpu, seed, elapsed_s),
        entrants=tuple(entrant.to_dict() for entrant in request.entrants),
    )
