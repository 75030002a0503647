"""Triton: a ``triton.Config`` for a kernel written as its tutorial's matrix product is.

And the table of shapes that inference servers (vLLM, SGLang) read for their Triton kernels: one
file for each weight, its keys the numbers of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernels.settings.words import own_fields
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

WARPS = family.WARPGROUP // family.WARP  # of a warpgroup
EXPRESSIBLE: dict[str, dict[str, dict[str, Any]]] = {
    "config": {
        "tile_m": {"in": [64, 128, 256]},
        "tile_n": {"in": [16, 32, 64, 128, 256]},
        "math_warpgroups": {"in": [1, 2]},
        "cluster_m": {"in": [1]},
        "cluster_n": {"in": [1]},
        "split_k": {"in": [1]},
    }
}
"""The solver's constraints under which a configuration can be said: blocks are powers of two, and
the kernels have neither clusters nor split-K."""

OTHER_KERNEL = (
    "the kernel: these are settings of a kernel that Triton compiles, whose times are its own"
)
ROUTING = (
    "experts and routing: a fused MoE kernel multiplies parts of the rows with each expert's "
    "weights; the shapes here are products of all rows with one weight"
)

PLACES = "types, layout, pitches and alignments: a file is found by N, K and the GPU alone"


def _unsaid(config: Config) -> list[str]:
    """Fields that keep a configuration from being said."""
    reasons = []
    for name, bound in EXPRESSIBLE["config"].items():
        value = getattr(config, name)
        if value not in bound["in"]:
            among = ", ".join(map(str, bound["in"]))
            reasons.append(f"{name} {value}: must be one of {among}")
    return reasons


def triton_settings(config: Config) -> dict[str, Any]:
    """The arguments of ``triton.Config``; None for each where a field can't be said, which
    ``cannot_express`` names."""
    unsaid = _unsaid(config)
    arguments = None
    if not unsaid:
        arguments = {
            "kwargs": {
                "BLOCK_SIZE_M": config.tile_m,
                "BLOCK_SIZE_N": config.tile_n,
                "BLOCK_SIZE_K": config.tile_k,
                "GROUP_SIZE_M": config.raster_group,
            },
            "num_warps": WARPS * config.math_warpgroups,
            "num_stages": config.stages,
            "num_ctas": 1,
        }
    return {
        "config": arguments,
        "cannot_express": [*unsaid, OTHER_KERNEL, *own_fields(config)],
    }


def server_files(
    rows: Iterable[tuple[Problem, Config]], device_title: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The tables of inference servers by file name, and what they can't express.

    ``rows`` hold configurations that can be said; a row count that comes twice for one weight
    keeps its first. ``device_title`` is the GPU as ``torch.cuda.get_device_name`` has it.
    """
    files: dict[str, dict[str, Any]] = {}
    unsaid = [OTHER_KERNEL, ROUTING, PLACES]
    for problem, config in rows:
        arguments = triton_settings(config)["config"]
        if arguments is None:
            raise ValueError(f"{config} can't be said")
        name = f"N={problem.n},K={problem.k},device_name={device_title.replace(' ', '_')}.json"
        entry = {
            **arguments["kwargs"],
            "num_warps": arguments["num_warps"],
            "num_stages": arguments["num_stages"],
        }
        files.setdefault(name, {}).setdefault(str(problem.m), entry)
        unsaid += [words for words in own_fields(config) if words not in unsaid]
    ordered = {
        name: dict(sorted(table.items(), key=lambda row: int(row[0])))
        for name, table in sorted(files.items())
    }
    return ordered, unsaid
