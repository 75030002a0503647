"""Holds a compiled kernel's own barrier program against the description that is proved.

``solver.ring`` describes the ring's protocol, tries every order of a few iterations and, with
Z3, proves all of them. Here the program of every warp is read off a kernel's PTX for small
launches and must be the description's, step by step. One that is not is searched for what it
breaks, so that a mistake comes with the steps that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels.barrier_program import BarrierProgram, WarpProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import (
    RING,
    Arrive,
    ArriveExpect,
    BlockBarrier,
    Load,
    Multiply,
    Step,
)
from kernels.launch_plan import LaunchPlan, plan_launch
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import Problem
from solver.ring import program as ring
from solver.ring.explore import Fault, TooManyStates, Warps, explore

SMS = 1  # one CTA works on every unit of a small launch
UNITS = 2
LONGEST = 5  # k-iterations of a unit: a turn of the ring and more
WHOLE_BLOCK = 0  # the barrier of __syncthreads


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where a kernel's program is not the description's, and what that leads to."""

    where: str
    expected: str
    found: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}\n{self.consequence}"


def ring_of(plan: LaunchPlan) -> ring.Ring:
    """The ring that a launch plan describes."""
    config = plan.config
    copies = config.tile_k // family.SWIZZLE_K
    row = family.SWIZZLE_K * plan.problem.element_bytes
    a, b = plan.a.box_rows * row, plan.b.box_rows * row
    alone = tuple((a, b) * copies)
    each = ((a,) * copies, (b,) * copies)
    return ring.Ring(
        slots=config.stages,
        math_warps=config.math_warpgroups * family.WARPGROUP // family.WARP,
        loads=(alone,) if config.dma_warps == 1 else each,
        in_flight=bool(config.mma_in_flight),
    )


def check_kernel(
    key: family.CompileKey, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[LaunchPlan, Mismatch | None]]:
    """Compile a key and compare it for every small launch: each plan, and what is wrong with it.

    ``headers`` replace those that ship. Raises CompileFailed, CompilerAbsent, and PtxError for
    a program that can't be told.
    """
    text = kernel_ptx(key, headers)
    for plan in small_launches(key):
        yield plan, compare(barrier_program(text, plan, 0), plan)


def small_launches(key: family.CompileKey) -> Iterator[LaunchPlan]:
    """Launches of one CTA that walks the ring around and over a boundary between units, with
    rings of the least depth and one more where that fits a block."""
    most = load_profile("h200").limit("smem_per_block_bytes")
    for stages in (2 + key.mma_in_flight, 3 + key.mma_in_flight):
        for dma_warps in family.DMA_WARPS:
            config = Config(
                family.NAME,
                key.tile_m,
                key.tile_n,
                key.tile_k,
                stages,
                mma_in_flight=key.mma_in_flight,
                dma_warps=dma_warps,
                math_warpgroups=key.math_warpgroups,
                register_split=key.register_split,
            )
            problem = Problem(key.tile_m, UNITS * key.tile_n, LONGEST * key.tile_k, key.dtype)
            plan = plan_launch(problem, config, SMS)
            if plan.smem_bytes <= most:
                yield plan


def compare(found: BarrierProgram, plan: LaunchPlan) -> Mismatch | None:
    """The first difference between a kernel's program and the description; None without."""
    described = ring_of(plan)
    units = [-(-plan.problem.k // plan.config.tile_k)] * plan.units
    expected = described.programs(units)
    own = {warp.name: tuple(_translated(warp)) for warp in found.warps}
    difference = _counts_differ(found.counts, described.counts()) or _steps_differ(own, expected)
    if difference is None:
        return None
    return Mismatch(*difference, _consequence(own, found.counts, described.copies))


def _counts_differ(
    found: Mapping[str, int], expected: Mapping[str, int]
) -> tuple[str, str, str] | None:
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            return name, f"{expected.get(name)} arrivals", f"{found.get(name)}"
    return None


def _steps_differ(
    found: Mapping[str, Sequence[ring.Step]], expected: Mapping[str, Sequence[ring.Step]]
) -> tuple[str, str, str] | None:
    for name, steps in found.items():
        theirs = expected.get(name, ())
        # What every warp does once before the roles part is no part of the ring.
        mine = [step for step in steps[1:] if not _named(step)]
        if not steps or not isinstance(steps[0], ring.Sync):
            return name, "the whole block's barrier first", str(steps[:1])
        for at in range(max(len(mine), len(theirs))):
            a = theirs[at] if at < len(theirs) else None
            b = mine[at] if at < len(mine) else None
            if a != b:
                return f"{name}, step {at + 1}", str(a), str(b)
    return None


def _named(step: ring.Step) -> bool:
    """Whether a step is a barrier among MATH warps alone, as epilogues have them."""
    return isinstance(step, ring.Sync) and step.name != str(WHOLE_BLOCK)


def _consequence(
    programs: Mapping[str, Sequence[ring.Step]], counts: Mapping[str, int], copies: int
) -> str:
    """What the programs as they are lead to, by search."""
    groups: list[Warps] = []
    for name, steps in programs.items():
        ringed = tuple(step for step in steps if not _named(step))
        last = groups[-1] if groups else None
        # Equal MATH warps but the first are taken together: the first is free to lag or to lead.
        if last and len(groups) > 1 and name.startswith("math") and last.steps == ringed:
            groups[-1] = Warps(last.name, ringed, last.count + 1)
        else:
            groups.append(Warps(name, ringed))
    try:
        outcome = explore(groups, counts, copies)
    except TooManyStates as error:
        return f"searched: {error}"
    return str(outcome) if isinstance(outcome, Fault) else "no order of its steps breaks the ring"


def _translated(warp: WarpProgram) -> Iterator[ring.Step]:
    """A warp's steps in the description's words."""
    for step in warp.steps:
        if isinstance(step.op, (*RING, BlockBarrier)):
            yield _step(step)


def _step(step: Step) -> ring.Step:
    match step.op:
        case ring.Wait() | ring.MultiplyWait():
            return step.op
        case Arrive(barrier):
            return ring.Arrive(barrier, step.count)
        case ArriveExpect(barrier, tx_bytes):
            return ring.Arrive(barrier, step.count, tx_bytes)
        case Load():
            return ring.Load(step.op.slot, step.op.barrier, step.op.bytes)
        case Multiply(slot, _):
            return ring.Multiply(slot)
        case BlockBarrier(identity, threads):
            return ring.Sync(str(identity), threads // family.WARP)
    raise TypeError(f"no step of the ring: {step}")
