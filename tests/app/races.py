"""Verifications without a GPU: results as a GPU process would give them, of times that a test
sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.store.job import Job, Outcome
from app.turn import Runner, Turn
from app.verification import requested
from kernels.against import Beside
from kernels.contest import Contest, Entrant
from kernels.host import HostGpu
from kernels.nvrtc import version
from kernels.process import Outcome as Ended
from kernels.process import OutcomeKind
from kernels.statistics import RatioInterval
from kernels.verify import VerificationRequest, contest_record, verification_of
from kernels.worker import TaskResult

GIB = 2**30
H200 = HostGpu("NVIDIA H200", "GPU-0", "580", 140 * GIB, (9, 0), 1980, ())
HALF_WIDTH = 0.005
Speeds = Callable[[VerificationRequest], list[float]]
"""Each candidate's measured over predicted time, the pick's first."""


def outcome(
    request: VerificationRequest,
    speeds: list[float],
    *,
    gpu: HostGpu = H200,
    nvrtc: str | None = None,
    half_width: float = HALF_WIDTH,
) -> Outcome:
    """How a verification ends whose candidates take so many times what is predicted of them."""
    assert request.predicted_us is not None
    predicted_us = [request.predicted_us, *(time_us for _, time_us in request.alternatives)]
    times_us = [time * speed for time, speed in zip(predicted_us, speeds, strict=True)]
    result = TaskResult(
        failure=None,
        registers=168,
        kernel_id="k",
        nvrtc=version() if nvrtc is None else nvrtc,
        gpu=gpu.to_dict(),
        sms=132,
        median_us=times_us[0],
    )
    verification = verification_of(request, gpu, 1, result, 1.0)
    if request.alternatives:
        raced = Ended(OutcomeKind.OK, 1.0, contest(times_us, half_width))
        verification = replace(verification, contest=contest_record(request, raced))
    return Outcome("passed", None, verification.to_dict())


def contest(times_us: list[float], half_width: float = HALF_WIDTH) -> Contest:
    """The race of candidates that take so long."""
    winner = min(range(len(times_us)), key=times_us.__getitem__)

    def over(place: int) -> RatioInterval:
        ratio = times_us[winner] / times_us[place]
        return RatioInterval(ratio, ratio - half_width, ratio + half_width, 12, None)

    first = times_us[0]
    entrants = [
        Entrant(time, time / first, time / first, time / first, 12, None) for time in times_us
    ]
    fresh = None
    if winner:
        of = over(0)
        fresh = Beside(times_us[winner], first, of.ratio, of.low, of.high, 15, None)
    others = {place: over(place) for place in range(len(times_us)) if place != winner}
    return Contest(tuple(entrants), winner, fresh, others)


def runner(speeds: Speeds, **facts: Any) -> Runner:
    """Runs jobs so, in no process."""

    def run(job: Job, turn: Turn) -> Outcome:
        request = requested(job.request)
        return outcome(request, speeds(request), **facts)

    return run


def last_is_fastest(request: VerificationRequest) -> list[float]:
    """The last candidate takes four fifths of the pick's time, the others what is predicted."""
    assert request.predicted_us is not None
    *others, (_, last_us) = [(request.config, request.predicted_us), *request.alternatives]
    if not others:
        return [1.0]
    return [1.0] * len(others) + [0.8 * request.predicted_us / last_us]
