"""Plans of norm_activation measurements: what is measured, and what is measured in turn."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

from kernels.files import read_json
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_legality import check_legal, check_ranges
from solver.limits import check_choice, check_integer

MAX_SMEM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One row to come: a problem, a configuration, and shared memory that its blocks take besides
    their own so that fewer fit in an SM.

    Neighbours of one ``race`` are measured in turn; their problem is the same. ``warps_per_sm`` and
    ``held_out`` are the plan's own words, handed on.
    """

    race: str
    problem: NormProblem
    config: NormConfig
    reserved_smem_bytes: int = 0
    warps_per_sm: int | None = None
    held_out: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The cell as JSON-ready values."""
        return {
            "race": self.race,
            "problem": self.problem.to_dict(),
            "config": self.config.to_dict(),
            "reserved_smem_bytes": self.reserved_smem_bytes,
            "warps_per_sm": self.warps_per_sm,
            "held_out": self.held_out,
        }


def read_cells(path: Path, device: DeviceProfile) -> list[Cell]:
    """The cells of a plan, each legal on ``device``. Raises InvalidInput, naming cell and field."""
    cells = read_plan(path)
    for index, cell in enumerate(cells):
        try:
            check_legal(cell.problem, cell.config, device)
        except InvalidInput as error:
            raise InvalidInput(f"cells[{index}].{error.field}", error.message) from error
    return cells


def read_plan(path: Path) -> list[Cell]:
    """The cells of a plan, whatever device they are for. Raises InvalidInput, naming cell and
    field."""
    plan = read_json(path, "plan")
    if not isinstance(plan, dict) or "cells" not in plan:
        raise InvalidInput("plan", f"{path} is no plan of norm cells")
    cells = plan["cells"]
    if not isinstance(cells, list) or not cells:
        raise InvalidInput("cells", "must be a list of at least one cell")
    found = []
    for index, cell in enumerate(cells):
        try:
            found.append(_cell(cell))
        except InvalidInput as error:
            raise InvalidInput(f"cells[{index}].{error.field}", error.message) from error
    for race, members in groupby(found, key=lambda cell: cell.race):
        if len({cell.problem for cell in members}) > 1:
            raise InvalidInput("race", f"{race} has cells of more than one problem")
    return found


def races(cells: list[Cell]) -> list[list[Cell]]:
    """Neighbours of one race together."""
    return [list(members) for _, members in groupby(cells, key=lambda cell: cell.race)]


def _cell(values: Any) -> Cell:
    names = [field.name for field in fields(Cell)]
    values = _object("", values)
    for name in values:
        check_choice("field", name, names)
    for name in ("problem", "config"):
        if name not in values:
            raise InvalidInput(name, "is required")
    problem = _problem(_object("problem", values["problem"]))
    config = NormConfig.from_dict(_object("config", values["config"]))
    reserved = values.get("reserved_smem_bytes", 0)
    check_integer("reserved_smem_bytes", reserved, 0, MAX_SMEM_BYTES)
    check_ranges(config)
    return Cell(
        str(values.get("race", "")),
        problem,
        config,
        reserved,
        values.get("warps_per_sm"),
        bool(values.get("held_out", False)),
    )


def _problem(values: dict[str, Any]) -> NormProblem:
    names = [field.name for field in fields(NormProblem)]
    for name in values:
        check_choice("problem", name, names)
    for name in ("rows", "width"):
        if name not in values:
            raise InvalidInput(f"problem.{name}", "is required")
    return NormProblem(**values)


def _object(field: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InvalidInput(field or "cell", f"must be an object, got {type(values).__name__}")
    return values
