"""The fixed grid: 96 problems, candidates of every kind, occupancies that are what they say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bench import norm_grid
from kernels.norm.cells import Cell, read_cells
from solver.device import load_profile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation_legality import why_illegal
from solver.occupancy import SmLimits

H200 = load_profile("h200")
SM = SmLimits(*(H200.limit(f"{n}_per_sm") for n in ("threads", "registers")), 233472)


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return list(norm_grid.cells(H200))


def test_there_are_96_problems_of_which_about_a_quarter_is_held_out(cells: list[Cell]) -> None:
    held_out = {cell.race: cell.held_out for cell in cells}
    assert len(held_out) == 96
    assert 16 <= sum(held_out.values()) <= 32
    assert all(held_out[cell.race] == cell.held_out for cell in cells)
    assert len({(cell.problem, cell.warps_per_sm) for cell in cells}) == 96
    for cell in cells:
        assert cell.problem.rows * cell.problem.row_bytes == norm_grid.ARRAY_BYTES


def test_every_problem_has_candidates_of_every_kind(cells: list[Cell]) -> None:
    kinds: dict[str, Counter[str]] = {}
    for cell in cells:
        kinds.setdefault(cell.race, Counter())[cell.config.kind] += 1
    for name, count in kinds.items():
        assert set(count) == set(family.KINDS), name
        if name.endswith("wall"):
            assert count["plain"] >= 1
            assert count["strong"] >= 4
            assert count["ring"] >= 3
            assert count["specialised"] >= 12
    natural = [cell.config for cell in cells if cell.warps_per_sm is None]
    roles = {(c.producers, c.consumers) for c in natural if c.barrier == "named"}
    assert roles >= {(2, 14), (4, 12), (8, 8)}
    bulk = [c for c in natural if c.kind == "specialised" and c.copies == "bulk"]
    assert {c.consumers for c in bulk} >= {4, 8, 12, 15}
    assert {c.depth for c in bulk} >= {2, 4, 6}
    assert {c.chunk_bytes for c in bulk} >= {4096, 8192, 16384, 32768}


def test_cells_are_legal_and_none_comes_twice(cells: list[Cell]) -> None:
    assert len({(cell.race, cell.config) for cell in cells}) == len(cells)
    for cell in cells:
        assert why_illegal(cell.problem, cell.config, H200) is None


def test_forced_occupancy_is_what_it_says(cells: list[Cell]) -> None:
    for cell in cells:
        if cell.warps_per_sm is None:
            assert cell.reserved_smem_bytes == 0
            continue
        smem = block.smem_bytes(cell.problem, cell.config) + cell.reserved_smem_bytes
        assert smem <= H200.limit("smem_per_block_bytes")
        blocks = block.resident_blocks(cell.config, 32, smem, SM)
        counted = cell.config.consumers
        if cell.config.copies != "bulk" or cell.config.producers > 1:
            counted = cell.config.warps
        assert cell.warps_per_sm - counted < blocks * counted <= cell.warps_per_sm, cell


def test_the_plan_is_read_as_it_was_written(
    cells: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    assert norm_grid.main(["--out", str(path)]) == 0
    said = capsys.readouterr().err
    assert f"{len(cells)} cells of 96 problems" in said
    assert f"{sum(cell.config.kind == 'ring' for cell in cells)} ring" in said
    assert "Counter" not in said
    assert json.loads(path.read_text("utf-8"))["suite"] == "norm_grid"
    assert read_cells(path, H200) == cells
