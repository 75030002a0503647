"""What the evidence scripts run in a GPU process. CUDA is imported inside the functions, so that
the process that only names them never loads it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

from bench.branches import Pair
from kernels.launch_plan import LaunchPlan, plan_launch
from solver.device import load_profile

CHECKSUM = Path(__file__).with_name("checksum.cu")
_BLOCK = 256


def check_pair(pair: Pair, seed: int, device: str) -> dict[str, Any]:
    """Compile a pair's kernel (or take it from the cache), launch it and check every element.

    Raises what ``kernels.worker.run_task`` raises.
    """
    from kernels.checking import check_config
    from kernels.compile import check_compiled
    from kernels.session import session

    current = session()
    kernel = current.kernel(pair.key)
    check_compiled(kernel.compiled, pair.config, load_profile(device))
    result = check_config(current, kernel, pair.problem, pair.config, pair.sms, seed)
    return {
        "details": "; ".join(result.details),
        "draws": result.draws,
        "k_coverage": result.k_coverage,
        "rel_error": result.rel_error,
    }


@cache
def _checksum_kernel() -> Any:
    import cupy as cp

    module = cp.RawModule(code=CHECKSUM.read_text("utf-8"), options=("--std=c++17",))
    return module.get_function("checksum")


def add_checksum(words: Any, total: Any) -> None:
    """Enqueue ``total`` += a hash of these words (a uint16 CuPy array) and of their places."""
    import cupy as cp

    blocks = max(1, min(-(-words.size // (8 * _BLOCK)), 1024))
    _checksum_kernel()((blocks,), (_BLOCK,), (words, cp.int64(words.size), total))


def _placed(pair: Pair, seed: int, device: str) -> tuple[Any, LaunchPlan, Any]:
    """A pair's kernel, its plan, and its operands with normal values in A and B."""
    import cupy as cp

    from kernels.compile import check_compiled
    from kernels.inputs import normal
    from kernels.placed import place_operands
    from kernels.session import session

    problem = pair.problem
    kernel = session().kernel(pair.key)
    check_compiled(kernel.compiled, pair.config, load_profile(device))
    operands = place_operands(cp, problem)
    for stream, (operand, lines) in enumerate(((operands.a, problem.m), (operands.b, problem.n))):
        normal(cp, lines, problem.k, problem.dtype, seed, stream=stream, out=operand.view)
    return kernel, plan_launch(problem, pair.config, pair.sms), operands


def soak_pair(
    pair: Pair, launches: int, alpha: float, beta: float, seed: int, device: str
) -> dict[str, Any]:
    """Launch a pair many times on one set of random inputs and hash C, and all around it, after
    each launch.

    ``details`` says what is wrong with the output of the last launch, held against an fp64
    reference, or how many launches gave other bits, and is empty where nothing is wrong.
    """
    import cupy as cp

    from kernels.bits import to_float32
    from kernels.inputs import chunks, normal
    from kernels.launch import GemmLaunch, Workspace
    from kernels.numerics import (
        RANDOM_ELEMENTS,
        Finding,
        Scaling,
        check_statistical,
        rel_error_limit,
    )
    from kernels.reference import reference_magnitude, reference_sum
    from kernels.session import session

    current, problem = session(), pair.problem
    kernel, plan, operands = _placed(pair, seed, device)
    workspace = Workspace(plan)
    a, b, c = operands.a.view, operands.b.view, operands.c.view
    held = normal(cp, problem.m, problem.n, problem.out, seed, stream=2)
    scaling = Scaling(alpha, beta)
    if beta != 0:
        c[...] = held
    before = operands.c.buffer.copy()
    launch = GemmLaunch(
        plan,
        kernel,
        operands.a.address,
        operands.b.address,
        operands.c.address,
        workspace,
        alpha=alpha,
        beta=beta,
    )
    totals = cp.zeros(launches, cp.uint64)
    words = operands.c.buffer.view(cp.uint16)
    for index in range(launches):
        operands.c.buffer[...] = before
        launch.launch(current.stream)
        add_checksum(words, totals[index : index + 1])
    current.stream.synchronize()

    finding = Finding()
    finding.guards_changed = operands.c.surroundings_changed()
    finding.counters_left = int(not workspace.counters_are_zero())
    for low, high in chunks(problem.m, problem.n):
        rows = a[low:high]
        old = to_float32(cp, held[low:high], problem.out)
        magnitude = reference_magnitude(rows, b, problem.dtype)
        check_statistical(
            cp,
            finding,
            c[low:high],
            scaling.of(reference_sum(rows, b, problem.dtype), old),
            scaling.slack(problem.k, magnitude, old),
            problem.out,
            low,
        )
    details = [] if finding.exact else [finding.describe("last launch")]
    small = problem.m * problem.n < RANDOM_ELEMENTS  # rounding one element may alone miss the limit
    if not small and not finding.rel_error <= rel_error_limit(problem.out, problem.k):
        details.append(f"relative error {finding.rel_error:.3g}")
    different = int((totals != totals[-1]).sum())
    if different:
        details.append(f"{different} launches gave other bits than the last")
    rel_error = finding.rel_error if math.isfinite(finding.rel_error) else None
    return {"launches": launches, "rel_error": rel_error, "details": "; ".join(details)}


def errors_of(xp: Any, got: Any, reference: Any) -> dict[str, float | None]:
    """How far an fp32 output (bits) is off a float64 reference of its shape.

    ``rel_error`` is the relative Frobenius error, ``max_error`` the largest error of an element
    over the reference's root mean square; None where the output holds what is not finite.
    """
    from kernels.bits import to_float32

    error = xp.abs(to_float32(xp, got, "fp32").astype(xp.float64) - reference)
    rms = float(xp.sqrt((reference * reference).mean()))
    figures = {
        "rel_error": float(xp.sqrt((error * error).mean())) / rms,
        "max_error": float(error.max()) / rms,
    }
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def long_sums(pair: Pair, seed: int, device: str) -> dict[str, Any]:
    """Launch a pair with C in fp32 once on normal inputs, cuBLAS on the same, and say how far each
    is off the product in float64.

    ``details`` says what is wrong where our error is beyond the statistical check's limit.
    """
    import cupy as cp

    from kernels.cublas import CublasAbsent, cublas_products
    from kernels.launch import GemmLaunch, Workspace
    from kernels.numerics import rel_error_limit
    from kernels.reference import reference_sum
    from kernels.session import session

    current, problem = session(), pair.problem
    kernel, plan, operands = _placed(pair, seed, device)
    workspace = Workspace(plan)
    a, b, c = operands.a.view, operands.b.view, operands.c.view
    reference = reference_sum(a, b, problem.dtype)
    addresses = (operands.a.address, operands.b.address, operands.c.address)
    GemmLaunch(plan, kernel, *addresses, workspace).launch(current.stream)
    current.stream.synchronize()
    ours = errors_of(cp, c, reference)

    operands.c.poison()
    try:
        library, _ = cublas_products([operands], problem, current.stream)
    except CublasAbsent as error:
        theirs: dict[str, Any] = {"library": str(error), "rel_error": None, "max_error": None}
    else:
        current.stream.synchronize()
        theirs = {"library": library, **errors_of(cp, c, reference)}
    rel_error, limit = ours["rel_error"], rel_error_limit(problem.out, problem.k)
    right = rel_error is not None and rel_error <= limit
    details = "" if right else f"relative error {rel_error}, the limit is {limit:.3g}"
    return {**ours, "limit": limit, "cublas": theirs, "details": details}
