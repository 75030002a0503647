"""No box of a tile ends beyond 2^31, where TMA's signed coordinates end and an H200 gives up."""

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
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.problem import MAX_EXTENT, Problem
from solver.space import tabulate

END = 2**31


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


@pytest.mark.parametrize(
    ("problem", "tile_m", "tile_n", "cluster"),
    [
        (Problem(MAX_EXTENT, 8, 64, layout="nn"), 128, 8, {}),
        (Problem(64, MAX_EXTENT - 7, 64, layout="tt"), 64, 128, {}),
        (Problem(128, MAX_EXTENT - 7, 64), 64, 128, {"cluster_m": 2}),
        (Problem(256, MAX_EXTENT - 7, 64), 64, 256, {}),
    ],
    ids=["A along m", "B along n", "halves of B along k", "B along k"],
)
def test_the_last_tiles_boxes_end_by_the_last_coordinate(
    problem: Problem, tile_m: int, tile_n: int, cluster: dict[str, int]
) -> None:
    plan = launch_of(problem, tile_m, tile_n, **cluster)
    for cta in range(plan.grid - plan.cluster, plan.grid):
        found = boxes(plan, cta)
        assert max(max(*place) for places in found.values() for place in places) > END - 512
        for load, places in ((plan.a, found["a"]), (plan.b, found["b"])):
            for column, row in places:
                assert 0 <= column <= END - load.box.box_columns
                assert 0 <= row <= END - load.box.box_rows


@pytest.mark.parametrize(
    ("problem", "tile_m", "tile_n", "field"),
    [
        (Problem(MAX_EXTENT, 8, 64, layout="nn"), 192, 8, "tile_m"),
        (Problem(64, MAX_EXTENT - 7, 64, layout="tt"), 64, 112, "tile_n"),
    ],
)
def test_a_tile_that_would_end_beyond_is_refused_by_name(
    problem: Problem, tile_m: int, tile_n: int, field: str
) -> None:
    with pytest.raises(IllegalConfig, match=f"{field}: tiles must end by {END}"):
        launch_of(problem, tile_m, tile_n)


@pytest.mark.parametrize("axis", ["m", "n"])
def test_an_extent_next_to_the_end_has_tiles_that_divide_it_and_no_others(axis: str) -> None:
    problem = Problem(**{"m": 1, "n": 1, "k": 1, axis: MAX_EXTENT}, layout="nt")  # type: ignore[arg-type]
    table = tabulate(problem, load_profile("h200"), "calibrated")
    widths = set(table.works.config[f"tile_{axis}"].tolist())
    assert widths
    assert all(END % width == 0 for width in widths)
