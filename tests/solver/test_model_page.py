"""docs/model.md against the code: who follows the page alone has to come to the same table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import NAME
from solver.families.sm90_gemm_cost import LAUNCH_FIELDS, WORK_FIELDS, kernel_space, tabulate
from solver.families.sm90_gemm_legality import BlockLimits
from solver.problem import Problem
from solver.table import POWER, part_columns

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "model.md").read_text("utf-8")
REGISTERS = json.loads(
    (ROOT / "solver" / "families" / "sm90_gemm_registers.json").read_text("utf-8")
)["registers"]
H200 = load_profile("h200")
TABLE = tabulate(Problem(1000, 520, 4096, out_dtype="fp32"), H200)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def listed(part: str) -> tuple[list[str], list[str]]:
    """The order and the columns that the page gives of works or kernels."""
    text = section("What is legal, and the table's order")
    _, _, order, columns, _ = next(
        line for line in text.splitlines() if line.startswith(f"| {part} |")
    ).split("|")
    return order.strip().split(", "), re.findall(r"(?:^|, )(\w+)", columns.strip())


def test_every_constant_has_its_equation_and_the_equations_name_no_other() -> None:
    equations = section("Events") + section("Parameters of the Hopper family")
    named = {name for name in re.findall(r"`(\w+)`", equations) if "_" in name}
    others = {"mma_in_flight", "split_k", "raster_group", "cluster_m", "cluster_n", "load_path"}
    beside = {"clock_mhz", "mma_min_n"}  # an answer's member; a constant like the others
    assert named - others - beside == set(H200.models[NAME]) - beside
    assert "mma_min_n" in named


def test_works_and_kernels_are_in_the_order_and_have_the_columns_that_the_page_gives() -> None:
    order, columns = listed("works")
    assert order == [*WORK_FIELDS, *LAUNCH_FIELDS]
    works = part_columns(TABLE.works)
    assert columns[: columns.index("clock_mhz") + 1] + order == [n for n in works if n not in POWER]
    keys = np.stack([works[name] for name in order], axis=1)
    assert np.array_equal(keys, keys[np.lexsort(keys.T[::-1])])

    order, columns = listed("kernels")
    kernels = part_columns(TABLE.kernels)
    assert columns == list(kernels)
    space = kernel_space(BlockLimits.of(H200), "tn", 2)
    of_work = {name: np.repeat(column, space.count) for name, column in space.works.items()}
    keys = np.stack([(of_work | kernels)[name] for name in order], axis=1)
    assert np.array_equal(keys, keys[np.lexsort(keys.T[::-1])])


def page_works(p: Problem) -> Iterator[tuple[int, ...]]:
    """What the page says may be launched for a problem."""
    sms, step = H200.limit("sms"), 16 if p.layout[1] == "t" or p.out == "fp32" else 8
    tiles_n_allowed = [n for n in family.TILE_N if n % step == 0]
    widest = min([n for n in tiles_n_allowed if n >= p.n] or tiles_n_allowed[-1:])
    for (tile_m, w), tile_n, tile_k in product(family.TILE_SHAPES, tiles_n_allowed, family.TILE_K):
        tiles_m, tiles_n = ceil(p.m / tile_m), ceil(p.n / tile_n)
        if tile_m > 64 * ceil(p.m / 64) or tile_n > widest or tile_m // (64 * w) * tile_n / 2 > 208:
            continue
        if tiles_m * tile_m > 2**31 or tiles_n * tile_n > 2**31:
            continue
        for flight, (cluster_m, cluster_n) in product((0, 1), family.CLUSTERS):
            if tiles_m % cluster_m or tiles_n % cluster_n or (cluster_m > 1 and tile_n % 16):
                continue
            for split, group in product(family.SPLIT_K, family.RASTER_GROUP):
                work = tiles_m * tiles_n * split
                if split > ceil(p.k / tile_k) or work >= 2**31:
                    continue
                if split > 1 and tiles_m * tiles_n * (split - 1) >= 2 * sms:
                    continue
                if group == 1 or (group <= tiles_m / cluster_m and work > sms):
                    yield tile_m, tile_n, tile_k, flight, w, cluster_m, cluster_n, split, group


def page_kernels(tile: tuple[int, int, int, int, int], layout: str) -> Iterator[tuple[int, ...]]:
    """What the page says a block may have: register_split, stages, dma_warps, then registers,
    threads and shared memory."""
    tile_m, tile_n, tile_k, flight, w = tile
    for split, stages, dma in product((0, 1), family.STAGES, (1, 2)):
        form = f"{layout}_{tile_m}x{tile_n}x{tile_k}_w{w}_r{split}_f{flight}"
        registers = REGISTERS.get(form, 0)
        threads = 128 * w + (128 if split else 32 * dma)
        pieces = (8, 16, 24, 32, 40, 56, 64, 72, 88, 104)
        piece = max(n for n in pieces if tile_n % n == 0)
        smem = stages * (tile_m + tile_n) * tile_k * 2 + w * 2 * 64 * piece * 2 + 16 * stages + 16
        asked = 128 * (40 + w * {2: 232, 3: 152}.get(w, 0)) if split else 0
        if (
            (not split or w > 1)
            and stages - flight >= 2
            and smem <= H200.limit("smem_per_block_bytes")
            and registers
            and threads <= H200.limit("threads_per_block")
            and 128 * ceil(threads / 128) * registers <= H200.limit("registers_per_sm")
            and asked <= threads * registers
        ):
            yield split, stages, dma, registers, threads, smem


@pytest.mark.parametrize(
    "problem",
    [
        Problem(1000, 520, 4096, out_dtype="fp32"),
        Problem(1, 1, 1),
        Problem(4096, 4096, 200, layout="tt"),
        Problem(2**31 - 1, 40, 64),
        Problem(300, 72, 12288, layout="nn"),
    ],
    ids=str,
)
def test_what_is_legal_by_the_page_is_what_is_tabulated(problem: Problem) -> None:
    table = tabulate(problem, H200)
    works, kernels = part_columns(table.works), part_columns(table.kernels)
    found = [tuple(row) for row in np.stack([works[n] for n in listed("works")[0]], 1).tolist()]
    names = ("register_split", "stages", "dma_warps", "registers", "threads", "smem_bytes")
    of_kernel = np.stack([kernels[name] for name in names], axis=1)
    expected = {work: list(page_kernels(work[:5], problem.layout)) for work in page_works(problem)}
    assert set(found) == {work for work, kernels in expected.items() if kernels}
    for at, work in enumerate(found):
        rows = of_kernel[table.first[at] : table.first[at] + table.count[at]]
        assert [tuple(row) for row in rows.tolist()] == expected[work]
