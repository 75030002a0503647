"""Where boxes of the last tiles start if an extent is next to 2^31: in TMA's signed 32 bits."""

from __future__ import annotations

import pytest

from kernels.barrier_collect import by_value, signed
from kernels.barrier_program import kernel_ptx
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.ptx_events import LOAD_TILE, STORE_TILE, Event
from kernels.ptx_machine import Machine
from kernels.ptx_parser import parse
from kernels.ptx_registers import Launch
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import MAX_EXTENT, Problem


def boxes(plan: LaunchPlan, cta: int) -> dict[str, set[tuple[int, int]]]:
    """Column and row of each box that a CTA loads of A and of B, and stores of C."""
    key = family.compile_key(plan.config, plan.problem.dtype, plan.problem.kernel_layout)
    found: dict[str, set[tuple[int, int]]] = {"a": set(), "b": set(), "c": set()}

    def observe(event: Event) -> None:
        opcode = event.instruction.opcode
        if not opcode.startswith((LOAD_TILE, STORE_TILE)):
            return
        at = 0 if opcode == STORE_TILE else 1
        for _, _, values in by_value(event):
            of, column, row = values[at : at + 3]
            found[maps[of]].add((signed(column), signed(row)))

    launch = Launch(
        cta=cta,
        grid=plan.grid,
        threads=plan.threads,
        smem_bytes=plan.smem_bytes,
        arguments=(None, None, None, plan.arguments(1 << 52, 0, 0).tobytes()),
        cluster=plan.cluster,
    )
    machine = Machine(parse(kernel_ptx(key)), launch, observe)
    maps = {machine.parameter_address(number): name for number, name in enumerate("abc")}
    machine.run()
    return found


def launch_of(problem: Problem, tile_m: int, tile_n: int, **more: int) -> LaunchPlan:
    """A launch with a CTA for each tile."""
    config = Config(family.NAME, tile_m, tile_n, 64, 2, **more)
    tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n)
    return plan_launch(problem, config, tiles)


def test_boxes_along_m_that_would_start_beyond_start_outside_at_the_last_coordinate() -> None:
    plan = launch_of(Problem(MAX_EXTENT, 8, 64, layout="nn"), 192, 8)
    first = MAX_EXTENT // 192 * 192
    assert first + 128 > MAX_EXTENT
    found = boxes(plan, plan.grid - 1)
    assert found["a"] == {(first, 0), (first + 64, 0), (MAX_EXTENT, 0)}
    assert found["b"] == {(0, 0)}
    assert found["c"] == {(0, first), (0, first + 64)}


def test_boxes_along_n_that_would_start_beyond_start_outside_at_the_last_coordinate() -> None:
    plan = launch_of(Problem(64, MAX_EXTENT - 7, 64, layout="tt"), 64, 112)
    first = plan.problem.n // 112 * 112
    assert first + 16 > MAX_EXTENT
    found = boxes(plan, plan.grid - 1)
    assert found["a"] == {(0, 0)}
    assert found["b"] == {(first, 0), (MAX_EXTENT, 0)}
    assert found["c"] == {(first, 0)}


@pytest.mark.parametrize(("rank", "row"), [(0, MAX_EXTENT - 15), (1, MAX_EXTENT)])
def test_a_half_of_a_tile_that_would_start_beyond_starts_outside_at_the_last_coordinate(
    rank: int, row: int
) -> None:
    plan = launch_of(Problem(128, MAX_EXTENT - 7, 64), 64, 112, cluster_m=2)
    assert plan.problem.n // 112 * 112 == MAX_EXTENT - 15
    assert plan.b.box.box_rows == 56
    found = boxes(plan, plan.grid - 2 + rank)
    assert found["a"] == {(0, rank * 64)}
    assert found["b"] == {(0, row)}
    assert found["c"] == {(MAX_EXTENT - 15, rank * 64)}
