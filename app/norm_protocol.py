"""norm_activation's protocol: the kernels' own programs, every order, any number of chunks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.norm.compile import compile_key, source_hash
from kernels.norm.ring_check import check_launch, kernel_ptx, meets_nobody
from kernels.norm.ring_forms import forms, planned
from kernels.norm.ring_launches import NormLaunch, described, small_launches
from kernels.ptx_parser import PtxError, parse
from kernels.ring_check import Mismatch
from kernels.sources import ARCH
from solver.families.norm_activation import NormConfig, NormProblem
from solver.ring.state import Fault
from solver.ring.stream import Stream
from solver.ring.stream_instances import block_of, instances, search
from solver.ring.teams import Teams
from solver.z3_stream import prove_stream, prove_team

BATCH = 16  # kernels that a process reads at a time


@dataclass(slots=True)
class _Read:
    """What was read off some kernels."""

    kernels: int = 0
    meet_nobody: int = 0
    launches: list[NormLaunch] = field(default_factory=list)
    mismatches: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Tried:
    """What came of a proof or a search."""

    lemmas: int = 0
    states: int = 0
    fault: str = ""


def check_norm_protocol(
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    plan: Path | None = None,
) -> dict[str, Any]:
    """Compare the kernel of every form, or of every compile key of a plan of cells, or of a seeded
    sample of them, with the protocol that is proved.

    ``launches`` were read off PTX, one block each, and compared step by step and byte by byte
    (``launches_with`` says how many had what), but for kernels that ``meet_nobody``: they have no
    barrier and no shared memory. ``mismatches`` lists what differs and what it leads to, or why a
    program can't be that of its launch. Of the distinct ``blocks`` (warps at each end of the rings,
    groups, teams, ways to hand over) each is proved by induction (``lemmas``), and each of its
    ``instances``, with two of what is more than two, is searched in every order (``states``).

    Kernels are read in as many processes as there are cores. Raises CompilerAbsent, InvalidInput
    for the plan, and ProofError where the protocol itself does not hold.
    """
    kernels = forms(sample, seed) if plan is None else planned(plan, sample, seed)
    batches = [kernels[at : at + BATCH] for at in range(0, len(kernels), BATCH)]
    reads: list[_Read] = []
    # spawn: a forked child would share whatever threads and locks the parent has.
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(len(os.sched_getaffinity(0)), len(batches)))
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        for future in as_completed([pool.submit(_read, batch) for batch in batches]):
            reads.append(future.result())
            if progress:
                progress(sum(read.kernels for read in reads), len(kernels))
        launches = [launch for read in reads for launch in read.launches]
        blocks = sorted({block_of(described(launch)) for launch in launches}, key=repr)
        small = {each for launch in launches for each in instances(described(launch))}
        searched = sorted(small, key=repr)
        tried = [*pool.map(_prove, blocks), *pool.map(_search, searched)]
    return {
        "keys": len(kernels),
        "meet_nobody": sum(read.meet_nobody for read in reads),
        "launches": len(launches),
        "launches_with": _with(launches),
        "mismatches": [mismatch for read in reads for mismatch in read.mismatches],
        "blocks": len(blocks),
        "instances": len(searched),
        "lemmas": sum(each.lemmas for each in tried),
        "states": sum(each.states for each in tried),
        "faults": [each.fault for each in tried if each.fault],
        "source_hash": source_hash(ARCH),
    }


def _read(kernels: list[tuple[NormProblem, NormConfig]]) -> _Read:
    read = _Read(len(kernels))
    for problem, config in kernels:
        key = compile_key(problem, config)
        try:
            text = kernel_ptx(key)
            if not config.has_ring and config.team == 1:
                meets_nobody(text)
                read.meet_nobody += 1
                continue
            entry = parse(text)
        except PtxError as error:
            read.mismatches.append({"kernel": key.name, "mismatch": str(error)})
            continue
        for launch in small_launches(problem, config):
            read.launches.append(launch)
            try:
                mismatch: Mismatch | PtxError | None = check_launch(entry, launch)
            except PtxError as error:
                mismatch = error
            if mismatch is not None:
                read.mismatches.append({"kernel": key.name, "mismatch": str(mismatch)})
    return read


def _with(launches: list[NormLaunch]) -> dict[str, int]:
    streams = [stream for launch in launches if isinstance(stream := described(launch), Stream)]
    return {
        "alike_warps": len(launches) - len(streams),
        "own_rings": sum(not stream.producers for stream in streams),
        **{word: sum(s.copies == word for s in streams) for word in ("bulk", "async", "vector")},
        "named_barriers": sum(stream.named for stream in streams),
        "several_groups": sum(stream.groups > 1 for stream in streams),
        "teams": sum(stream.team > 1 for stream in streams),
        "rows_in_chunks": sum(stream.chunked for stream in streams),
        "held_in_slots": sum(stream.hold == "shared" for stream in streams),
        "reloaded": sum(stream.hold == "reload" for stream in streams),
        "bulk_stores": sum(stream.bulk_stores for stream in streams),
        "register_split": sum(launch.plan.config.register_split for launch in launches),
        "counted_rounds": sum(launch.plan.config.rounds > 0 for launch in launches),
        "groups_without_work": sum(
            len(launch.units) % launch.plan.config.groups != 0 for launch in launches
        ),
    }


def _prove(teams: Teams) -> _Tried:
    lemmas = prove_stream(teams) if isinstance(teams, Stream) else prove_team(teams)
    return _Tried(lemmas=len(lemmas))


def _search(teams: Teams) -> _Tried:
    outcome = search(teams)
    return _Tried(fault=str(outcome)) if isinstance(outcome, Fault) else _Tried(states=outcome)
