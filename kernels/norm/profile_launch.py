"""What ``kernels.norm.profile`` runs under the profiler: one cold launch of each cell.

ncu … python -m kernels.norm.profile_launch CELLS.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kernels.host import find_gpu
from kernels.norm.cells import Cell, read_cells
from kernels.norm.device import norm_profile
from kernels.protocol import NORM

WARM_UPS = 2


def launch(cells: Sequence[Cell]) -> None:
    """Launch each cell warm, then once with its inputs out of the L2, profiled."""
    import cupy as cp

    from kernels.norm.run import NormArrays, bind
    from kernels.session import session

    current = session()
    arrays = NormArrays.of(cells[0].problem, seed=1)
    for cell in cells:
        plan, function = bind(cell.problem, cell.config, cell.reserved_smem_bytes)
        bound = arrays.launch(plan, function)
        for _ in range(WARM_UPS):
            bound.launch(current.stream)
        current.flush_l2(NORM.l2_multiple)
        current.stream.synchronize()
        cp.cuda.runtime.profilerStart()
        bound.launch(current.stream)
        current.stream.synchronize()
        cp.cuda.runtime.profilerStop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Argument: a plan of cells of one problem."""
    (path,) = sys.argv[1:] if arguments is None else arguments
    launch(read_cells(Path(path), norm_profile(find_gpu())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
