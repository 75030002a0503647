"""Holds a compiled norm_activation kernel's own barrier program against the description.

As ``kernels.ring_check`` for the GEMM: the program of every warp is read off a kernel's PTX for
small launches and must be the description's, step by step, and on the way each byte of a chunk must
come to its slot, be read, and leave, as often as it should.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kernels import nvrtc
from kernels.barrier_steps import ASIDE
from kernels.norm.compile import NormKey, compile_key, headers, instantiation
from kernels.norm.ring_launches import NormLaunch, described, small_launches, units_of
from kernels.norm.ring_observer import NormObserver
from kernels.norm.warp_order import require_together
from kernels.ptx_machine import Machine
from kernels.ptx_parser import Entry, PtxError, parse
from kernels.ptx_registers import Launch
from kernels.ring_check import Mismatch
from kernels.sources import options
from solver.families.norm_activation import NormConfig, NormProblem
from solver.ring.explore import Programs, TooManyStates
from solver.ring.state import Fault
from solver.ring.steps import Program, Step
from solver.ring.stream import Stream
from solver.ring.stream_machine import explore_stream
from solver.ring.stream_steps import OF_ITS_LANES
from solver.ring.teams import Teams

VIRTUAL_ARCH = "compute_90a"


def kernel_ptx(key: NormKey, text: Mapping[str, str] | None = None) -> str:
    """The PTX of a compile key, from the headers that ship or from others by the same names.

    Raises CompileFailed and CompilerAbsent.
    """
    used = headers() if text is None else text
    return nvrtc.ptx(f"{key.name}.cu", instantiation(key), used, options(VIRTUAL_ARCH))


def meets_nobody(ptx_text: str) -> None:
    """Raise PtxError unless a kernel has neither barriers nor shared memory: its warps have nothing
    to do with one another."""
    body = ptx_text[ptx_text.index(".entry") :]
    found = re.search(r"\b(bar|barrier|mbarrier|cp|atom|red)\.(?!warp)\S+|\.shared\S*", body)
    if found is not None:
        raise PtxError(f"{found[0]}: a kernel whose warps are alike, and alone, has no use for it")


def check_kernel(
    problem: NormProblem, config: NormConfig, text: Mapping[str, str] | None = None
) -> Iterator[tuple[NormLaunch, Mismatch | None]]:
    """Compile the kernel of a legal configuration and compare it for every small launch: each, and
    what is wrong with it.

    ``text`` are headers that replace those that ship. Raises CompileFailed, CompilerAbsent, and
    PtxError for a program that can't be told.
    """
    entry = parse(kernel_ptx(compile_key(problem, config), text))
    return ((launch, check_launch(entry, launch)) for launch in small_launches(problem, config))


def check_launch(entry: Entry, launch: NormLaunch) -> Mismatch | None:
    """The first difference between a kernel's programs and the description; None without.

    Raises PtxError.
    """
    teams = described(launch)
    expected = programs_of(teams, launch)
    found, elsewhere = read(entry, launch)
    aligned, difference = _aligned(found, expected)
    if difference is None:
        if elsewhere is not None:
            raise elsewhere
        return None
    where, should, is_ = difference
    try:
        outcome = explore_stream(teams, aligned, lumped=True)
    except TooManyStates as error:
        return Mismatch(f"block {launch.block} {where}", should, is_, f"searched: {error}")
    breaks = str(outcome) if isinstance(outcome, Fault) else "no order of its steps breaks anything"
    return Mismatch(f"block {launch.block} {where}", should, is_, breaks)


def programs_of(teams: Teams, launch: NormLaunch) -> dict[str, Program]:
    """The description's programs of the block that is read."""
    if isinstance(teams, Stream):
        return teams.programs(units_of(launch))
    rows = [0] * (teams.warps // teams.team)
    for unit in launch.units:
        for team, _ in enumerate(launch.rows_of(unit)):
            rows[team] += 1
    return teams.alike(rows)


def read(entry: Entry, launch: NormLaunch) -> tuple[dict[str, Program], PtxError | None]:
    """Every warp's steps that the description has, by name, and the first access that is wrong
    whatever their order: whose bytes are not where they belong, or which one lane hands over for
    another that it never met. Raises PtxError."""
    observer = NormObserver(launch)
    plan = launch.plan
    block = Launch(launch.block, plan.grid, plan.threads, plan.smem_bytes, (observer.arguments,))
    Machine(entry, block, observer).run()
    producers = plan.config.producers
    whole = {
        f"producer{warp}" if warp < producers else f"consumer{warp - producers}": steps
        for warp, steps in enumerate(observer.finish())
    }
    programs = {
        name: tuple(step for step in steps if not isinstance(step.op, ASIDE))
        for name, steps in whole.items()
    }
    wrong = observer.elsewhere
    try:
        for name, steps in whole.items():
            require_together(name, steps)
    except PtxError as error:
        wrong = wrong or error
    return programs, wrong


def _aligned(
    found: Programs, expected: Programs
) -> tuple[dict[str, Program], tuple[str, str, str] | None]:
    """The programs with accesses that no lane has a part in put where they would be, and the first
    difference: where it is, what it should be and what it is."""
    difference = None
    aligned: dict[str, Program] = {}
    for name in (*expected, *(name for name in found if name not in expected)):
        mine, theirs = found.get(name, ()), expected.get(name, ())
        steps: list[Step] = []
        at = 0
        wrong = None
        for step in theirs:
            here = mine[at] if at < len(mine) else None
            of_lanes = isinstance(step.op, OF_ITS_LANES)
            if here is not None and here.op == step.op and (of_lanes or here.lanes == step.lanes):
                steps.append(here)
                at += 1
            elif of_lanes:
                steps.append(Step(step.op, 0))
            else:
                wrong = str(step), str(here)
                break
        if wrong is None and at < len(mine):
            wrong = "its end", str(mine[at])
        if wrong is not None and difference is None:
            difference = f"{name}, step {at + 1}", *wrong
        aligned[name] = (*steps, *mine[at:])
    return aligned, difference
