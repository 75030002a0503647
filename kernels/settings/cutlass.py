"""CUTLASS: arguments of its profiler, a line of its test list, a problem of its heuristics.

The forms are CUTLASS 4's: names of kernels as ``cutlass_library`` makes them, the test list as
``cutlass_profiler --testlist-file`` reads it, problems as its build reads them from
``CUTLASS_LIBRARY_HEURISTICS_PROBLEMS_FILE``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from kernels.settings.words import own_fields
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import VECTOR_BYTES, Problem, is_k_major

TYPES = {"bf16": "bf16", "fp16": "f16", "fp32": "f32"}
SWIZZLE_MAX = 8
ALIGNMENT = VECTOR_BYTES // 2  # elements of 16 bits that TMA needs a line to be a multiple of
EPILOGUE_BYTES = 2**20 // 8
"""Shared memory beyond which cutlass_library has no kernel that stages C and D for TMA."""

BY_ROWS = (
    "C by rows: cutlass_library has kernels with D by columns alone, which these settings name"
)
STAGES = "stages: cutlass_library takes as many as fit beside the epilogue"
ORDER = (
    "raster_group: swizzle_size walks tiles in like groups, in an order of CUTLASS's own that also "
    "depends on the problem"
)


def cutlass_settings(problem: Problem, config: Config) -> dict[str, Any]:
    """What CUTLASS can be told of a configuration, and in ``cannot_express`` what it can't.

    ``kernel`` is None where no kernel of cutlass_library is like it; ``arguments`` still choose the
    problem and the tile.
    """
    a_by_rows, b_by_k = is_k_major(problem.layout)
    kernel, reasons = _kernel(problem, config)
    element, out = TYPES[problem.dtype], TYPES[problem.out]
    swizzle = min(config.raster_group, SWIZZLE_MAX)
    options: dict[str, Any] = {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "A": f"{element}:{'row' if a_by_rows else 'column'}",
        "B": f"{element}:{'column' if b_by_k else 'row'}",
        "C": f"{out}:column",
        "D": f"{out}:column",
        "alpha": 1,
        "beta": 0,
        "split_k_slices": config.split_k,
        "batch_count": 1,
        "raster_order": "along_m",
        "swizzle_size": swizzle,
        "use_pdl": "true" if _overlaps(problem, config) else "false",
        "accum": "f32",
        "cta_m": config.tile_m,
        "cta_n": config.tile_n,
        "cta_k": config.tile_k,
        "cluster_m": config.cluster_m,
        "cluster_n": config.cluster_n,
        "cluster_k": 1,
    }
    named = [] if kernel is None else [f"--kernels={kernel}"]
    return {
        "kernel": kernel,
        "arguments": [
            "--operation=Gemm",
            *named,
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        "testlist_row": None if kernel is None else {"operation_name": kernel, **options},
        "heuristics_problem": {
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "batch_count": 1,
            "layout": problem.layout + "n",
            "dtype_a": element,
            "dtype_b": element,
            "dtype_c": out,
            "dtype_acc": "f32",
            "dtype_d": out,
            "beta": 0.0,
            "use_fast_acc": False,
        },
        "cannot_express": [
            BY_ROWS,
            STAGES,
            ORDER,
            *reasons,
            *_places(problem),
            *own_fields(config),
        ],
    }


def profiler_list(rows: Sequence[dict[str, Any]]) -> str:
    """A test list: the first column names the kernel, the others are the profiler's arguments."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _kernel(problem: Problem, config: Config) -> tuple[str | None, list[str]]:
    """The name of the kernel of cutlass_library that is most like it, and what is unlike."""
    reasons: list[str] = []
    if config.raster_group > SWIZZLE_MAX:
        reasons.append(f"raster_group {config.raster_group}: swizzle_size is at most {SWIZZLE_MAX}")
    unaligned = [name for name, x in (("A", problem.a), ("B", problem.b)) if x.length % ALIGNMENT]
    if unaligned:
        reasons.append(
            f"lines of {' and '.join(unaligned)} that are no multiple of {VECTOR_BYTES} bytes: the "
            "kernels of cutlass_library that take them do not load by TMA"
        )
    schedule = "warpspecialized" + ("" if config.math_warpgroups == 1 else "_cooperative")
    staged_bytes = 2 * problem.out_bytes * config.tile_m * config.tile_n  # of C and of D
    if config.math_warpgroups == 1 or staged_bytes > EPILOGUE_BYTES:
        epilogue = "epi_nosmem"
        reasons.append("C stored by TMA: cutlass_library's kernel stores this tile from registers")
    else:
        epilogue = "epi_tma"
    if config.math_warpgroups not in (1, 2):
        reasons.append(f"math_warpgroups {config.math_warpgroups}: there are kernels of 1 and 2")
    split = config.split_k > 1
    if split and config.math_warpgroups == 1:
        reasons.append("split_k: kernels of one MATH warpgroup split nothing")
    if split and config.math_warpgroups == 2:
        schedule = f"stream_k_{schedule}"
    told = config.math_warpgroups in (1, 2) and not (split and config.math_warpgroups == 1)
    if unaligned or not told:
        return None, reasons
    element, out = TYPES[problem.dtype], TYPES[problem.out]
    tile = f"{config.tile_m}x{config.tile_n}x{config.tile_k}"
    cluster = f"{config.cluster_m}x{config.cluster_n}x1"
    name = (
        f"cutlass3x_sm90_tensorop_gemm_{element}_{element}_f32_{out}_{out}_{tile}_{cluster}_0_"
        f"{problem.layout}n_align{ALIGNMENT}_{schedule}_{epilogue}"
    )
    return name, reasons


def _places(problem: Problem) -> list[str]:
    """What the profiler makes of the operands itself."""
    matrices = (("A", problem.a), ("B", problem.b), ("C", problem.c))
    gaps = [name for name, x in matrices if x.pitch != x.length]
    starts = [name for name, x in matrices if x.offset]
    said = [f"pitch of {name}: the profiler's operands are packed" for name in gaps]
    return said + [f"start of {name}: the profiler's operands are aligned" for name in starts]


def _overlaps(problem: Problem, config: Config) -> bool:
    """Whether the launch begins while the one before it runs, as kernels.launch_plan has it."""
    smem_bytes = family.smem_bytes(config.to_dict(), problem.element_bytes)
    return bool(family.holds_sm(smem_bytes))
