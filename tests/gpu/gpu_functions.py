"""What the GPU tests run in a worker process. CUDA is imported inside, as in kernels.worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.launch_plan import plan_launch
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

UNMAPPED_ADDRESS = 1 << 44


def spin_for_ever(config: Config) -> None:
    """Launch the test-only kernel that never ends, and wait for it."""
    from kernels.compile import compile_never_ends
    from kernels.launch import GemmLaunch, LoadedKernel, Workspace
    from kernels.session import session

    current = session()
    problem = Problem(64, 64, 64)
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    kernel = LoadedKernel.load(compile_never_ends(key))
    plan = plan_launch(problem, config, current.sms)
    operands = current.operand_sets(problem, 1)[0]
    a, b, c = (x.address for x in (operands.a, operands.b, operands.c))
    GemmLaunch(plan, kernel, a, b, c, Workspace(plan)).launch(current.stream)
    current.stream.synchronize()


def store_to_nowhere(config: Config) -> None:
    """Launch with a C that is no memory, so that the kernel's own stores fault."""
    from kernels.launch import GemmLaunch, Workspace
    from kernels.session import session

    current = session()
    problem = Problem(64, 63, 64)  # an odd n: element-wise stores
    plan = plan_launch(problem, config, current.sms)
    operands = current.operand_sets(problem, 1)[0]
    GemmLaunch(
        plan,
        current.kernel(family.compile_key(config, problem.dtype, problem.kernel_layout)),
        operands.a.address,
        operands.b.address,
        UNMAPPED_ADDRESS,
        Workspace(plan),
    ).launch(current.stream)
    current.stream.synchronize()


def outputs_of(problem: Problem, config: Config, launches: int) -> list[bytes]:
    """The output's bytes after each of several launches on the same random inputs."""
    import cupy as cp

    from kernels.launch import GemmLaunch, Workspace
    from kernels.session import session

    current = session()
    plan = plan_launch(problem, config, current.sms)
    operands = current.operand_sets(problem, 1)[0]
    workspace = Workspace(plan)
    launch = GemmLaunch(
        plan,
        current.kernel(family.compile_key(config, problem.dtype, problem.kernel_layout)),
        operands.a.address,
        operands.b.address,
        operands.c.address,
        workspace,
    )
    outputs = []
    for _ in range(launches):
        operands.c.lines.fill(0xFFFF)
        launch.launch(current.stream)
        outputs.append(cp.asnumpy(operands.c.view).tobytes())
        if not workspace.counters_are_zero():
            raise RuntimeError("split-K counters are not zero after a launch")
    return outputs


def inputs_on_both(dtype: str) -> dict[str, tuple[Any, Any]]:
    """Each generator's output by numpy and by CuPy, as numpy arrays; CuPy fills views whose
    rows are not contiguous."""
    import cupy as cp

    from kernels import inputs
    from kernels.bits import bits_type

    drawn: dict[str, list[Any]] = {"normal": [], "integers": [], "sparse_signs": []}
    for xp in (np, cp):
        kind = bits_type(xp, dtype)
        outs = [xp.empty((2 * 1000, 96), kind)[::2].T if xp is cp else None for _ in range(2)]
        drawn["normal"].append(inputs.normal(xp, 96, 1000, dtype, 7, 3, out=outs[0]))
        drawn["integers"].append(inputs.integers(xp, 96, 1000, 32, dtype, 7, 3, out=outs[1]))
        out = xp.empty((2 * 5000, 70), kind)[::2].T if xp is cp else None
        order = inputs.sparse_order(xp, 5000, 7)
        drawn["sparse_signs"].append(inputs.sparse_signs(xp, order, 70, dtype, 7, 1, out=out))
    return {name: (cpu, cp.asnumpy(gpu)) for name, (cpu, gpu) in drawn.items()}


