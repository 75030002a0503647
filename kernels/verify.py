"""Verification: compile, launch and time one configuration on the GPU beside us.

The launch runs in a process of its own with a deadline; whatever happens there comes back as
a reason, and this process never touches CUDA.
"""

from __future__ import annotations

import importlib.util
import secrets
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from kernels.contest import Contest, ContestTask, Entrant, run_contest
from kernels.errors import GpuAbsent
from kernels.gpu_lock import call_alone
from kernels.hang import Hang, unknown
from kernels.host import HostGpu, host_gpu, host_gpus, require_family, why_absent
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.protocol import VERIFY, Protocol
from kernels.watch import watch
from kernels.worker import Task, TaskResult, run_task
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm_legality as legality
from solver.problem import Problem

DEADLINE_S = 60.0
DIAGNOSIS_S = 60.0
"""Longest time, start and compilation included, to find out where a kernel hangs."""


LEAST_RACE_S = 1.0
"""A race that is begun has this long at least, whatever the deadline leaves."""


class Reason(StrEnum):
    """Why a verification failed."""

    WRONG_RESULT = "wrong_result"
    SLOWER_THAN_STRONG = "slower_than_strong"
    TIMEOUT = "timeout"
    FAULT = "fault"
    COMPILE_FAILED = "compile_failed"
    COMPILER_MISMATCH = "compiler_mismatch"
    LAUNCH_FAILED = "launch_failed"
    TRACE_FAILED = "trace_failed"
    ILLEGAL = "illegal"
    OUT_OF_MEMORY = "out_of_memory"
    ENVIRONMENT = "environment"
    WORKER_LOST = "worker_lost"
    INTERNAL_ERROR = "internal_error"


