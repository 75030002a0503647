"""Small ground truths with chosen times, written as a sweep writes its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels.sweep_file import Shard, ShardFile
from kernels.sweep_merge import merge
from kernels.sweep_runner import Figures
from solver.config import Config
from solver.device import load_profile
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem
from solver.row_price import price_rows
from solver.sweep_design import SweepRow
from solver.units import TICKS_PER_US

H200 = load_profile("h200")
FACTS = {"device": "NVIDIA H200", "driver": "580.1", "nvrtc": "13.5", "commit": "abc"}


@dataclass(frozen=True)
class Timed:
    """A row and what was measured of it, in µs; None where it failed, or was not repeated."""

    row: SweepRow
    median_us: float | None
    p95_us: float | None = None
    repeat_us: float | None = None


def config(tile_n: int = 64, stages: int = 4, **fields: int) -> Config:
    """A configuration of one MATH warpgroup."""
    return Config(
        "sm90_gemm", **{"tile_m": 64, "tile_n": tile_n, "tile_k": 64, **fields}, stages=stages
    )


def predicted_us(problem: Problem, configuration: Config, cold: bool = True) -> float:
    """What the model says of one row."""
    columns = {name: np.array([getattr(configuration, name)]) for name in CONFIG_FIELDS}
    return float(price_rows(problem, H200, columns, cold=cold)[0][0] / TICKS_PER_US)


def off_by(
    problem: Problem,
    configuration: Config,
    error: float,
    *,
    suite: str = "llm",
    role: str = "design",
    spread: float = 0.0,
    apart: float | None = None,
) -> Timed:
    """A row of which the model's error is ``error``; its replays spread, its repeat is apart."""
    cache = "warm" if suite == "paper" else "cold"
    median_us = predicted_us(problem, configuration, cache == "cold") / (1 + error)
    return Timed(
        SweepRow(suite, cache, role, problem, configuration),
        median_us,
        median_us * (1 + spread),
        None if apart is None else median_us * (1 + apart),
    )


def write_truth(folder: Path, rows: Sequence[Timed]) -> Path:
    """The table of these rows, in a folder; times are rounded as a sweep rounds them."""
    planned = len(rows) + sum(timed.repeat_us is not None for timed in rows)
    with ShardFile(folder, Shard(), FACTS, planned) as file:
        for index, timed in enumerate(rows):
            reason = "timeout: hung" if timed.median_us is None else None
            p95_us = timed.median_us if timed.p95_us is None else timed.p95_us
            file.add(index, 0, timed.row, Figures(timed.median_us, p95_us, 1980, 400.0, (), reason))
        for index, timed in enumerate(rows):
            if timed.repeat_us is not None:
                file.add(index, 1, timed.row, Figures(timed.repeat_us, timed.repeat_us))
    merge(folder)
    return folder / "ground_truth.csv.gz"