def references_on_both(dtype: str, layout: str) -> dict[str, tuple[Any, Any]]:
    """The reference products by numpy in float64 and by the reference kernels, on operands
    with gaps and offsets."""
    import cupy as cp

    from kernels import reference
    from kernels.inputs import integers, normal, sparse_order, sparse_signs
    from kernels.placed import place_operands
    from tests.kernels.numpy_reference import numpy_product

    m, n, k = 150, 131, 777
    problem = Problem(m, n, k, dtype, layout, lda=779, ldb=801, a_offset=3, b_offset=1)
    a, b = (normal(np, rows, k, dtype, 5, stream) for rows, stream in ((m, 1), (n, 2)))
    signs = sparse_signs(np, sparse_order(np, k, 5), m, dtype, 5, 0)
    ternary = integers(np, n, k, 1, dtype, 5, 3)

    def on_gpu(product: Any, left: Any, right: Any) -> Any:
        operands = place_operands(cp, problem)
        operands.a.view[...] = cp.asarray(left)
        operands.b.view[...] = cp.asarray(right)
        return cp.asnumpy(product(operands.a.view, operands.b.view, dtype))

    magnitude = numpy_product(a & 0x7FFF, b & 0x7FFF, dtype)
    return {
        "sum": (numpy_product(a, b, dtype), on_gpu(reference.reference_sum, a, b)),
        "magnitude": (magnitude, on_gpu(reference.reference_magnitude, a, b)),
        "exact": (
            numpy_product(signs, ternary, dtype),
            on_gpu(reference.reference_exact, signs, ternary),
        ),
    }


def cublas_on_both(problem: Problem) -> list[tuple[str, int, float]]:
    """Each binding of cuBLAS that is there: its name, wrong elements, relative error."""
    import cupy as cp

    from kernels.cublas import cupy_products, torch_products
    from kernels.numerics import Finding, Scaling, check_statistical
    from kernels.reference import reference_magnitude, reference_sum
    from kernels.session import session

    current = session()
    sets = current.operand_sets(problem, 2)
    found = []
    for products in (torch_products, cupy_products):
        for operands in sets:
            operands.c.lines.fill(0xFFFF)
        try:
            name, enqueue = products(sets, problem, current.stream)
            enqueue()
        except (ImportError, TypeError):  # no such library, or one too old for this output type
            continue
        finding = Finding()
        for operands in sets:
            a, b = operands.a.view, operands.b.view
            # Splits of k may be summed in C's own type: its ulp, not fp32's, is the yardstick.
            slack = 8 * Scaling().slack(problem.k, reference_magnitude(a, b, problem.dtype))
            sums = reference_sum(a, b, problem.dtype)
            check_statistical(cp, finding, operands.c.view, sums, slack, problem.out)
        found.append((name, finding.wrong, finding.rel_error))
    return found


def times_of_a_copy(elements: int) -> dict[str, float]:
    """A device copy timed by the protocol, and its bytes: for a bound on what is plausible."""
    import cupy as cp

    from kernels.measure import measure
    from kernels.protocol import BENCH
    from kernels.replay import Side
    from kernels.session import session

    current = session()
    source = cp.zeros(elements, cp.uint16)
    target = cp.empty_like(source)

    def enqueue() -> None:
        for _ in range(4):
            cp.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, source.nbytes, 3, current.stream.ptr
            )

    side = Side(enqueue, 4)
    measured = measure(current, [side, side], BENCH)
    assert measured.ratio is not None
    return {
        "median_us": measured.timings[0].median_us,
        "ratio": measured.ratio.ratio,
        "low": measured.ratio.low,
        "high": measured.ratio.high,
        "bytes": 2.0 * source.nbytes,
    }


