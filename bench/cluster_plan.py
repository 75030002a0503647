"""A plan of the same work with and without a cluster, to tell what a cluster costs and saves.

    python -m bench.cluster_plan --seed 5 --out plan.json
    python -m kernels.bench plan.json --out clusters.json
    gzip -c clusters.json > bench/results/h200/calibration_clusters.json.gz

Problems are those of the LLM suite of 64 rows and more, and some between, none of them held out.
Of each, the three tiles that the model has first and three drawn from its next ones; of each tile,
the model's first row of every cluster and k-step within 35 % of the problem's best. The sweep that
covers a space has few such pairs, and none where picks are made.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.files import write
from kernels.files import check_place
from kernels.sources import commit, source_hash
from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.pick import price
from solver.problem import Problem
from solver.space import tabulate
from solver.split import is_held_out
from solver.suites import load_suite

LEAST_M, MOST_MACS = 64, 3e11
BETWEEN = (
    *((768, 768, 768), (896, 1024, 896), (1280, 1280, 1280), (1536, 1536, 1536)),
    *((1024, 1024, 2048), (256, 4096, 4096), (256, 7168, 2048), (192, 8192, 1024)),
    *((384, 4096, 2048), (1024, 2048, 1024), (2048, 1024, 1024), (96, 5120, 5120)),
    *((64, 8192, 4096), (768, 3072, 1024), (2048, 2048, 1024), (128, 5120, 5120)),
    *((256, 2048, 2048), (512, 2048, 2048), (640, 2560, 2560), (1024, 4096, 1024)),
)
WITHIN = 1.35
FIRST, DRAWN, NEXT = 3, 3, 11
"""Tiles of a problem: the model's first, and how many of the next ones are drawn."""


def problems() -> list[Problem]:
    """Those of the plan, none of a held-out shape."""
    suite = [p for p in load_suite("llm") if p.m >= LEAST_M and p.m * p.n * p.k < MOST_MACS]
    every = [*suite, *(Problem(*shape) for shape in BETWEEN)]
    return [p for p in every if not is_held_out(p.m, p.n, p.k)]


def twins(problem: Problem, device: DeviceProfile, rng: random.Random) -> list[Config]:
    """A problem's configurations: tiles, each with every cluster and k-step that is near."""
    table = tabulate(problem, device, "calibrated")
    work, kernel = table.rows(np.arange(len(table.first)))
    time, _ = price(table, work, kernel)
    near = np.argsort(time, kind="stable")[: int((time <= WITHIN * time.min()).sum())]
    tiles: dict[tuple[int, ...], dict[tuple[int, ...], Config]] = {}
    for row in near:
        config = table.config(int(work[row]), int(kernel[row]))
        of_tile = tiles.setdefault((config.tile_m, config.tile_n, config.split_k), {})
        of_tile.setdefault((config.tile_k, config.cluster_m, config.cluster_n), config)
    order = list(tiles)[: FIRST + NEXT]
    later = order[FIRST:]
    chosen = order[:FIRST] + rng.sample(later, min(DRAWN, len(later)))
    return [config for tile in chosen for config in tiles[tile].values()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the plan; leaves with 2 for a device without the family, or no place for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    rng = random.Random(chosen.seed)
    try:
        check_place(chosen.out)
        device = load_profile(chosen.device)
        rows: list[dict[str, Any]] = [
            {
                "suite": "clusters",
                "cache": "cold",
                "role": "sample",
                "check": False,
                **problem.to_dict(),
                "config": config.to_dict(),
            }
            for problem in problems()
            for config in twins(problem, device, rng)
        ]
    except InvalidInput as error:
        parser.error(str(error))
    head = {"suite": "calibration", "commit": commit(), "source_hash": source_hash()}
    write(chosen.out, head | {"rows": rows})
    print(f"{len(rows)} rows in {chosen.out}")


if __name__ == "__main__":
    main()
