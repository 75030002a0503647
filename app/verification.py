"""Verifications on this machine's GPU, for the service and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from app import norm_verification
from app.ops import GEMM, NORM
from app.store.job import UNREADABLE, Job, Outcome
from kernels.errors import KernelError
from kernels.norm.verify import NormVerificationRequest, verify_norm
from kernels.process import Worker
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest, verify
from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import Problem

if TYPE_CHECKING:  # the command line verifies without a queue, and without its database
    from app.turn import Turn

KIND = "verification"

AnyVerification = VerificationRequest | NormVerificationRequest


def verify_here(
    request: AnyVerification,
    *,
    deadline_s: float,
    worker: Worker | None = None,
    on_report: Callable[[dict[str, Any]], None] | None = None,
    uuid: str | None = None,
) -> Outcome:
    """Compile, launch, check and time one kernel in a process of its own, next to what is to be
    compared with it: cuBLAS, or the family's other kinds.

    The process is ``worker``'s, which stays warm for the next, or a fresh one; ``uuid`` as in
    ``kernels.verify.verify``. Raises
    GpuAbsent and NoKernelFamily where nothing can be launched.
    """
    if isinstance(request, NormVerificationRequest):
        norm = verify_norm(request, deadline_s, worker, on_report, uuid)
        return Outcome(norm.status, norm.reason and str(norm.reason), norm.to_dict())
    result = verify(request, deadline_s, worker, on_report, uuid)
    reason = None if result.reason is None else str(result.reason)
    return Outcome(result.status, reason, result.to_dict())


def request_of(request: AnyVerification) -> dict[str, Any]:
    """What a job of this kind keeps of its question; ``requested`` reads it."""
    if isinstance(request, NormVerificationRequest):
        return norm_verification.request_of(request)
    return _product_of(request)


def _product_of(request: VerificationRequest) -> dict[str, Any]:
    """What is as it usually is is left out."""
    kept: dict[str, Any] = {
        "problem": request.problem.to_dict(),
        "config": request.config.to_dict(),
        "predicted_us": request.predicted_us,
    }
    if request.protocol.cache != VERIFY.cache:
        kept["cache"] = request.protocol.cache
    if request.against:
        kept["against"] = [other.to_dict() for other in request.against]
    if request.trace:
        kept["trace"] = True
    if request.alternatives:
        kept["alternatives"] = [
            {"config": config.to_dict(), "predicted_us": predicted_us}
            for config, predicted_us in request.alternatives
        ]
    if request.picked:
        kept["picked"] = True
    return kept


def run_verification(job: Job, turn: Turn) -> Outcome:
    """The work of one job. A request that another version of this program kept and this one can't
    read is a reason, and so is a GPU that went away since it was queued.
    """
    try:
        request = requested(job.request)
    except (InvalidInput, AttributeError, KeyError, TypeError, ValueError) as error:
        words = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return Outcome("failed", UNREADABLE, {"details": f"the request can't be read: {words}"})
    try:
        return verify_here(
            request,
            deadline_s=turn.deadline_s,
            worker=turn.worker,
            on_report=turn.on_report,
            uuid=turn.gpu,
        )
    except KernelError as error:
        return Outcome("failed", "environment", {"details": str(error)})


def requested(kept: Mapping[str, Any]) -> AnyVerification:
    """What ``request_of`` kept."""
    return _READERS[kept.get("op", GEMM)](kept)


def _product(kept: Mapping[str, Any]) -> VerificationRequest:
    predicted_us = kept["predicted_us"]
    if not isinstance(predicted_us, float | int):
        raise TypeError(f"predicted_us must be a number, is {predicted_us!r}")
    return VerificationRequest(
        Problem(**kept["problem"]),
        Config.from_dict(kept["config"]),
        predicted_us=float(predicted_us),
        protocol=VERIFY.with_cache(kept.get("cache", VERIFY.cache)),
        against=tuple(Config.from_dict(other) for other in kept.get("against", ())),
        trace=kept.get("trace") is True,
        alternatives=tuple(
            (Config.from_dict(other["config"]), float(other["predicted_us"]))
            for other in kept.get("alternatives", ())
        ),
        picked=kept.get("picked", False) is True,
    )


_READERS: Mapping[str, Callable[[Mapping[str, Any]], AnyVerification]] = {
    GEMM: _product,
    NORM: norm_verification.requested,
}
