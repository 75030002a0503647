"""Holds a compiled kernel's own barrier program against the description that is proved.

``solver.ring`` describes the protocol, tries every order of a few iterations and, with Z3, proves
all of them. Here the program of every warp is read off a kernel's PTX for small launches and must
be the description's, step by step, at the places that the units of work have. One that is not is
searched for what it breaks, so that a mistake comes with the steps that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels.barrier_program import BarrierProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import ASIDE, plain
from kernels.launch_plan import plan_launch
from kernels.ring_launches import Launch, small_launches, units_of
from kernels.ring_places import placed
from solver.families import sm90_gemm as family
from solver.ring.cta import Cta
from solver.ring.epilogue import Epilogue
from solver.ring.explore import Programs, TooManyStates, explore
from solver.ring.program import Copy, Ring
from solver.ring.split import explore_tile
from solver.ring.state import Fault
from solver.ring.steps import Fill, Program, ReadStaged, Step

ELSEWHERE = "the steps are right, but not where: this is another unit's place, or nobody's"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where a kernel's program is not the description's, and what that leads to."""

    where: str
    expected: str
    found: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}\n{self.consequence}"


# ---- what a launch must do


def cta_of(launch: Launch) -> Cta:
    """The description of a launch's CTAs."""
    plan, config = launch.plan, launch.plan.config
    copies = [
        [Copy(load.box.box_rows * load.box.box_columns * element, load.sharers > 1)] * load.copies
        for load in (plan.a, plan.b)
        for element in (plan.problem.element_bytes,)
    ]
    together = (tuple(copies[0] + copies[1]),)
    ring = Ring(
        slots=config.stages,
        warpgroups=config.math_warpgroups,
        loads=together if config.dma_warps == 1 else (tuple(copies[0]), tuple(copies[1])),
        in_flight=bool(config.mma_in_flight),
        ctas=plan.cluster,
    )
    return Cta(
        ring,
        Epilogue(config.split_k, plan.c_by_tma, launch.beta != 0),
        idle_warps=plan.warps - ring.math_warps - ring.dma_warps,
    )


# ---- the comparison


def check_kernel(
    key: family.CompileKey, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[Launch, Mismatch | None]]:
    """Compile a key and compare it for every small launch: each, and what is wrong with it.

    ``headers`` replace those that ship. Raises CompileFailed, CompilerAbsent, and PtxError for
    a program that can't be told.
    """
    ptx_text = kernel_ptx(key, headers)
    return ((launch, check_launch(ptx_text, launch)) for launch in small_launches(key))


def without_type(ptx_text: str, key: family.CompileKey) -> str:
    """A kernel's instructions without its operands' type: kernels that are equal in these do the
    same, since nothing that is compared depends on a product's or a rounding's result."""
    kind = key.dtype.replace("fp", "f")
    body = ptx_text[ptx_text.index(".entry") :].replace(f".f32.{kind}.{kind}", ".f32")
    return re.sub(r"cvt\.rn\.b?f16x2\.f32", "cvt.rn.x2.f32", body)


def check_launch(ptx_text: str, launch: Launch) -> Mismatch | None:
    """The first difference between a kernel's programs and the description; None without.

    Raises PtxError.
    """
    described = cta_of(launch)
    found = [_own(read(ptx_text, launch, cta)) for cta in launch.ctas]
    for cta, own in zip(launch.ctas, found, strict=True):
        units = units_of(launch, cta)
        programs = described.programs(units)
        difference = _differ(own, placed(programs, launch.plan, cta, units))
        if difference is not None:
            where, expected, is_ = difference
            if _differ(_plain(own), programs) is None:
                consequence = ELSEWHERE
            else:
                consequence = _consequence(ptx_text, launch, found, described.ring.copies)
            return Mismatch(f"{_who(launch, cta)} {where}", expected, is_, consequence)
    return None


def _who(launch: Launch, cta: int) -> str:
    """A CTA in words, with the number that a search gives it."""
    cluster = launch.plan.cluster
    return f"CTA {cta}" if cluster == 1 else f"CTA {cta}, CTA {cta % cluster} of its cluster,"


def read(ptx_text: str, launch: Launch, cta: int) -> BarrierProgram:
    """The barrier program of one CTA of a launch. Raises PtxError."""
    return barrier_program(ptx_text, launch.plan, cta, last=launch.last, beta=launch.beta)


def _own(program: BarrierProgram) -> dict[str, Program]:
    """Every warp's steps that the description has."""
    return {
        warp.name: tuple(step for step in warp.steps if not isinstance(step.op, ASIDE))
        for warp in program.warps
    }


def _plain(programs: Programs) -> dict[str, Program]:
    """The programs in the description's words, wherever boxes and counters lie."""
    return {
        name: tuple(Step(plain(step.op), step.lanes) for step in program)
        for name, program in programs.items()
    }


def _differ(found: Programs, expected: Programs) -> tuple[str, str, str] | None:
    for name in (*expected, *(name for name in found if name not in expected)):
        mine, theirs = found.get(name, ()), expected.get(name, ())
        at = 0
        for step in theirs:
            here = mine[at] if at < len(mine) else None
            if here is not None and here.op == step.op and _by(here, step):
                at += 1
            elif not isinstance(step.op, Fill | ReadStaged):
                return f"{name}, step {at + 1}", str(step), str(here)
        if at < len(mine):
            return f"{name}, step {at + 1}", "its end", str(mine[at])
    return None


def _by(found: Step, step: Step) -> bool:
    """Whether the right lanes take a step: of elements, those that have one, if any."""
    if isinstance(step.op, Fill | ReadStaged):
        return not found.lanes & ~step.lanes
    return found.lanes == step.lanes


def _consequence(ptx_text: str, launch: Launch, found: Sequence[Programs], copies: int) -> str:
    """What the programs as they are lead to, by search."""
    try:
        iterations = [unit.iterations for unit in units_of(launch, launch.cta)]
        outcome = explore([_plain(programs) for programs in found], copies, iterations)
        if not isinstance(outcome, Fault) and launch.plan.config.split_k > 1:
            outcome = explore_tile(_of_a_tile(ptx_text, launch))
    except TooManyStates as error:
        return f"searched: {error}"
    return str(outcome) if isinstance(outcome, Fault) else "no order of its steps breaks anything"


def _of_a_tile(ptx_text: str, launch: Launch) -> list[list[Programs]]:
    """What each CTA of the first tile does for its split, as the last of them and not."""
    plan = launch.plan
    alone = plan_launch(plan.problem, plan.config, plan.units)
    ctas = range(0, plan.config.split_k * plan.cluster, plan.cluster)
    return [
        [
            _plain(_own(read(ptx_text, Launch(alone, launch.beta, (last,)), cta)))
            for last in (True, False)
        ]
        for cta in ctas
    ]
