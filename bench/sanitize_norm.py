"""What of norm_activation is launched under compute-sanitizer: faults planted for each of its tools
in the kernels of each scope (``bench.norm_branches``), and clean launches.

    python -m bench.sanitize_norm NAME                    # one plant, or one probe
    python -m bench.sanitize_norm clean SCOPE PART PARTS  # a part of a scope's clean launches

in this process: what ``bench.gpu_sanitize`` runs under a tool.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from bench.cover import tally
from bench.norm_branches import SCOPES, branches_of, clean_plans
from bench.norm_plants import EACH_LANE, MBARRIERS, PLANTS, headers_of, plans_of
from bench.sanitize_probes import PROBES, launch_probe
from bench.sanitize_races import TOOL, Pair, Unit, judged_here
from bench.sanitize_suite import Suite, address, allocated, announce, ended
from kernels.norm.bench import compile_into_cache
from kernels.norm.compile import (
    ENTRY,
    NormKey,
    build_norm,
    compile_key,
    instantiation,
    source_hash,
)
from kernels.norm.plan import NormPlan
from kernels.sources import ARCH
from solver.families.norm_activation import NAME, VECTOR_BYTES, NormProblem
from solver.problem import Matrix


def launch_clean(scope: str, part: int, parts: int) -> None:
    """Launch one of so many parts of a scope's clean launches."""
    from kernels.launch import load_function
    from kernels.norm.launch import loaded

    for plan in plans_of(scope)[part::parts]:
        key = compile_key(plan.problem, plan.config)
        if scope.endswith(EACH_LANE):
            function = load_function(build_norm(key, ARCH, patched=headers_of(scope)), ENTRY)
        else:
            _, function = loaded(key, ARCH)
        announce(plan)
        launch(plan, function)


def launch_plant(name: str) -> None:
    """Launch one planted fault."""
    from kernels.launch import load_function
    from kernels.norm.compile import compile_norm

    plant = PLANTS[name]
    key = compile_key(plant.problem, plant.config)
    if plant.patch is not None:
        compiled = build_norm(key, ARCH, patched=plant.headers)
    else:
        compiled = compile_norm(key, ARCH)
    launch(plant.plan, load_function(compiled, ENTRY), plant.short, plant.unwritten)


def launch(plan: NormPlan, function: Any, short: str = "", unwritten: str = "") -> None:
    """One launch on memory of exactly its arrays, each behind 16 bytes that are never written; see
    ``Plant``."""
    import cupy as cp

    from kernels.norm.launch import NormLaunch

    problem = plan.problem
    stream = cp.cuda.get_current_stream()
    matrices = {
        name: _matrix(problem, problem.rows if name in ("x", "y") else 1)
        for name in ("x", "scale", "shift", "y")
    }
    memory = allocated(
        (_half(matrix) if name == short else matrix, name not in (unwritten, "y"))
        for name, matrix in matrices.items()
    )
    NormLaunch(plan, function, *map(address, memory, matrices.values())).launch(stream)
    stream.synchronize()


def _matrix(problem: NormProblem, rows: int) -> Matrix:
    size = problem.element_bytes
    return Matrix(rows, problem.width, problem.width, VECTOR_BYTES // size, size)


def _half(matrix: Matrix) -> Matrix:
    if matrix.lines > 1:
        return replace(matrix, lines=matrix.lines // 2)
    return replace(matrix, length=matrix.length // 2, pitch=matrix.length // 2)


def judge(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose reported pairs are told and weighed (``bench.sanitize_races``).

    Raises SystemExit for one whose kernels can't be made here: of other sources, or another NVRTC.
    """
    return judged_here(record, source_hash(ARCH), _Kernels())


class _Kernels:
    """What plants and clean launches are made from."""

    def of_plant(self, name: str) -> Unit:
        plant = PLANTS[name]
        return _unit(plant.plan, plant.headers)

    def of_launch(self, scope: str, announced: str) -> Unit:
        plan = next(plan for plan in plans_of(scope) if str(plan) == announced)
        return _unit(plan, headers_of(scope))

    def pair_of(self, plant: str) -> Pair:
        return PLANTS[plant].pair


def _unit(plan: NormPlan, text: Mapping[str, str]) -> Unit:
    key = compile_key(plan.problem, plan.config)
    return key.name, instantiation(key), text


def _keys() -> list[NormKey]:
    plans = [plan for scope in SCOPES for plan in clean_plans(scope)]
    plans += [plant.plan for plant in PLANTS.values() if plant.patch is None]
    return list({compile_key(plan.problem, plan.config): None for plan in plans})


def _taken() -> tuple[int, dict[str, int]]:
    plans = [plan for scope in SCOPES for plan in clean_plans(scope)]
    return len(plans), tally(map(branches_of, plans))


SUITE = Suite(
    family=NAME,
    kernels=(ENTRY,),
    module="bench.sanitize_norm",
    plants=PLANTS,
    plant_timeout_s=40,
    parts=dict.fromkeys(SCOPES, 1)
    | {"bulk": 2, f"bulk{EACH_LANE}": 2, f"async{EACH_LANE}": 2, f"vector{EACH_LANE}": 1},
    hashes=lambda: {"source_hash": source_hash(ARCH)},
    keys=_keys,
    build=partial(compile_into_cache, arch=ARCH),
    taken=_taken,
    tools={f"{scope}{EACH_LANE}": (TOOL,) for scope in MBARRIERS},
    probes=PROBES,
    judge=judge,
)

if __name__ == "__main__":
    if sys.argv[1] == "clean":
        launch_clean(sys.argv[2], *map(int, sys.argv[3:]))
    elif sys.argv[1] in PROBES:
        launch_probe(sys.argv[1])
    else:
        launch_plant(sys.argv[1])
    ended()
