"""What runs in a GPU process. Everything of CUDA is imported inside the functions, so that
the process that only names them never loads it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from kernels.against import AgainstTask, run_against
from kernels.contest import RELEASE_L2S
from kernels.process import report
from kernels.protocol import Protocol
from kernels.trace import trace_of
from kernels.trace_launch import TraceTask, launch_traced
from solver.config import Config
from solver.families.sm90_gemm_operands import copied_operands, memory_bytes
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Task:
    """One configuration to check and time.

    ``sms`` limits the CTAs; None: every SM of the device. ``check``: run both rounds of the
    numerical check first, and time only what passes. ``cublas``: interleave with cuBLAS.
    ``against``: other configurations, the fastest of which is timed next to this one. ``trace``:
    run the traced build too, on every SM, and lay its timeline over the model's.
    """

    problem: Problem
    config: Config
    device: str
    seed: int
    protocol: Protocol
    sms: int | None = None
    check: bool = True
    cublas: bool = True
    against: tuple[Config, ...] = ()
    trace: bool = False


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Figures of one task; None where a step was not asked for or not reached.

    ``failure`` is None, or what was wrong with the output. Times are per launch in
    microseconds, ``ratio_to_cublas`` is cuBLAS's time over ours, ``comparison`` names the
    library (or says why there is none), ``ratio_note`` why its interval is wide. ``copies``
    names the operands, a or b, that a launch copies first because TMA can't take them; its
    time counts that. ``against`` is a ``kernels.against.Against`` where there were others,
    ``trace`` what ``kernels.trace.trace_of`` made where one was asked for.
    """

    failure: str | None
    registers: int
    kernel_id: str
    nvrtc: str
    gpu: dict[str, Any]
    sms: int
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

    def to_dict(self) -> dict[str, Any]:
        """The result under its own field names."""
        return asdict(self)


def device_facts() -> dict[str, Any]:
    """SM count, L2 bytes and NVML's description of this process's GPU."""
    from kernels.session import session

    current = session()
    return {"sms": current.sms, "l2_bytes": current.l2_bytes, "gpu": current.gpu.to_dict()}


def run_task(task: Task) -> TaskResult:
    """Compile (or take from the cache), check and time one configuration.

    Raises CompileFailed, CompilerAbsent, CompilerMismatch, LaunchFailed, or CUDA's own error
    where the kernel faults; memory that runs out is CuPy's OutOfMemoryError.
    """
    from kernels.checking import check_config
    from kernels.session import session
    from kernels.sides import kernel_of, most_sms

    current = session()
    problem, config = task.problem, task.config
    report("compiling")
    kernel = kernel_of(current, problem, config, task.device)
    sms = most_sms(current, task.sms)
    facts: dict[str, Any] = {
        "failure": None,
        "registers": kernel.compiled.registers,
        "kernel_id": kernel.compiled.kernel_id,
        "nvrtc": kernel.compiled.nvrtc,
        "gpu": current.gpu.to_dict(),
        "sms": sms,
        "copies": copied_operands(problem),
    }
    if task.check:
        if memory_bytes(problem) > current.l2_bytes * RELEASE_L2S:
            current.release()
        result = check_config(current, kernel, problem, config, sms, task.seed)
        facts.update(
            exact=result.exact,
            exact_draws=result.draws,
            k_coverage=result.k_coverage,
            rel_error=result.rel_error if math.isfinite(result.rel_error) else None,
        )
        if not result.passed:
            return TaskResult(**facts | {"failure": "; ".join(result.details)})
    facts |= _time(task)
    if task.against:
        report("comparing", others=len(task.against))
        facts["against"] = _against(task)
    if task.trace:
        traced = TraceTask(problem, config, task.device, task.protocol)
        facts["trace"] = trace_of(traced, launch_traced(traced))
    return TaskResult(**facts)


def _against(task: Task) -> dict[str, Any]:
    """How the others do next to this configuration."""
    others = AgainstTask(
        problem=task.problem,
        config=task.config,
        others=task.against,
        device=task.device,
        seed=task.seed,
        protocol=task.protocol,
        sms=task.sms,
    )
    return run_against(others).to_dict()


def _time(task: Task) -> dict[str, Any]:
    """Time a configuration that is known to be right, next to cuBLAS where asked."""
    from kernels.cublas import CublasAbsent, cublas_products
    from kernels.measure import measure
    from kernels.replay import Side
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current = session()
    problem, protocol = task.problem, task.protocol
    kernel = kernel_of(current, problem, task.config, task.device)
    sets, flush = input_sets(current, problem, protocol)
    sides = [own_side(current, problem, task.config, kernel, task.sms, sets)]
    comparison = None
    if task.cublas:
        try:
            comparison, products = cublas_products(sets, problem, current.stream)
        except CublasAbsent as absent:
            comparison = f"none: {absent}"
        else:
            sides.append(Side(products, len(sets)))
    measured = measure(current, sides, protocol, flush)
    ours = measured.timings[0]
    timed: dict[str, Any] = {
        "median_us": ours.median_us,
        "median_low_us": ours.low_us,
        "median_high_us": ours.high_us,
        "p95_us": ours.p95_us,
        "p99_us": ours.p99_us,
        "replays": ours.replays,
        "launches_per_replay": ours.launches_per_replay,
        "sets": len(sets),
        "flushed": flush,
        "comparison": comparison,
        "sm_clock_mhz": measured.clock_after.sm_clock_mhz,
        "sm_clock_before_mhz": measured.clock_before.sm_clock_mhz,
        "power_w": measured.clock_after.power_w,
        "throttle": tuple(
            dict.fromkeys((*measured.clock_before.throttle, *measured.clock_after.throttle))
        ),
    }
    if measured.ratio is not None:
        timed.update(
            cublas_us=measured.timings[1].median_us,
            ratio_to_cublas=measured.ratio.ratio,
            ratio_low=measured.ratio.low,
            ratio_high=measured.ratio.high,
            ratio_rounds=measured.ratio.rounds,
            ratio_note=measured.ratio.note,
        )
    return timed
