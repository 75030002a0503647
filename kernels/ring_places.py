"""The description's programs with where each box lies and which tile is counted.

The protocol is proved whatever the places; that a kernel's are those of its units of work is seen
by comparing it with this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from kernels.barrier_steps import BoxLoad, BoxStore, CountAt
from kernels.launch_plan import LaunchPlan
from kernels.launch_units import WorkUnit, pieces_of, work_of
from solver.ring.epilogue import Unit
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import CountTile, Load, Program, Step, Store

_Operand = Literal["a", "b"]
_OPERANDS: tuple[_Operand, ...] = ("a", "b")
_Box = tuple[_Operand, int, int, int, int]
"""Operand, subtile and line of a slot's tile, row and column of the operand's lines."""


def placed(
    programs: Mapping[str, Program], plan: LaunchPlan, cta: int, units: Sequence[Unit]
) -> dict[str, Program]:
    """The programs that describe a CTA of a launch, every place filled in."""
    work = work_of(plan, cta)
    dressed: dict[str, Program] = {}
    for name, program in programs.items():
        role = name.rstrip("0123456789")
        number = int(name.removeprefix(role))
        loads = _loads(plan, cta, work, number) if role == "dma" else iter(())
        stores = _stores(plan, work, units, number // WARPGROUP_WARPS)
        tiles = (unit.tile for unit in work)
        dressed[name] = tuple(_placed(step, loads, stores, tiles) for step in program)
    return dressed


def _placed(
    step: Step, loads: Iterator[_Box], stores: Iterator[tuple[int, int]], tiles: Iterator[int]
) -> Step:
    match step.op:
        case Load(slot, barrier, tx_bytes, shared):
            return Step(BoxLoad(slot, barrier, tx_bytes, shared, *next(loads)), step.lanes)
        case Store(warpgroup, buffer):
            return Step(BoxStore(warpgroup, buffer, *next(stores)), step.lanes)
        case CountTile(last):
            return Step(CountAt(last, next(tiles)), step.lanes)
    return step


def _loads(plan: LaunchPlan, cta: int, work: Sequence[WorkUnit], dma_warp: int) -> Iterator[_Box]:
    """A DMA warp's boxes: of both operands, or where there are two DMA warps of one each."""
    problem, config = plan.problem, plan.config
    for unit in work:
        for iteration in unit.iterations:
            along = iteration * config.tile_k
            for operand in _OPERANDS if config.dma_warps == 1 else (_OPERANDS[dma_warp],):
                is_a = operand == "a"
                load, across = (plan.a, unit.row) if is_a else (plan.b, unit.column)
                k_major = problem.a_is_k_major if is_a else problem.b_is_k_major
                line = cta % plan.cluster * load.box.box_rows if load.sharers > 1 else 0
                row, column = (across, along) if k_major else (along, across)
                for subtile in range(load.copies):
                    at = column + subtile * load.box.box_columns
                    yield operand, subtile, line, row + line, at


def _stores(
    plan: LaunchPlan, work: Sequence[WorkUnit], units: Sequence[Unit], warpgroup: int
) -> Iterator[tuple[int, int]]:
    """A warpgroup's pieces of C."""
    for unit, described in zip(work, units, strict=True):
        if described.last:
            yield from pieces_of(plan, unit, warpgroup)
