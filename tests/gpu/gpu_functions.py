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
    kernel = LoadedKernel.load(compile_never_ends(family.compile_key(config, problem.dtype)))
    plan = plan_launch(problem, config, current.sms)
    operands = current.operand_sets(problem, 1)[0]
    addresses = (int(x.data.ptr) for x in (operands.a, operands.b, operands.c))
    GemmLaunch(plan, kernel, *addresses, Workspace(plan)).launch(current.stream)
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
        current.kernel(family.compile_key(config, problem.dtype)),
        int(operands.a.data.ptr),
        int(operands.b.data.ptr),
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
        current.kernel(family.compile_key(config, problem.dtype)),
        int(operands.a.data.ptr),
        int(operands.b.data.ptr),
        int(operands.c.data.ptr),
        workspace,
    )
    outputs = []
    for _ in range(launches):
        operands.c.fill(0xFFFF)
        launch.launch(current.stream)
        outputs.append(cp.asnumpy(operands.c).tobytes())
        if not workspace.counters_are_zero():
            raise RuntimeError("split-K counters are not zero after a launch")
    return outputs


def inputs_on_both(dtype: str) -> dict[str, tuple[Any, Any]]:
    """Each generator's output by numpy and by CuPy, as numpy arrays."""
    import cupy as cp

    from kernels import inputs

    pairs = {}
    for name in ("normal", "ternary"):
        draw = getattr(inputs, name)
        pairs[name] = (draw(np, 96, 1000, dtype, 7, 3), cp.asnumpy(draw(cp, 96, 1000, dtype, 7, 3)))
    signs = []
    for xp in (np, cp):
        order = inputs.sparse_order(xp, 5000, 7)
        signs.append(inputs.sparse_signs(xp, order, 70, dtype, 7, 1))
    pairs["sparse_signs"] = (signs[0], cp.asnumpy(signs[1]))
    return pairs


def references_on_both(dtype: str) -> dict[str, tuple[Any, Any]]:
    """The reference products by numpy in float64 and by the reference kernels."""
    import cupy as cp

    from kernels import reference
    from kernels.inputs import normal, sparse_order, sparse_signs, ternary
    from kernels.numerics import numpy_product

    m, n, k = 150, 131, 777
    a, b = (normal(np, rows, k, dtype, 5, stream) for rows, stream in ((m, 1), (n, 2)))
    signs = sparse_signs(np, sparse_order(np, k, 5), m, dtype, 5, 0)
    integers = ternary(np, n, k, dtype, 5, 3)

    def on_gpu(product: Any, left: Any, right: Any) -> Any:
        return cp.asnumpy(product(cp.asarray(left), cp.asarray(right), dtype))

    magnitude = numpy_product(np, a & 0x7FFF, b & 0x7FFF, dtype)
    return {
        "sum": (numpy_product(np, a, b, dtype), on_gpu(reference.reference_sum, a, b)),
        "magnitude": (magnitude, on_gpu(reference.reference_magnitude, a, b)),
        "exact": (
            numpy_product(np, signs, integers, dtype),
            on_gpu(reference.reference_exact, signs, integers),
        ),
    }


def times_of_a_copy(elements: int) -> dict[str, float]:
    """A device copy timed by the protocol, and its bytes: for a bound on what is plausible."""
    import cupy as cp

    from kernels.measure import Side, measure
    from kernels.protocol import BENCH
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
