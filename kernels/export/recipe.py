"""A launch written down: all that a program without Warpwright needs to make it.

Plain JSON values, worked out from the launch plan alone: no GPU, no driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.copy_plan import COPY_ENTRY, LINES, THREADS, copies_needed, copy_blocks, copy_jobs
from kernels.launch_plan import ARGUMENTS, ENTRY, Box, LaunchPlan, TileLoad, plan_launch
from kernels.sources import ARCH, kernel_id
from kernels.tensor_map_names import (
    DATA_TYPES,
    INTERLEAVE,
    L2_PROMOTION,
    OUT_OF_BOUNDS,
    SWIZZLES,
)
from solver.config import Config
from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.problem import VECTOR_BYTES, Matrix, Problem

FORMAT = "warpwright-launch-1"
GEMM, COPIES = "gemm", "copies"
"""What a recipe calls its two modules."""

BUFFER_ALIGNMENT = 512  # bytes, as cudaMalloc's own at least
_TYPES = {"<u8": "u64", "<i8": "i64", "<i4": "i32", "<f4": "f32"}


def launch_recipe(problem: Problem, config: Config, device: DeviceProfile) -> dict[str, Any]:
    """The launch of a configuration for a problem on a device, with alpha 1 and beta 0.

    Raises IllegalConfig naming the first limit that the configuration breaks.
    """
    legality.check(config, problem, device)
    plan = plan_launch(problem, config, device)
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    launches = [_gemm(plan)]
    if copies_needed(plan):
        launches.insert(0, _copies(plan))
    return {
        "format": FORMAT,
        "kernel": kernel_id(key),
        "arch": ARCH,
        "computes": "C = alpha * A * B + beta * C, A m x k, B k x n, C m x n; fp32 accumulation; "
        "C is not read where beta is 0",
        "problem": problem.to_dict(),
        "config": config.to_dict(),
        "device": {
            "name": device.name,
            "sms": device.limit("sms"),
            "profile_sha256": device.sha256,
        },
        "operands": _operands(problem),
        "buffers": _buffers(plan),
        "launches": launches,
        "limits": _limits(plan, device),
    }


def _operands(problem: Problem) -> dict[str, Any]:
    p = problem
    return {
        "a": _operand(p.a, p.dtype, (p.m, p.k), p.a_is_k_major),
        "b": _operand(p.b, p.dtype, (p.k, p.n), not p.b_is_k_major),
        "c": _operand(p.c, p.out, (p.m, p.n), True),
    }


def _operand(matrix: Matrix, dtype: str, shape: tuple[int, int], by_rows: bool) -> dict[str, Any]:
    """``by_rows``: the lines in memory are the matrix's rows, else its columns."""
    strides = [matrix.pitch, 1] if by_rows else [1, matrix.pitch]
    return {
        "dtype": dtype,
        "shape": list(shape),
        "element_strides": strides,
        "element_bytes": matrix.element_bytes,
        "bytes": matrix.elements * matrix.element_bytes,
        "address_modulo_16": matrix.offset * matrix.element_bytes,
    }


def _buffers(plan: LaunchPlan) -> list[dict[str, Any]]:
    """Memory that the launch needs besides A, B and C."""
    buffers = [
        ("a_copy", plan.a.copy_bytes, "any", "filled by the launch of copy_operands"),
        ("b_copy", plan.b.copy_bytes, "any", "filled by the launch of copy_operands"),
        ("workspace", plan.workspace_bytes, "any", "partial tiles of split-K"),
        ("counters", plan.counter_bytes, "zero", "each launch leaves them zero"),
    ]
    return [
        {"name": name, "bytes": size, "alignment": BUFFER_ALIGNMENT, "initial": initial, "use": use}
        for name, size, initial, use in buffers
        if size
    ]