_REASONS = {
    "CompileFailed": Reason.COMPILE_FAILED,
    "CompilerAbsent": Reason.ENVIRONMENT,
    "GpuAbsent": Reason.ENVIRONMENT,
    "CacheUnwritable": Reason.ENVIRONMENT,
    "GpuTaken": Reason.ENVIRONMENT,
    "PowerUnread": Reason.ENVIRONMENT,
    "CompilerMismatch": Reason.COMPILER_MISMATCH,
    "LaunchFailed": Reason.LAUNCH_FAILED,
    "TraceUnreadable": Reason.TRACE_FAILED,
    "IllegalConfig": Reason.ILLEGAL,
    "InvalidProblem": Reason.ILLEGAL,
    "OutOfMemoryError": Reason.OUT_OF_MEMORY,
}


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """What to verify. ``seed`` None draws a fresh one; ``predicted_us`` is the model's time,
    compared with the measured one; ``against`` and ``trace`` as in ``worker.Task``.
    ``alternatives`` are raced against it, each with its predicted µs. ``picked``: the configuration
    is the solver's pick."""

    problem: Problem
    config: Config
    predicted_us: float | None = None
    seed: int | None = None
    protocol: Protocol = VERIFY
    against: tuple[Config, ...] = ()
    trace: bool = False
    alternatives: tuple[tuple[Config, float], ...] = ()
    picked: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """The result; fields that a failed verification did not reach are None.

    ``prediction_error`` is (predicted - measured) / measured. ``ratio_to_cublas`` is
    cuBLAS's time over ours, between ``ratio_low`` and ``ratio_high``. ``protocol`` says how
    it was timed; the median lies between ``median_low_us`` and ``median_high_us``. ``copies``
    names the operands that a launch copies first, which is timed too. ``against`` is how the
    fastest of other configurations did beside this one (kernels.against.Against), ``contest`` how
    it and its alternatives did in a race (kernels.contest.Contest), each with its configuration and
    predicted time. ``trace`` is the GPU's timeline over the model's (kernels.trace.trace_of).
    ``hang`` is where the debug build waits (kernels.hang.Hang) after a timeout.
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
    predicted_us: float | None = None
    prediction_error: float | None = None
    nvrtc: str | None = None
    kernel_id: str | None = None
    registers: int | None = None
    copies: tuple[str, ...] = ()
    exact: bool | None = None
    exact_draws: int | None = None
    k_coverage: float | None = None
    rel_error: float | None = None
    median_us: float | None = None
    median_low_us: float | None = None
    median_high_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    replays: int | None = None
    launches_per_replay: int | None = None
    sets: int | None = None
    flushed: bool | None = None
    comparison: str | None = None
    cublas_us: float | None = None
    ratio_to_cublas: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ratio_rounds: int | None = None
    ratio_note: str | None = None
    sm_clock_mhz: int | None = None
    sm_clock_before_mhz: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    against: dict[str, Any] | None = None
    trace: dict[str, Any] | None = None
    contest: dict[str, Any] | None = None
    hang: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.status == "passed"

    def to_dict(self) -> dict[str, Any]:
        """The verification as JSON-ready values."""
        return asdict(self) | {"copies": list(self.copies), "throttle": list(self.throttle)}


def require_gpu(
    uuid: str | None = None, profile_of: Callable[[HostGpu], str] = require_family
) -> tuple[HostGpu, str]:
    """The host's GPU, its first without a ``uuid``, and the name of its profile, by what a family
    says of it.

    Raises GpuAbsent where no GPU or no CuPy is there, NoKernelFamily where the family does not run
    on it; that message names the devices that have one.
    """
    if uuid is None:
        gpu = host_gpu()
    else:
        gpu = next((each for each in host_gpus() if each.uuid == uuid), None)
    if gpu is None:
        raise GpuAbsent(why_absent() if uuid is None else f"GPU {uuid} is not there any more")
    if importlib.util.find_spec("cupy") is None:
        raise GpuAbsent("CuPy is not installed: install warpwright[gpu] or warpwright[gpu-cuda12]")
    return gpu, profile_of(gpu)


def prediction_error(predicted_us: float | None, measured_us: float | None) -> float | None:
    """(predicted - measured) / measured; None where either is not there."""
    if predicted_us is None or measured_us is None:
        return None
    return (predicted_us - measured_us) / measured_us


def failure_of(outcome: Outcome) -> tuple[Reason, str]:
    """Reason and details of a call that gave no result."""
    if outcome.kind is OutcomeKind.TIMEOUT:
        return Reason.TIMEOUT, outcome.message
    if outcome.kind is OutcomeKind.DIED:
        # A kernel that faults raises or crashes; to be killed, or not to start, is no doing of it.
        lost = outcome.exit_code in (None, -signal.SIGKILL)
        return Reason.WORKER_LOST if lost else Reason.FAULT, outcome.message
    kind = outcome.error_type or ""
    default = Reason.FAULT if "CUDA" in kind.upper() else Reason.INTERNAL_ERROR
    return _REASONS.get(kind, default), f"{kind}: {outcome.message}"


def task_of(request: VerificationRequest, device: str, seed: int) -> Task:
    """The worker's task for a request on a device profile."""
    return Task(
        problem=request.problem,
        config=request.config,
        device=device,
        seed=seed,
        protocol=request.protocol,
        against=request.against,
        trace=request.trace,
    )


def verify(
    request: VerificationRequest,
    deadline_s: float = DEADLINE_S,
    worker: Worker | None = None,
    on_report: Callable[[dict[str, Any]], None] | None = None,
    uuid: str | None = None,
) -> Verification:
    """Verify one configuration on the host's GPU, its first without a ``uuid``; a ``worker`` is
    then one that sees that GPU alone.

    Runs in a fresh process, or in ``worker``, which is warm if it was used before and is
    replaced if this kills it; ``on_report`` is told how far it is, as a stage and its figures. A
    wrong, hanging, faulting or illegal kernel is a result. One that is killed at its deadline is
    run once more, in its debug build, to say where it hangs: that takes DIAGNOSIS_S at most.
    Alternatives are raced afterwards, within the same deadline; what becomes of their race changes
    nothing of the rest.
    Raises GpuAbsent and NoKernelFamily where nothing could be launched at all.
    """
    gpu, device = require_gpu(uuid)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    try:
        alternatives = (config for config, _ in request.alternatives)
        for config in (request.config, *request.against, *alternatives):
            legality.check(config, request.problem, load_profile(device))
    except (IllegalConfig, InvalidProblem) as error:
        return _failed(request, gpu, seed, Reason.ILLEGAL, str(error), 0.0)
    arguments = (task_of(request, device, seed),)
    with nullcontext(worker) if worker is not None else Worker() as runner:
        outcome = call_alone(runner, gpu.uuid, run_task, arguments, deadline_s, on_report)
        hang = None
        if outcome.kind is OutcomeKind.TIMEOUT:
            if on_report is not None:
                on_report({"stage": "diagnosing"})
            hang = where_it_hangs(runner, gpu, request)
        contest = None
        if request.alternatives and outcome.kind is OutcomeKind.OK and not outcome.value.failure:
            entered = (_contest_of(request, device, seed),)
            left_s = max(deadline_s - outcome.elapsed_s, LEAST_RACE_S)
            contest = call_alone(runner, gpu.uuid, run_contest, entered, left_s, on_report)
    if outcome.kind is not OutcomeKind.OK:
        reason, details = failure_of(outcome)
        return _failed(request, gpu, seed, reason, details, outcome.elapsed_s, hang)
    elapsed_s = outcome.elapsed_s
    if contest is not None:
        elapsed_s += contest.elapsed_s
        if contest.kind is not OutcomeKind.OK and failure_of(contest)[0] is Reason.WORKER_LOST:
            # Ended from outside: not all that was asked for was done, nor was it tried.
            return _failed(request, gpu, seed, *failure_of(contest), elapsed_s)
    made = verification_of(request, gpu, seed, outcome.value, elapsed_s)
    return made if contest is None else replace(made, contest=contest_record(request, contest))


