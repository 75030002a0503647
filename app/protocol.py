"""The kernels' protocol, over compile keys: their own programs, every order, all iterations."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from kernels.barrier_program import kernel_ptx
from kernels.ptx_parser import PtxError
from kernels.ring_check import Mismatch, check_launch, cta_of, without_type
from kernels.ring_launches import Launch, small_launches
from kernels.sources import source_hash
from kernels.table import table_keys
from solver.families.sm90_gemm import CompileKey
from solver.ring.cta import Cta
from solver.ring.epilogue import Epilogue, Unit
from solver.ring.explore import explore_epilogue, explore_ring
from solver.ring.program import Copy, Ring
from solver.ring.split import explore_split
from solver.ring.state import Fault
from solver.z3_ring import prove_ring, prove_split

ITERATIONS = (4, 2)  # of two units of work, whose every order is tried
PIECES = 3  # of C in a warpgroup's part of each of two tiles: one more than it has buffers
SPLITS = (2, 3, 4)  # CTAs of a tile


@dataclass(slots=True)
class _Read:
    """What was read off the kernels of keys that differ in their operands' type alone."""

    keys: int
    no_room: int = 0
    alike: int = 0
    launches: list[Launch] = field(default_factory=list)
    mismatches: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Tried:
    """What came of a search: states, lemmas, faults."""

    states: int = 0
    lemmas: int = 0
    fault: str = ""


def check_protocol(
    sample: int | None = None, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Compare every legal key's kernel, or a seeded sample's, with the protocol that is proved.

    ``launches`` were read off PTX, in all the programs of ``ctas`` CTAs, and compared step by step
    and place by place (``launches_with`` says how many had what), but for ``no_room`` keys, whose
    least ring no block holds, and ``alike`` kernels, whose PTX is another's up to the operands'
    type; ``mismatches`` lists what differs and what it leads to, or why a program can't be that of
    its launch. Of the distinct ``rings`` (warps and copies at each end) each is proved by induction
    (``lemmas``) and, at its least depth, in every order of a few iterations; so are the
    ``epilogues`` and split-K (``states``).

    Kernels are read in as many processes as there are cores. Raises CompilerAbsent, and
    ProofError where the protocol itself does not hold.
    """
    keys = table_keys()
    if sample is not None:
        keys = random.Random(seed).sample(keys, min(sample, len(keys)))
    ordered = sorted(keys, key=lambda key: (key.form, key.dtype))
    forms = [list(group) for _, group in groupby(ordered, key=lambda key: key.form)]
    reads: list[_Read] = []
    # spawn: a forked child would share whatever threads and locks the parent has.
    context = multiprocessing.get_context("spawn")
    workers = min(len(os.sched_getaffinity(0)), len(forms))
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for future in as_completed([pool.submit(_read, form) for form in forms]):
            reads.append(future.result())
            if progress:
                progress(sum(read.keys for read in reads), len(keys))
        launches = [launch for read in reads for launch in read.launches]
        ctas = {_essence(cta_of(launch)) for launch in launches}
        rings = sorted({cta.ring for cta in ctas}, key=repr)
        epilogues = sorted({(cta.ring.warpgroups, cta.epilogue) for cta in ctas}, key=repr)
        tried = [
            *pool.map(_try_ring, rings),
            *pool.map(_try_epilogue, epilogues),
            _try_split(max((warpgroups for warpgroups, _ in epilogues), default=1)),
        ]
    return {
        "keys": len(keys),
        "no_room": sum(read.no_room for read in reads),
        "alike": sum(read.alike for read in reads),
        "launches": len(launches),
        "ctas": sum(len(launch.ctas) for launch in launches),
        "launches_with": _with(launches),
        "mismatches": [mismatch for read in reads for mismatch in read.mismatches],
        "rings": len(rings),
        "epilogues": len(epilogues),
        "lemmas": sum(each.lemmas for each in tried),
        "states": sum(each.states for each in tried),
        "faults": [each.fault for each in tried if each.fault],
        "source_hash": source_hash(),
    }


def _read(keys: list[CompileKey]) -> _Read:
    read = _Read(len(keys))
    known: set[str] = set()
    for key in keys:
        if not any(small_launches(key)):
            read.no_room += 1
            continue
        text = kernel_ptx(key)
        essence = without_type(text, key)
        if essence in known:
            read.alike += 1
            continue
        known.add(essence)
        for launch in small_launches(key):
            read.launches.append(launch)
            try:
                mismatch: Mismatch | PtxError | None = check_launch(text, launch)
            except PtxError as error:
                mismatch = error
            if mismatch is not None:
                read.mismatches.append({"kernel": key.name, "mismatch": str(mismatch)})
    return read


def _with(launches: list[Launch]) -> dict[str, int]:
    plans = [launch.plan for launch in launches]
    return {
        "cluster": sum(plan.cluster > 1 for plan in plans),
        "split_k": sum(plan.config.split_k > 1 for plan in plans),
        "more_than_two_splits": sum(plan.config.split_k > 2 for plan in plans),
        "cut_raster_group": sum(
            plan.tiles_m // plan.config.cluster_m % plan.config.raster_group != 0 for plan in plans
        ),
        "deepest_ring": sum(launch.deepest for launch in launches),
        "last_of_several_clusters": sum(launch.cta > 0 for launch in launches),
        "element_stores": sum(not plan.c_by_tma for plan in plans),
        "beta": sum(launch.beta != 0 for launch in launches),
        "fp32_out": sum(plan.problem.out == "fp32" for plan in plans),
        "other_out": sum(plan.problem.out != plan.problem.dtype for plan in plans),
    }


def _essence(cta: Cta) -> Cta:
    """What decides the order of a CTA's steps. Bytes do not, nor how many copies a warp starts
    of one kind, nor how many CTAs share a tile."""
    loads = tuple(
        tuple(Copy(1, shared) for shared in sorted({copy.shared for copy in copies}))
        for copies in cta.ring.loads
    )
    ring = replace(cta.ring, slots=2 + cta.ring.lag, loads=loads)
    return Cta(ring, replace(cta.epilogue, splits=min(2, cta.epilogue.splits)))


def _try_ring(ring: Ring) -> _Tried:
    lemmas = len(prove_ring(ring))
    programs = Cta(ring).programs([Unit(iterations) for iterations in ITERATIONS])
    return _tried(explore_ring([programs] * ring.ctas, ring.copies, ITERATIONS), lemmas)


def _try_epilogue(of: tuple[int, Epilogue]) -> _Tried:
    warpgroups, epilogue = of
    ring = Ring(2, warpgroups, ((Copy(1),),), False)
    units = [Unit(1, (PIECES,) * warpgroups)] * 2
    return _tried(explore_epilogue(Cta(ring, epilogue).programs(units)))


def _try_split(warpgroups: int) -> _Tried:
    prove_split()
    ring = Ring(2, warpgroups, ((Copy(1),),), False)
    tried = [_tried(explore_split(Cta(ring, Epilogue(splits)), splits)) for splits in SPLITS]
    faults = [each.fault for each in tried if each.fault]
    return _Tried(sum(each.states for each in tried), 1, faults[0] if faults else "")


def _tried(outcome: Fault | int, lemmas: int = 0) -> _Tried:
    if isinstance(outcome, Fault):
        return _Tried(lemmas=lemmas, fault=str(outcome))
    return _Tried(outcome, lemmas)
