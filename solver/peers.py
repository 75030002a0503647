"""What others say on the rows that the model is held against: a roofline, the published model, and
other libraries' picks in this family's terms.

A pick of another library names a tile and a few more fields of its own kernel. Ours is another
kernel, so that the pick is mapped to the nearest legal configuration (``nearest_legal``,
``docs/accuracy.md``), and what the other side doesn't name is chosen by our model, in its favour.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import InvalidProblem
from solver.families import paper
from solver.ground_truth import CONFIG_FIELDS, GroundTruthGroup
from solver.pick import price
from solver.problem import Problem
from solver.space import tabulate
from solver.units import TICKS_PER_US

WARPS_OF_WARPGROUP = 4
Floats = np.ndarray[Any, np.dtype[np.float64]]

ALIKE = (
    ("tile_m", "tile_n"),
    ("split_k",),
    ("cluster_m", "cluster_n"),
    ("tile_k",),
    ("math_warpgroups",),
    ("stages",),
)
"""Fields by which configurations are near to one another, the weightiest first. The distance of a
field is |log2| of the ratio of its values; of fields that stand together their sum counts."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Measured ceilings of a device: operations and bytes for each microsecond."""

    flops_per_us: float
    bytes_per_us: float

    @classmethod
    def of(cls, ceilings: Mapping[str, Any]) -> Roofline:
        """From a record's ``ceilings``: wgmma alone, and a kernel that only reads."""
        return cls(ceilings["tensor_tflops"] * 1e6, ceilings["read_gb_per_s"] * 1e3)

    def time_us(self, problem: Problem) -> float:
        """The longer of all operations at one ceiling and the bytes of A, B and C at the other; the
        same for every configuration."""
        return max(
            problem.flops / self.flops_per_us,
            problem.operand_bytes / self.bytes_per_us,
        )


def triton_wishes(how: Mapping[str, Any]) -> dict[str, int]:
    """A configuration of ``kernels.triton_gemm`` in this family's fields: four warps are a MATH
    warpgroup; there is neither a split nor a cluster."""
    fields = {name: int(how[name]) for name in ("tile_m", "tile_n", "tile_k", "stages")}
    warpgroups = int(how["warps"]) // WARPS_OF_WARPGROUP
    return fields | {"math_warpgroups": warpgroups, "split_k": 1, "cluster_m": 1, "cluster_n": 1}


def nearest_legal(
    problem: Problem, device: DeviceProfile, wishes: Mapping[str, int], cache: str = "cold"
) -> Config:
    """The legal configuration nearest to wished values of some fields, those of ALIKE alone.

    Field after field of ALIKE the least distance counts; of rows that are as near the one that the
    model predicts fastest is taken, then that of less wait, less shared memory and first fields.
    Raises InvalidProblem where nothing is legal.
    """
    table = tabulate(problem, device, "calibrated", cache=cache)
    work, kernel = table.rows(np.arange(len(table.first)))
    columns = {name: column[work] for name, column in table.works.config.items()}
    columns |= {name: column[kernel] for name, column in table.kernels.config.items()}
    left = np.arange(len(work))
    for fields in ALIKE:
        distance = np.zeros(len(left))
        for name in fields:
            if name in wishes:
                distance += np.abs(np.log2(columns[name][left] / wishes[name]))
        left = left[distance <= distance.min() + 1e-9]
    work, kernel = work[left], kernel[left]
    time, wait = price(table, work, kernel)
    values = np.stack([time, wait, table.kernels.smem_bytes[kernel]])
    first = values[:, np.lexsort(values[::-1])[0]]
    same = np.flatnonzero((values == first[:, None]).all(axis=0))
    config: Config = min(table.config(int(work[i]), int(kernel[i])) for i in same)
    return config


ESTIMATED_BY = (
    "tile_m",
    "tile_n",
    "tile_k",
    "stages",
    "cluster_m",
    "cluster_n",
    "raster_group",
)
"""The fields of a configuration that nvMatmulHeuristics' estimate of its time depends on; of a
split of k (target CUTLASS3) it has none."""


def nvmmh_estimates(record: Mapping[str, Any]) -> Callable[[GroundTruthGroup], Floats]:
    """A predictor from what ``bench.nvmmh`` recorded: a group's rows in µs, NaN of those of which
    it says nothing."""
    known = {
        (problem_key(row), row["cache"] == "cold"): {
            tuple(estimate[:-1]): estimate[-1] for estimate in row["estimates"]
        }
        for row in record["rows"]
    }

    def predict(group: GroundTruthGroup) -> Floats:
        said = known.get((problem_key(group.problem.to_dict()), group.cold), {})
        fields = [group.columns[name].tolist() for name in ESTIMATED_BY]
        whole = (group.columns["split_k"] == 1).tolist()
        return np.array(
            [
                said.get(tuple(key), np.nan) if unsplit else np.nan
                for *key, unsplit in zip(*fields, whole, strict=True)
            ]
        )

    return predict


def problem_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells problems apart in a record, by the fields that Problem.to_dict fills in."""
    return tuple(values[field.name] for field in dataclasses.fields(Problem))


def roofline_times(roofline: Roofline) -> Callable[[GroundTruthGroup], Floats]:
    """A predictor that says a problem's roofline of every row."""

    def predict(group: GroundTruthGroup) -> Floats:
        return np.full(len(group.measured_us), roofline.time_us(group.problem))

    return predict


def published_times(device: DeviceProfile) -> Callable[[GroundTruthGroup], Floats]:
    """The published model (``solver.families.paper``) with the device's throughputs as a predictor,
    of warm rows whose configurations are of its space; NaN of others, and where it does not know
    how operands lie."""

    def predict(group: GroundTruthGroup) -> Floats:
        times = np.full(len(group.measured_us), np.nan)
        if group.cold:
            return times
        known: dict[tuple[int, ...], float] = {}
        for stages in np.unique(group.columns["stages"]).tolist():
            try:
                table = paper.tabulate(group.problem, device, stages=stages)
            except InvalidProblem:
                continue
            work, kernel = table.rows(np.arange(len(table.first)))
            ticks, _ = price(table, work, kernel)
            rows = zip(*(table.works.config[name].tolist() for name in CONFIG_FIELDS), strict=True)
            known |= dict(zip(rows, (ticks / TICKS_PER_US).tolist(), strict=True))
        measured = zip(*(group.columns[name].tolist() for name in CONFIG_FIELDS), strict=True)
        for row, config in enumerate(measured):
            times[row] = known.get(config, np.nan)
        return times

    return predict
