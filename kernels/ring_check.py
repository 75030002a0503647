"""Holds a compiled kernel's own barrier program against the description that is proved.

``solver.ring`` describes the protocol, tries every order of a few iterations and, with Z3, proves
all of them. Here the program of every warp is read off a kernel's PTX for small launches and must
be the description's, step by step. One that is not is searched for what it breaks, so that a
mistake comes with the steps that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.barrier_program import BarrierProgram, WarpProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import ASIDE, ELEMENTS, plain
from kernels.launch_plan import LaunchPlan, plan_launch
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import ELEMENT_BYTES, Problem
from solver.ring.cta import Cta
from solver.ring.epilogue import Epilogue, Unit
from solver.ring.explore import Programs, TooManyStates, explore
from solver.ring.program import Copy, Ring
from solver.ring.split import explore_tile
from solver.ring.state import Fault, touched_too_early
from solver.ring.steps import (
    Fill,
    Program,
    ReadStaged,
    Step,
    WaitForLaunchBefore,
    too_early,
    words,
)

LONGEST = 5  # k-iterations of a unit: a turn of the ring and more
SPLITS = 2


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch whose programs are read: its plan, its scalars, and whether its CTAs find
    themselves the last of their tiles."""

    plan: LaunchPlan
    beta: float = 0.0
    last: bool = True


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


