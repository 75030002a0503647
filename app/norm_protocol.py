"""norm_activation's protocol: the kernels' own programs, every order, any number of chunks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
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
from solver.ring.stream import Stream, StreamUnit, Teams
from solver.ring.stream_machine import explore_stream
from solver.z3_stream import prove_stream, prove_team

BATCH = 16  # kernels that a process reads at a time
CHUNKS = 3  # of a row, in the searches
CHUNK = 64  # its bytes: any
SEARCHED_WARPS = 2  # of a role, of a team, of a group, and groups, in the searches


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
    """Compare the kernel of every form, of a seeded sample of them, or of every compile key of a
    plan of cells, with the protocol that is proved.

    ``launches`` were read off PTX, one block each, and compared step by step and byte by byte
    (``launches_with`` says how many had what), but for kernels that ``meet_nobody``: they have no
    barrier and no shared memory. ``mismatches`` lists what differs and what it leads to, or why a
    program can't be that of its launch. Of the distinct ``blocks`` (warps at each end of the rings,
    groups, teams, ways to hand over) each is proved by induction (``lemmas``), and each of its
    ``instances``, with two of what is more than two, is searched in every order (``states``).

    Kernels are read in as many processes as there are cores. Raises CompilerAbsent, InvalidInput
    for the plan, and ProofError where the protocol itself does not hold.
    """
    kernels = forms(sample, seed) if plan is None else planned(plan)
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
        blocks = sorted({_block(described(launch)) for launch in launches}, key=repr)
        instances = sorted({_instance(described(launch)) for launch in launches}, key=repr)
        tried = [*pool.map(_prove, blocks), *pool.map(_search, instances)]
    return {
        "keys": len(kernels),
        "meet_nobody": sum(read.meet_nobody for read in reads),
        "launches": len(launches),
        "launches_with": _with(launches),
        "mismatches": [mismatch for read in reads for mismatch in read.mismatches],
        "blocks": len(blocks),
        "instances": len(instances),
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


def _block(teams: Teams) -> Teams:
    """What decides a proof: for any depth, any chunks and any number of sums."""
    if not isinstance(teams, Stream):
        return Teams(teams.team, teams.team, 1)
    hold, chunked = ("shared", True) if teams.keeps_row else ("registers", False)
    return replace(teams, depth=2, sums=1, hold=hold, chunked=chunked)


def _instance(teams: Teams) -> Teams:
    """What decides the order of steps, with two of what is more than two. Groups that load for
    themselves have nothing to do with one another."""
    team = min(SEARCHED_WARPS, teams.team)
    if not isinstance(teams, Stream):
        return Teams(team, team, teams.sums)
    own = not teams.producers
    in_group = min(SEARCHED_WARPS // team, teams.group_warps // teams.team)
    groups = 1 if own else min(SEARCHED_WARPS, teams.groups)
    return replace(
        teams,
        warps=groups * in_group * team,
        team=team,
        groups=groups,
        producers=min(SEARCHED_WARPS, teams.producers) if teams.copies != "bulk" else not own,
        depth=CHUNKS if teams.keeps_row else 2,
    )


def _prove(teams: Teams) -> _Tried:
    lemmas = prove_stream(teams) if isinstance(teams, Stream) else prove_team(teams)
    return _Tried(lemmas=len(lemmas))


def _search(teams: Teams) -> _Tried:
    if isinstance(teams, Stream):
        programs = teams.programs(_units(teams))
    else:
        programs = teams.alike([CHUNKS])
    outcome = explore_stream(teams, programs)
    return _Tried(fault=str(outcome)) if isinstance(outcome, Fault) else _Tried(states=outcome)


def _units(stream: Stream) -> list[StreamUnit]:
    """Units that go round the rings of all groups but the last, which ends a round earlier."""
    if not stream.chunked:
        rounds = stream.depth + 1
        rows = max(1, stream.group_warps // stream.team)
        whole = [StreamUnit(rows, (CHUNK * rows,))] * (rounds * stream.groups - 1)
        return [*whole[:-1], StreamUnit(1, (CHUNK,))]
    chunks = (CHUNK,) * CHUNKS
    unit = StreamUnit(1, chunks * 2 if stream.hold == "reload" else chunks)
    return [unit] * (stream.groups + 1 if stream.groups > 1 else 2)
