"""Verifications of norm_activation without a GPU: results as a GPU process would give them, of
times that a test sets."""

from __future__ import annotations

import random
from collections.abc import Callable

from app.store.job import Job, Outcome
from app.turn import Runner, Turn
from app.verification import requested
from kernels.host import HostGpu
from kernels.norm.contest import ContestResult, Launched
from kernels.norm.verdict import Entrant, figures, verdict_of
from kernels.norm.verify import NormVerificationRequest, verification_of
from kernels.statistics import summarise

GIB = 2**30
H200 = HostGpu("NVIDIA H200", "GPU-0", "580", 140 * GIB, (9, 0), 1980, ())
ROUNDS = 50
Speed = Callable[[Entrant], float]
"""An entrant's measured over predicted time."""


def outcome(request: NormVerificationRequest, speed: Speed) -> Outcome:
    """How a verification ends whose kernels take so many times what is predicted of them."""
    rng = random.Random(1)
    times_us = [
        [(each.predicted_us or 0) * speed(each) * rng.gauss(1, 0.003) for _ in range(ROUNDS)]
        for each in request.entrants
    ]
    result = ContestResult(
        nvrtc="13.5",
        gpu=H200.to_dict(),
        sms=132,
        failure=None,
        launched=tuple(
            Launched("k", 64, 132, each.config.threads, 0, 4, 1000, 1e-7, 0.2)
            for each in request.entrants
        ),
        figures=tuple(figures([summarise(mine, 3) for mine in times_us], times_us, 0.95)),
        verdict=verdict_of(request.entrants, times_us, 0.95),
        sets=8,
        flushed=False,
    )
    made = verification_of(request, H200, 1, result, 1.0)
    return Outcome(made.status, made.reason and str(made.reason), made.to_dict())


def runner(speed: Speed) -> Runner:
    """Runs jobs so, in no process."""

    def run(job: Job, turn: Turn) -> Outcome:
        request = requested(job.request)
        assert isinstance(request, NormVerificationRequest)
        return outcome(request, speed)

    return run