def units_of(launch: Launch, cta: int) -> list[Unit]:
    """The units of work of a CTA. Its cluster's tiles are walked in groups of raster_group rows,
    column by column."""
    plan, config = launch.plan, launch.plan.config
    splits, cluster = config.split_k, plan.cluster
    rank_m, rank_n = cta % config.cluster_m, cta % config.cluster_n
    rows, columns = plan.tiles_m // config.cluster_m, plan.tiles_n // config.cluster_n
    group = min(config.raster_group, rows)
    walked = [
        (row * config.cluster_m + rank_m, column * config.cluster_n + rank_n)
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(first, min(first + group, rows))
    ]
    iterations = -(-plan.problem.k // config.tile_k)
    return [
        Unit(
            (split + 1) * iterations // splits - split * iterations // splits,
            _pieces(plan, row * config.tile_m, column * config.tile_n),
            launch.last,
        )
        for index in range(cta // cluster, len(walked) * splits, plan.grid // cluster)
        for (row, column), split in ((walked[index // splits], index % splits),)
    ]


def _pieces(plan: LaunchPlan, row: int, column: int) -> tuple[int, ...]:
    """Pieces of C that lie in a tile, for each warpgroup: 64 rows of a staging buffer's width."""
    config, problem = plan.config, plan.problem
    width = int(family.piece_n(config.tile_n, problem.out_bytes))
    across = -(-min(config.tile_n, problem.n - column) // width)
    rows = config.tile_m // config.math_warpgroups
    starts = range(row, row + config.tile_m, rows)
    return tuple(
        across * max(0, -(-min(rows, problem.m - start) // family.MMA_M)) for start in starts
    )


# ---- launches that are read


def small_launches(key: family.CompileKey) -> Iterator[Launch]:
    """Launches of one CTA or cluster that walks the ring around and over a boundary between units.

    Between them: rings of the least depth and of one more, both numbers of DMA warps, every
    cluster, with and without split-K (last and not), every way to store (TMA and elements, 16 and
    32 bits, alone and added to C), every cache policy, as far as the tile allows. None where a
    block has no room for the key's least ring.
    """
    wide = key.tile_n % family.WIDE_STEP_N == 0
    other = next(dtype for dtype in ELEMENT_BYTES if dtype != key.dtype)
    widest = "fp32" if wide else other
    rows = {"cluster_m": 2} if key.tile_n % (2 * family.BOX_STEP) == 0 else {"cluster_n": 2}
    columns, split = {"cluster_n": 2}, {"split_k": SPLITS}
    deep, two = {"stages": 3 + key.mma_in_flight}, {"dma_warps": 2}
    yield from _launch(key, {}, square=True)
    yield from _launch(key, two | rows, widest, beta=1.0)
    yield from _launch(key, two | columns, other, edge=True)
    yield from _launch(key, deep | columns | split, widest, edge=True, beta=1.0)
    yield from _launch(key, rows | split, other, beta=1.0)
    yield from _launch(key, two | split, edge=True, last=False)
    yield from _launch(key, split, edge=True, beta=1.0)


def _launch(
    key: family.CompileKey,
    more: dict[str, int],
    out: str | None = None,
    *,
    edge: bool = False,
    square: bool = False,
    beta: float = 0.0,
    last: bool = True,
) -> Iterator[Launch]:
    """A launch of two units for each CTA; with ``edge`` C's rows are none that TMA takes and its
    last tiles are cut; ``square``: two tiles by two on two CTAs, so that none is loaded once."""
    fields = {
        "tile_m": key.tile_m,
        "tile_n": key.tile_n,
        "tile_k": key.tile_k,
        "stages": 2 + key.mma_in_flight,
        "mma_in_flight": key.mma_in_flight,
        "math_warpgroups": key.math_warpgroups,
        "register_split": key.register_split,
    }
    most = load_profile("h200").limit("smem_per_block_bytes")
    for stages in (more.get("stages", 0), fields["stages"]):
        config = Config(family.NAME, **(fields | more | {"stages": max(stages, fields["stages"])}))
        if family.smem_bytes(config.to_dict(), ELEMENT_BYTES[key.dtype]) <= most:
            break
    else:
        return
    one = config.split_k > 1  # tile for a CTA; another split of it is its second unit
    m = config.cluster_m * key.tile_m * (2 if square or (edge and not one) else 1)
    n = config.cluster_n * key.tile_n * (1 if edge or one else 2)
    cut = (key.tile_m - 5 if not one else 5, 3) if edge else (0, 0)
    problem = Problem(m - cut[0], n - cut[1], LONGEST * key.tile_k, key.dtype, key.layout, out)
    ctas = config.cluster_m * config.cluster_n * (2 if square else 1)
    yield Launch(plan_launch(problem, config, ctas), beta, last)


# ---- the comparison


def check_kernel(
    key: family.CompileKey, headers: Mapping[str, str] | None = None
) -> Iterator[tuple[Launch, Mismatch | None]]:
    """Compile a key and compare it for every small launch: each, and what is wrong with it.

    ``headers`` replace those that ship. Raises CompileFailed, CompilerAbsent, and PtxError for
    a program that can't be told.
    """
    return check_ptx(kernel_ptx(key, headers), key)


def check_ptx(ptx_text: str, key: family.CompileKey) -> Iterator[tuple[Launch, Mismatch | None]]:
    """The same for PTX that is there already."""
    return ((launch, check_launch(ptx_text, launch)) for launch in small_launches(key))


def without_type(ptx_text: str, key: family.CompileKey) -> str:
    """A kernel's instructions without its operands' type: kernels that are equal in these do the
    same, since nothing that is compared depends on a product's or a rounding's result."""
    kind = key.dtype.replace("fp", "f")
    body = ptx_text[ptx_text.index(".entry") :].replace(f".f32.{kind}.{kind}", ".f32")
    return re.sub(r"cvt\.rn\.b?f16x2\.f32", "cvt.rn.x2.f32", body)


def check_launch(ptx_text: str, launch: Launch) -> Mismatch | None:
    """The first difference between a kernel's programs and the description; None without."""
    described = cta_of(launch)
    programs = [read(ptx_text, launch, cta) for cta in range(launch.plan.cluster)]
    found = [_own(program) for program in programs]
    for cta, own in enumerate(found):
        difference = _differ(own, described.programs(units_of(launch, cta)))
        if difference is not None:
            where, expected, is_ = difference
            where = f"CTA {cta} {where}" if launch.plan.cluster > 1 else where
            consequence = _consequence(ptx_text, launch, found, described.ring.copies)
            return Mismatch(where, expected, is_, consequence)
    # Elements of C are no steps of the description: it has their places in staging buffers alone.
    early = (_elements_too_early(warp) for program in programs for warp in program.warps)
    return next((mismatch for mismatch in early if mismatch is not None), None)


def read(ptx_text: str, launch: Launch, cta: int) -> BarrierProgram:
    """The barrier program of one CTA of a launch. Raises PtxError."""
    return barrier_program(ptx_text, launch.plan, cta, last_split=launch.last, beta=launch.beta)


def _own(program: BarrierProgram) -> dict[str, Program]:
    """Every warp's steps in the description's words."""
    return {
        warp.name: tuple(
            Step(plain(step.op), step.lanes) for step in warp.steps if not _aside(step)
        )
        for warp in program.warps
    }


def _aside(step: Step) -> bool:
    return isinstance(step.op, ASIDE)


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


def _elements_too_early(warp: WarpProgram) -> Mismatch | None:
    """The first access to an element of C by a lane that has not waited for the launch before."""
    for at in sorted(too_early(warp.steps, ELEMENTS)):
        step = warp.steps[at]
        before = [words(Step(plain(s.op), s.lanes)) for s in warp.steps[:at] if not _aside(s)]
        trace = f"{warp.name}: {'; '.join((*before, 'touch elements of C'))}"
        fault = replace(touched_too_early(warp.name), trace=(trace,))
        wait = Step(WaitForLaunchBefore(), step.lanes)
        return Mismatch(f"{warp.name}, step {at + 1}", str(wait), str(step), str(fault))
    return None


def _consequence(ptx_text: str, launch: Launch, found: Sequence[Programs], copies: int) -> str:
    """What the programs as they are lead to, by search."""
    try:
        outcome = explore(found, copies)
        if not isinstance(outcome, Fault) and launch.plan.config.split_k > 1:
            outcome = explore_tile(_of_a_tile(ptx_text, launch))
    except TooManyStates as error:
        return f"searched: {error}"
    return str(outcome) if isinstance(outcome, Fault) else "no order of its steps breaks anything"


def _of_a_tile(ptx_text: str, launch: Launch) -> list[list[Programs]]:
    """What each CTA of a tile does for its split, as the last of them and not."""
    plan = launch.plan
    alone = plan_launch(plan.problem, plan.config, plan.config.split_k * plan.cluster)
    ctas = range(0, alone.grid, plan.cluster)
    return [
        [_own(read(ptx_text, Launch(alone, launch.beta, last), cta)) for last in (True, False)]
        for cta in ctas
    ]