def products(
    extents: tuple[int, int, int], fields: dict[str, Any], scalars: tuple[float, float]
) -> tuple[Any, Any, int]:
    """C by ``kernels.product.gemm``, what it must be (both float64), and words around C that
    changed. A and B are NaN where they must not be read: for k or alpha of zero."""
    import cupy as cp

    from kernels.bits import from_float32, to_float32
    from kernels.placed import place_operands
    from kernels.product import gemm
    from kernels.session import session

    current = session()
    (m, n, k), (alpha, beta) = extents, scalars
    problem = Problem(max(m, 1), max(n, 1), max(k, 1), **fields)
    operands = place_operands(cp, problem)
    rng = np.random.default_rng(m + n + k)

    def fill(placed: Any, dtype: str) -> Any:
        values = rng.integers(-3, 4, placed.view.shape).astype(np.float32)
        placed.view[...] = from_float32(cp, cp.asarray(values), dtype)
        return values.astype(np.float64)

    if k and alpha:
        a, b = fill(operands.a, problem.dtype), fill(operands.b, problem.dtype)
        wanted = alpha * (a @ b.T)
    else:
        wanted = np.zeros((problem.m, problem.n))
    if beta:
        wanted = wanted + beta * fill(operands.c, problem.out)
    addresses = (x.address for x in (operands.a, operands.b, operands.c))
    named = {name: value for name, value in fields.items() if not name.endswith("_offset")}
    gemm(current, m, n, k, *addresses, alpha=alpha, beta=beta, **named)
    got = to_float32(cp, operands.c.view, problem.out).astype(cp.float64)
    return cp.asnumpy(got), wanted, operands.c.surroundings_changed()


def wrong_copies(cases: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    """Which of (lines, length, pitch, offset) of A come to an aligned copy wrongly, or with words
    behind it written; and how many are copied at all. What lies around A is never the same."""
    import cupy as cp

    from kernels.copies import OperandCopies
    from kernels.session import session

    stream = session().stream
    config = Config("sm90_gemm", 64, 64, 64, 4)
    guard, rng = 64, np.random.default_rng(5)
    wrong, copied = [], 0
    for case in cases:
        lines, length, pitch, offset = case
        even = -(-length // 8) * 8  # B lies as it may stay
        problem = Problem(lines, 64, length, lda=pitch, ldb=even, a_offset=offset)
        plan = plan_launch(problem, config, 132)
        if not plan.a.copied:
            continue
        copied += 1
        matrix = problem.a
        elements = offset + matrix.elements
        memory = cp.asarray(rng.integers(0, 1 << 16, elements, dtype=np.uint16))
        target = cp.full(plan.a.copy_bytes // 2 + guard, 0xABCD, cp.uint16)
        copy = OperandCopies(plan, memory.data.ptr + 2 * offset, 0, target.data.ptr, 0)
        copy.launch(stream)
        stream.synchronize()
        at = cp.arange(matrix.lines)[:, None] * matrix.pitch + cp.arange(matrix.length)
        got = target[:-guard].reshape(matrix.lines, plan.a.pitch)[:, : matrix.length]
        if (got != memory[offset:][at]).any() or (target[-guard:] != 0xABCD).any():
            wrong.append(case)
    return {"wrong": wrong, "copied": copied}


def stream_of_a_session_after_another() -> tuple[int, int]:
    """The session's stream, and CuPy's current one where other work has left its default."""
    import cupy as cp

    from kernels.session import session

    session()
    with cp.cuda.Stream(non_blocking=True):
        pass
    return int(session().stream.ptr), int(cp.cuda.get_current_stream().ptr)


def check_traced(problem: Problem, config: Config) -> str:
    """What is wrong with the product of a traced build that keeps no records; empty where nothing
    is."""
    from kernels.checking import check_config
    from kernels.compile import compile_kernel
    from kernels.launch import LoadedKernel
    from kernels.session import session
    from kernels.sources import Variant

    current = session()
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    kernel = LoadedKernel.load(compile_kernel(key, variant=Variant.TRACED))
    result = check_config(current, kernel, problem, config, current.sms, 11)
    return "; ".join(result.details)