def where_it_hangs(worker: Worker, gpu: HostGpu, request: VerificationRequest) -> Hang:
    """Run a request's kernel in its debug build and report where its warps wait.

    The kernel may hang on when the report is here: the worker's process is ended.
    """
    arguments = (request.problem, request.config)
    outcome = call_alone(worker, gpu.uuid, watch, arguments, DIAGNOSIS_S)
    worker.close()
    if outcome.kind is not OutcomeKind.OK:
        return unknown(failure_of(outcome)[1])
    hang: Hang = outcome.value
    return hang


def verification_of(
    request: VerificationRequest, gpu: HostGpu, seed: int, result: TaskResult, elapsed_s: float
) -> Verification:
    """The verification that a worker's result makes."""
    shared = {f.name for f in fields(Verification)} & {f.name for f in fields(TaskResult)}
    figures = {name: getattr(result, name) for name in shared}
    return Verification(
        status="passed" if result.failure is None else "failed",
        reason=None if result.failure is None else Reason.WRONG_RESULT,
        details=result.failure or "",
        **_about(request, gpu, seed, elapsed_s),
        prediction_error=prediction_error(request.predicted_us, result.median_us),
        **figures,
    )


def _contest_of(request: VerificationRequest, device: str, seed: int) -> ContestTask:
    configs = (request.config, *(config for config, _ in request.alternatives))
    return ContestTask(request.problem, configs, device, seed, request.protocol)


def contest_record(request: VerificationRequest, outcome: Outcome) -> dict[str, Any]:
    """How a request's configuration and its alternatives did in a race, each with what it is and
    what was predicted of it; ``note`` says why the race was not run to its end, None where it was.
    """
    entered = ((request.config, request.predicted_us), *request.alternatives)
    ran = outcome.kind is OutcomeKind.OK
    contest: Contest = outcome.value if ran else Contest((Entrant(),) * len(entered), None)
    note = None if ran else ": ".join(failure_of(outcome))
    record = contest.to_dict()
    candidates = [
        {"config": config.to_dict(), "predicted_us": predicted_us, **entrant}
        for (config, predicted_us), entrant in zip(entered, record["candidates"], strict=True)
    ]
    return record | {"candidates": candidates, "note": note}


def _about(
    request: VerificationRequest, gpu: HostGpu, seed: int, elapsed_s: float
) -> dict[str, Any]:
    return {
        "problem": request.problem.to_dict(),
        "config": request.config.to_dict(),
        "seed": seed,
        "device": gpu.name,
        "driver": gpu.driver,
        "protocol": request.protocol.to_dict(),
        "elapsed_s": elapsed_s,
        "predicted_us": request.predicted_us,
    }


def _failed(
    request: VerificationRequest,
    gpu: HostGpu,
    seed: int,
    reason: Reason,
    details: str,
    elapsed_s: float,
    hang: Hang | None = None,
) -> Verification:
    return Verification(
        status="failed",
        reason=reason,
        details=details if hang is None else f"{details}\n{hang.text}",
        **_about(request, gpu, seed, elapsed_s),
        hang=None if hang is None else hang.to_dict(),
    )
