"""What ``bench.gpu_profile`` runs under the profiler: one cold launch of ours, one of cuBLAS's."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from kernels.bench_plan import problem_of
from kernels.protocol import BENCH
from solver.config import Config

WARM_UPS = 2


def launch(row: str, profile: str) -> None:
    """Launch the problem and configuration of a result's row (JSON), profiled."""
    import cupy as cp

    from kernels.cublas import cublas_products
    from kernels.session import session
    from kernels.sides import kernel_of, own_side

    values = json.loads(row)
    problem, config = problem_of(values), Config.from_dict(values["config"])
    current = session()
    kernel = kernel_of(current, problem, config, profile)
    sets = current.operand_sets(problem, 1)
    ours = own_side(current, problem, config, kernel, None, sets).enqueue
    _, cublas = cublas_products(sets, problem, current.stream)
    for enqueue in (ours, cublas):
        for _ in range(WARM_UPS):
            current.flush_l2(BENCH.l2_multiple)
            enqueue()
        current.flush_l2(BENCH.l2_multiple)
        current.stream.synchronize()
        cp.cuda.runtime.profilerStart()
        enqueue()
        current.stream.synchronize()
        cp.cuda.runtime.profilerStop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Arguments: a row as JSON, a device profile's name."""
    row, profile = sys.argv[1:] if arguments is None else arguments
    launch(row, profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