def _gemm(plan: LaunchPlan) -> dict[str, Any]:
    block = plan.arguments(0, 0, 0)
    bases = {
        "c": "c",
        "workspace": "workspace" if plan.workspace_bytes else None,
        "counters": "counters" if plan.counter_bytes else None,
    }
    notes = {
        "alpha": "may be another; `plain` must be 0 then",
        "beta": "may be another; `plain` must be 0 then",
        "plain": "0 is always right; 1 only where alpha is 1 and beta 0",
    }
    map_a = _tensor_map("a", plan.a.box, "a_copy" if plan.a.copied else "a")
    map_b = _tensor_map("b", plan.b.box, "b_copy" if plan.b.copied else "b")
    # Elements are stored one by one without a map of C: the parameter is there, and not looked at.
    map_c = {**map_a, "name": "c"} if plan.c is None else _tensor_map("c", plan.c, "c")
    attributes: dict[str, Any] = {}
    if plan.overlaps:
        attributes["CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"] = 1
    if plan.cluster > 1:
        attributes["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"] = [plan.cluster, 1, 1]
    return {
        "module": GEMM,
        "entry": ENTRY,
        "grid": [plan.grid, 1, 1],
        "cluster": [plan.cluster, 1, 1],
        "block": [plan.threads, 1, 1],
        "dynamic_smem_bytes": plan.smem_bytes,
        "function_attributes": {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": plan.smem_bytes},
        "launch_attributes": attributes,
        "parameters": [map_a, map_b, map_c, _block("args", block, ARGUMENTS, bases, notes)],
    }


def _copies(plan: LaunchPlan) -> dict[str, Any]:
    jobs = copy_jobs(plan, 0, 0, 0, 0)
    parameters = [
        _block(name, job, LINES, {"from": name, "to": f"{name}_copy"} if load.copied else {}, {})
        for name, job, load in zip("ab", jobs, (plan.a, plan.b), strict=True)
    ]
    return {
        "module": COPIES,
        "entry": COPY_ENTRY,
        "grid": [copy_blocks(plan), 1, 1],
        "cluster": [1, 1, 1],
        "block": [THREADS, 1, 1],
        "dynamic_smem_bytes": 0,
        "function_attributes": {},
        "launch_attributes": {"CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": 1},
        "parameters": parameters,
    }


def _tensor_map(name: str, box: Box, base: str) -> dict[str, Any]:
    """The arguments of cuTensorMapEncodeTiled, innermost dimension first."""
    return {
        "name": name,
        "kind": "tensor_map",
        "bytes": 128,
        "base": base,
        "data_type": DATA_TYPES[box.dtype],
        "rank": 2,
        "dims": [box.columns, box.rows],
        "strides_bytes": [box.row_bytes],
        "box": [box.box_columns, box.box_rows],
        "element_strides": [1, 1],
        "interleave": INTERLEAVE,
        "swizzle": SWIZZLES[box.swizzle_bytes],
        "l2_promotion": L2_PROMOTION,
        "oob_fill": OUT_OF_BOUNDS,
    }


def _block(
    name: str,
    block: np.ndarray[Any, Any],
    layout: np.dtype[Any],
    bases: Mapping[str, str | None],
    notes: Mapping[str, str],
) -> dict[str, Any]:
    """A parameter passed by value, field by field; ``bases`` are those that hold addresses."""
    fields: list[dict[str, Any]] = []
    assert layout.fields is not None
    for field in layout.names or ():
        kind, offset = layout.fields[field][:2]
        entry: dict[str, Any] = {"name": field, "offset": offset, "type": _TYPES[kind.str]}
        base = bases.get(field)
        if base is None:
            entry["value"] = block[field][0].item()
        else:
            entry["address_of"] = base
        if field in notes:
            entry["note"] = notes[field]
        fields.append(entry)
    return {"name": name, "kind": "block", "bytes": layout.itemsize, "fields": fields}


def _limits(plan: LaunchPlan, device: DeviceProfile) -> list[str]:
    """What must hold for the launch to be right."""

    def lies(name: str, matrix: Matrix) -> str:
        past = matrix.offset * matrix.element_bytes
        where = f"{past} bytes past a multiple" if past else "at a multiple"
        pitch = f"{matrix.pitch} elements ({matrix.pitch * matrix.element_bytes} bytes)"
        return f"{name} begins {where} of {VECTOR_BYTES} bytes; its lines are {pitch} apart"

    def copied(name: str, load: TileLoad) -> list[str]:
        if not load.copied:
            return []
        return [
            f"TMA can't take {name} as it lies: {COPY_ENTRY} copies it before each launch that "
            f"finds {name} changed, in the same stream"
        ]

    shared = (
        "launches in one stream may share its buffers; launches that may run at once need buffers "
        "of their own"
        if _buffers(plan)
        else "it needs no buffers: launches may run at once wherever each has a C of its own"
    )
    problem = plan.problem
    return [
        f"a GPU of compute capability 9.0 ({ARCH}); the grid is for {device.limit('sms')} SMs, "
        "fewer or more are right too and take longer",
        "a driver of the CUDA major version that compiled the cubins, or a later one",
        lies("A", problem.a),
        lies("B", problem.b),
        lies("C", problem.c),
        "C overlaps neither A nor B",
        *copied("A", plan.a),
        *copied("B", plan.b),
        shared,
        "all values of this recipe belong to this problem and configuration: another m, n, k, "
        "pitch or alignment has another recipe",
    ]
