"""What a launch of the Hopper GEMM needs, worked out without touching a GPU.

One place holds the launch ABI shared with ``kernels/cuda/sm90_gemm.cuh``: grid, threads,
TMA boxes, bytes per slot, workspace, and the argument block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm as family
from solver.problem import Problem

ENTRY = "sm90_gemm"
BASE_BYTES = 16  # TMA's alignment of base addresses
SWIZZLE_BYTES = (16, 32, 64, 128)  # inner bytes of a store box: none, 32, 64 or 128 byte swizzle

ARGUMENTS = np.dtype(
    [
        ("c", "<u8"),
        ("workspace", "<u8"),
        ("counters", "<u8"),
        ("ldc", "<i8"),
        ("m", "<i4"),
        ("n", "<i4"),
        ("k", "<i4"),
        ("stages", "<i4"),
        ("dma_warps", "<i4"),
        ("split_k", "<i4"),
        ("raster_group", "<i4"),
        ("stage_tx_bytes", "<i4"),
        ("c_by_tma", "<i4"),
        ("reserved", "<i4"),
        ("padding", "<i8"),
    ]
)
"""GemmArgs of the kernel: little-endian, naturally aligned, 80 bytes."""


@dataclass(frozen=True, slots=True)
class Box:
    """One TMA tensor map over a row-major matrix of 16-bit elements.

    ``rows`` × ``columns`` is the matrix, ``row_bytes`` its pitch; a copy moves
    ``box_rows`` × ``box_columns`` elements, swizzled over ``swizzle_bytes`` (16: not at all).
    """

    rows: int
    columns: int
    row_bytes: int
    box_rows: int
    box_columns: int
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything about a launch but its addresses.

    ``a``, ``b``, ``c`` are the tensor maps; ``c`` is None where the epilogue stores element
    by element. ``units`` counts output tiles times split_k; ``grid`` CTAs walk them.
    """

    problem: Problem
    config: Config
    ldc: int
    grid: int
    threads: int
    smem_bytes: int
    tiles_m: int
    tiles_n: int
    units: int
    a: Box
    b: Box
    c: Box | None
    stage_tx_bytes: int
    workspace_bytes: int
    counter_bytes: int

    @property
    def c_by_tma(self) -> bool:
        """Whether output chunks leave by TMA."""
        return self.c is not None

    def arguments(self, c: int, workspace: int, counters: int) -> np.ndarray[Any, Any]:
        """The kernel's argument block for these device addresses, an array of one record."""
        block = np.zeros(1, ARGUMENTS)
        values = {
            "c": c,
            "workspace": workspace,
            "counters": counters,
            "ldc": self.ldc,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "stages": self.config.stages,
            "dma_warps": self.config.dma_warps,
            "split_k": self.config.split_k,
            "raster_group": self.config.raster_group,
            "stage_tx_bytes": self.stage_tx_bytes,
            "c_by_tma": int(self.c_by_tma),
        }
        for name, value in values.items():
            block[name] = value
        return block


def plan_launch(
    problem: Problem, config: Config, sms: int | DeviceProfile, ldc: int | None = None
) -> LaunchPlan:
    """The launch of ``config`` for ``problem`` on a device with ``sms`` SMs.

    ``sms`` is a count read from the device, or a profile whose limit is taken; ``ldc`` is the
    pitch of C in elements, n where omitted. Operands A (m×k) and B (n×k) are packed.

    Raises InvalidProblem where TMA can't take the rows, IllegalConfig for another family,
    an impossible pitch or no SM. Does not repeat the device's limits: ``family.check`` does.
    """
    family.problem_limits(problem)
    if config.family != family.NAME:
        raise IllegalConfig("family", f"must be {family.NAME}, got {config.family!r}")
    sms = sms.limit("sms") if isinstance(sms, DeviceProfile) else sms
    if sms < 1:
        raise IllegalConfig("sms", f"must be at least 1, got {sms}")
    ldc = problem.n if ldc is None else ldc
    if ldc < problem.n:
        raise InvalidProblem("ldc", f"must be at least n = {problem.n}, got {ldc}")
    columns = config.to_dict()
    element = problem.element_bytes
    tiles_m = -(-problem.m // config.tile_m)
    tiles_n = -(-problem.n // config.tile_n)
    units = tiles_m * tiles_n * config.split_k
    if units > family.UNITS_MAX:
        raise InvalidProblem(
            "m", f"makes {units} units of work; the kernel counts to {family.UNITS_MAX}"
        )

    def operand(rows: int, tile_rows: int) -> Box:
        return Box(
            rows,
            problem.k,
            problem.k * element,
            int(family.box_rows(tile_rows, rows)),
            family.SWIZZLE_K,
            SWIZZLE_BYTES[-1],
        )

    a, b = operand(problem.m, config.tile_m), operand(problem.n, config.tile_n)
    vector = BASE_BYTES // element
    chunk = int(family.chunk_n(config.tile_n))
    by_tma = problem.n % vector == 0 and ldc % vector == 0
    tile_floats = config.tile_m * config.tile_n
    split = config.split_k > 1
    return LaunchPlan(
        problem=problem,
        config=config,
        ldc=ldc,
        grid=min(units, sms),
        threads=int(family.threads(columns)),
        smem_bytes=int(family.smem_bytes(columns, element)),
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        units=units,
        a=a,
        b=b,
        c=Box(problem.m, problem.n, ldc * element, family.MMA_M, chunk, chunk * element)
        if by_tma
        else None,
        stage_tx_bytes=(a.box_rows + b.box_rows) * config.tile_k * element,
        workspace_bytes=4 * units * tile_floats if split else 0,
        counter_bytes=4 * tiles_m * tiles_n if split else 0,
    )
