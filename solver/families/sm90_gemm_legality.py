"""Legality of the Hopper GEMM family: what bounds a configuration, each rule with its words.

Every rule is arithmetic over configuration fields, so that one predicate serves a single
configuration and whole columns of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey
from solver.families.sm90_gemm_registers import register_table
from solver.problem import Problem, is_k_major

FIELD_MAX = 2**31 - 1  # of a configuration, far beyond every domain: products of two fit 64 bits
SPLIT_WAVES = 2  # waves up to which splitting k can still even out the last one


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule: the field it is about, whether it holds (element-wise), and its words.

    ``got`` is what it bounds, where that is not the field itself.
    """

    field: str
    holds: Any
    rule: str
    got: Any = None


def step_n(layout: str, out_dtype: str) -> int:
    """What tile_n must be a multiple of, for the layout that a kernel sees and C's type."""
    steps = [family.BOX_STEP]
    if not is_k_major(layout)[1]:
        steps.append(family.TRANSPOSED_STEP_N)
    if out_dtype == "fp32":
        steps.append(family.WIDE_STEP_N)
    return max(steps)


def cluster_limits(columns: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Which clusters there are, whatever the problem."""
    return (
        Limit(
            "cluster_m",
            np.logical_or.reduce(
                [
                    (columns["cluster_m"] == m) & (columns["cluster_n"] == n)
                    for m, n in family.CLUSTERS
                ]
            ),
            "(cluster_m, cluster_n) must be one of "
            + ", ".join(f"({m}, {n})" for m, n in family.CLUSTERS),
        ),
        Limit(
            "cluster_m",
            (columns["cluster_m"] == 1) | (columns["tile_n"] % (family.BOX_STEP * 2) == 0),
            f"must be 1 unless tile_n is a multiple of {family.BOX_STEP * 2} (each CTA loads half "
            "of B)",
        ),
    )


def form_limits(columns: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Which forms of kernel there are, of values that each may be had alone."""
    warpgroups = columns["math_warpgroups"]
    splits = ", ".join(map(str, family.ROLE_REGISTERS))
    return (
        Limit(
            "tile_n",
            family.accumulators(columns["tile_m"], columns["tile_n"], np.maximum(warpgroups, 1))
            <= family.ACCUMULATORS_MAX,
            f"accumulators a thread, tile_m/(64 math_warpgroups)*tile_n/2, must be at most "
            f"{family.ACCUMULATORS_MAX}",
        ),
        Limit(
            "register_split",
            (columns["register_split"] == 0) | np.isin(warpgroups, list(family.ROLE_REGISTERS)),
            f"must be 0 unless math_warpgroups is one of {splits}",
        ),
    )


def domain_limits(columns: Mapping[str, Any]) -> tuple[Limit, ...]:
    """What the family is built for: the values each variable may take, element-wise."""
    warpgroups = columns["math_warpgroups"]
    shapes = [m * family.WARPGROUP + w for m, w in family.TILE_SHAPES]
    allowed = {
        "tile_n": family.TILE_N,
        "tile_k": family.TILE_K,
        "stages": family.STAGES,
        "mma_in_flight": family.MMA_IN_FLIGHT,
        "dma_warps": family.DMA_WARPS,
        "register_split": family.REGISTER_SPLIT,
        "split_k": family.SPLIT_K,
        "raster_group": family.RASTER_GROUP,
    }
    tiles = sorted({m for m, _ in family.TILE_SHAPES})
    return (
        Limit(
            "tile_m",
            np.isin(columns["tile_m"], tiles),
            f"must be one of {', '.join(map(str, tiles))}",
        ),
        Limit(
            "math_warpgroups",
            np.isin(columns["tile_m"] * family.WARPGROUP + warpgroups, shapes)
            & (columns["tile_m"] > 0)
            & (warpgroups < family.WARPGROUP),
            "(tile_m, math_warpgroups) must be one of "
            + ", ".join(f"({m}, {w})" for m, w in family.TILE_SHAPES),
        ),
        *(
            Limit(
                name,
                np.isin(columns[name], values),
                f"must be one of {', '.join(map(str, values))}",
            )
            for name, values in allowed.items()
        ),
        *cluster_limits(columns),
        *form_limits(columns),
    )


def candidate_keys(dtype: str, layout: str) -> tuple[CompileKey, ...]:
    """Every compile key that a legal configuration could have, as far as can be said before the
    compiler has spoken; in the domain's order."""
    step = step_n(layout, dtype)
    keys = [
        CompileKey(dtype, layout, tile_m, tile_n, tile_k, warpgroups, split, flight)
        for (tile_m, warpgroups), tile_n, tile_k, split, flight in product(
            family.TILE_SHAPES,
            [n for n in family.TILE_N if n % step == 0],
            family.TILE_K,
            family.REGISTER_SPLIT,
            family.MMA_IN_FLIGHT,
        )
    ]
    columns = {
        name: np.array([getattr(key, name) for key in keys])
        for name in ("tile_m", "tile_n", "math_warpgroups", "register_split")
    }
    legal = np.logical_and.reduce([limit.holds for limit in form_limits(columns)])
    return tuple(key for key, is_legal in zip(keys, legal, strict=True) if is_legal)


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """What a device lets one block have."""

    smem_bytes: int
    registers: int
    threads: int

    @classmethod
    def of(cls, device: DeviceProfile) -> BlockLimits:
        """The device's own."""
        return cls(
            smem_bytes=device.limit("smem_per_block_bytes"),
            registers=device.limit("registers_per_sm"),
            threads=device.limit("threads_per_block"),
        )


def kernel_limits(
    columns: Mapping[str, Any], element_bytes: int, block: BlockLimits, registers: Any
) -> tuple[Limit, ...]:
    """What holds or fails on a device whatever the problem, element-wise over columns.

    ``registers`` is the launch count per thread that the compiler reports, 0 where it
    refused the kernel.
    """
    warpgroups = columns["math_warpgroups"]
    block_threads = family.threads(columns)
    allocated = family.allocated_registers(block_threads, registers)
    is_split = [(columns["register_split"] == 1) & (warpgroups == w) for w in family.ROLE_REGISTERS]
    roles = np.select(
        is_split,
        [family.WARPGROUP * (dma + w * math) for w, (dma, math) in family.ROLE_REGISTERS.items()],
        0,
    )
    return (
        Limit(
            "stages",
            family.usable_slots(columns) >= 2,
            "must leave 2 usable slots (a wgmma group in flight holds one)",
        ),
        Limit(
            "stages",
            family.smem_bytes(columns, element_bytes) <= block.smem_bytes,
            f"shared memory must be at most {block.smem_bytes} bytes per block",
            family.smem_bytes(columns, element_bytes),
        ),
        Limit("tile_n", registers > 0, "the accumulators must fit: the compiler refuses this tile"),
        Limit(
            "math_warpgroups",
            allocated <= block.registers,
            f"threads x registers must be at most {block.registers} per SM",
            allocated,
        ),
        Limit(
            "register_split",
            roles <= block_threads * registers,
            "the roles may not ask for more registers than the launch has, or the kernel waits "
            "for ever",
        ),
        Limit(
            "math_warpgroups",
            block_threads <= block.threads,
            f"threads must be at most {block.threads} per block",
            block_threads,
        ),
    )


def grid_limits(columns: Mapping[str, Any], problem: Problem, sms: int) -> tuple[Limit, ...]:
    """What a kernel can walk at all on ``sms`` SMs, element-wise over columns."""
    tiles_m = -(-problem.m // columns["tile_m"])
    tiles_n = -(-problem.n // columns["tile_n"])
    ctas = columns["cluster_m"] * columns["cluster_n"]
    return (
        *(
            Limit(
                f"tile_{axis}",
                tiles * columns[f"tile_{axis}"] <= family.COORDINATES_END,
                f"tiles must end by {family.COORDINATES_END} along {axis}: TMA's coordinates are "
                "signed, of 32 bits",
                tiles * columns[f"tile_{axis}"],
            )
            for axis, tiles in (("m", tiles_m), ("n", tiles_n))
        ),
        Limit(
            "tile_n",
            tiles_m * tiles_n * columns["split_k"] <= family.UNITS_MAX,
            f"units of work, tiles times split_k, must be at most {family.UNITS_MAX}",
        ),
        Limit(
            "cluster_m",
            tiles_m % columns["cluster_m"] == 0,
            "must divide ceil(m / tile_m): no CTA of a cluster may lie wholly outside",
        ),
        Limit(
            "cluster_n",
            tiles_n % columns["cluster_n"] == 0,
            "must divide ceil(n / tile_n): no CTA of a cluster may lie wholly outside",
        ),
        Limit("cluster_m", ctas <= sms, f"a cluster's CTAs must be at most the {sms} SMs", ctas),
    )


def launch_limits(columns: Mapping[str, Any], problem: Problem, sms: int) -> tuple[Limit, ...]:
    """The rules that tie a configuration to the problem, element-wise over columns.

    They keep one of several launches that would do the same work the same way, so that
    configurations are distinct: no tile beyond the problem, no empty split, no raster group
    that orders nothing.
    """
    tile_m, tile_n = columns["tile_m"], columns["tile_n"]
    split, group = columns["split_k"], columns["raster_group"]
    tiles_m = -(-problem.m // tile_m)
    tiles = tiles_m * -(-problem.n // tile_n)
    k_iterations = -(-problem.k // columns["tile_k"])
    widest_m = max(family.MMA_M, -(-problem.m // family.MMA_M) * family.MMA_M)
    step = step_n(problem.kernel_layout, problem.out)
    allowed_n = [n for n in family.TILE_N if n % step == 0]
    next_n = next((n for n in allowed_n if n >= problem.n), allowed_n[-1])
    clusters_m = tiles_m // columns["cluster_m"]
    return (
        Limit(
            "tile_n",
            tile_n % step == 0,
            f"must be a multiple of {step} for layout {problem.layout} and C in {problem.out}",
        ),
        Limit(
            "tile_m",
            tile_m <= widest_m,
            f"must be at most {widest_m}, m rounded up to {family.MMA_M}",
        ),
        Limit("tile_n", tile_n <= next_n, f"must be at most {next_n}, the first that covers n"),
        Limit("split_k", split <= k_iterations, "must be at most ceil(k / tile_k)"),
        *grid_limits(columns, problem, sms),
        Limit(
            "split_k",
            (split == 1) | (tiles * (split - 1) < SPLIT_WAVES * sms),
            f"must be 1 or end at the first value that gives the device's {sms} SMs "
            f"{SPLIT_WAVES} waves",
        ),
        Limit(
            "raster_group",
            (group == 1) | ((group <= clusters_m) & (tiles * split > sms)),
            "must be 1 where one wave holds every tile, and at most ceil(m / tile_m) / cluster_m",
        ),
    )


def check(config: Config, problem: Problem, device: DeviceProfile) -> None:
    """Raise IllegalConfig with the first rule that ``config`` breaks for this problem."""
    if config.family != family.NAME:
        raise IllegalConfig("family", f"must be {family.NAME}, got {config.family!r}")
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    registers = register_table().of(key)
    columns = config.to_dict()
    for name, value in columns.items():
        if name != "family" and abs(value) > FIELD_MAX:
            raise IllegalConfig(name, f"must be between 0 and {FIELD_MAX} (2^31 - 1), got {value}")
    refuse_broken(domain_limits(columns), columns)
    refuse_broken(launch_limits(columns, problem, device.limit("sms")), columns)
    refuse_broken(
        kernel_limits(columns, problem.element_bytes, BlockLimits.of(device), registers), columns
    )


def refuse_broken(limits: tuple[Limit, ...], columns: Mapping[str, Any]) -> None:
    """Raise IllegalConfig for the first limit that one configuration breaks."""
    for limit in limits:
        if not np.all(limit.holds):
            got = columns[limit.field] if limit.got is None else limit.got
            raise IllegalConfig(limit.field, f"{limit.rule}; got {got}")
