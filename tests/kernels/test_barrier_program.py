"""The barrier program that is read off a kernel's PTX, against what the launch asks for.

Every check here knows the problem and the configuration, not the code that reads the PTX; the
planted errors are edits of the CUDA text that only this test's compiler sees. Needs NVRTC, no GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from kernels import nvrtc
from kernels.barrier_program import BarrierProgram, WarpProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import (
    BoxLoad,
    BoxStore,
    CountAt,
    Exit,
    LoadElements,
    SetRegisters,
    StoreElements,
    WarpBarrier,
)
from kernels.errors import CompileFailed
from kernels.launch_plan import CachePolicy, LaunchPlan, plan_launch
from kernels.ptx_parser import PtxError
from kernels.sources import headers, instantiation, kernel_id, options
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey, compile_key
from solver.problem import Problem
from solver.ring.steps import (
    ALL,
    ASYNC_FENCE,
    GPU_FENCE,
    INIT_FENCE,
    OUTSIDE,
    Arrive,
    ClusterArrive,
    ClusterWait,
    Fence,
    Fill,
    Init,
    LetNextLaunchBegin,
    Load,
    LoadFlag,
    LoadPartial,
    Multiply,
    MultiplyWait,
    Op,
    ReadFilled,
    ReadStaged,
    Stage,
    Step,
    Store,
    StoreCommit,
    StoreFlag,
    StorePartial,
    StoreWait,
    Sync,
    Wait,
    WaitForLaunchBefore,
)

TOGETHER = (
    Wait,
    Multiply,
    MultiplyWait,
    Sync,
    ClusterArrive,
    ClusterWait,
    WarpBarrier,
    SetRegisters,
    Stage,
    ReadFilled,
    Exit,
)


@dataclass(frozen=True)
class Case:
    """One CTA of one small launch."""

    name: str
    problem: Problem
    config: Config
    sms: int
    cta: int = 0
    last: bool = True
    alpha: float = 1.0
    beta: float = 0.0

    @property
    def key(self) -> CompileKey:
        return compile_key(self.config, self.problem.dtype, self.problem.layout)

    @property
    def plan(self) -> LaunchPlan:
        return plan_launch(self.problem, self.config, self.sms)

    @property
    def rank(self) -> int:
        return self.cta % self.plan.cluster


def config(tile: tuple[int, int, int], stages: int, warpgroups: int = 1, **more: int) -> Config:
    return Config(family.NAME, *tile, stages, math_warpgroups=warpgroups, **more)


SPLIT = config((128, 256, 64), 4, 2, mma_in_flight=1, dma_warps=2, register_split=1, split_k=2)
CASES = (
    Case("two slots, three units", Problem(192, 8, 320), config((64, 8, 64), 2), 1),
    Case(
        "in flight, two DMA warps, boxes cut in m and n, elements",
        Problem(20, 33, 512),
        config((64, 48, 128), 3, mma_in_flight=1, dma_warps=2),
        1,
    ),
    Case(
        "more units than CTAs, rasters of two, in flight",
        Problem(300, 184, 456),
        config((128, 64, 64), 5, mma_in_flight=1, raster_group=2),
        4,
        cta=3,
    ),
    Case("split, last", Problem(192, 312, 832), SPLIT, 2, cta=1),
    Case("split, not last", Problem(192, 312, 832), SPLIT, 2, cta=1, last=False),
    Case(
        "three splits of seven iterations, not last, fp16",
        Problem(256, 48, 448, "fp16"),
        config((128, 48, 64), 3, 2, mma_in_flight=1, split_k=3),
        2,
        last=False,
    ),
    Case(
        "three splits, last, elements, fp16",
        Problem(130, 45, 448, "fp16"),
        config((128, 48, 64), 3, 2, mma_in_flight=1, split_k=3),
        2,
        cta=1,
    ),
    Case("deep slots", Problem(512, 384, 512), config((256, 128, 128), 2, 2), 2, cta=1),
    Case(
        "three warpgroups, registers split, fp16",
        Problem(200, 288, 640, "fp16"),
        config((192, 96, 128), 3, 3, mma_in_flight=1, register_split=1),
        2,
    ),
    Case(
        "three warpgroups, two DMA warps",
        Problem(576, 64, 448),
        config((192, 64, 64), 5, 3, dma_warps=2),
        1,
    ),
    Case(
        "one warpgroup of three blocks, elements",
        Problem(150, 71, 264),
        config((192, 24, 64), 4, mma_in_flight=1),
        1,
    ),
    Case(
        "registers split, one group at a time, two DMA warps, a pitch TMA can't take",
        Problem(8, 128, 384, ldc=132),
        config((256, 64, 64), 2, 2, register_split=1, dma_warps=2),
        1,
    ),
    Case("one warpgroup of two blocks", Problem(384, 80, 320), config((128, 80, 64), 3), 2),
    Case(
        "two rows share B, both operands K-major, C added, fp32",
        Problem(250, 96, 384, out_dtype="fp32"),
        config((64, 48, 64), 3, mma_in_flight=1, dma_warps=2, cluster_m=2),
        2,
        cta=1,
        alpha=2.0,
        beta=0.5,
    ),
    Case(
        "two columns share A, neither operand K-major, elements added",
        Problem(130, 62, 512, "fp16", "nt"),
        config((128, 32, 128), 2, 2, cluster_n=2),
        4,
        cta=1,
        beta=1.0,
    ),
    Case(
        "a cluster with split-K, last, B of one swizzled row, fp16 from bf16",
        Problem(256, 40, 512, layout="tt", out_dtype="fp16"),
        config((128, 64, 64), 4, mma_in_flight=1, split_k=2, cluster_m=2),
        4,
        cta=2,
        beta=-1.0,
    ),
    Case(
        "fp32 elements, added",
        Problem(70, 31, 320, layout="nt", out_dtype="fp32"),
        config((64, 16, 64), 3),
        1,
        beta=1.0,
    ),
    Case(
        "fp32 by TMA",
        Problem(128, 48, 320, "fp16", "tt", out_dtype="fp32"),
        config((64, 48, 64), 3),
        1,
        alpha=0.5,
    ),
    Case(
        "rasters of two clusters, A not K-major, B cut to one box, fp32 elements",
        Problem(500, 90, 192, "fp16", "nn", out_dtype="fp32", ldc=91),
        config((64, 48, 64), 2, cluster_m=2, raster_group=2),
        4,
        cta=3,
    ),
    Case(
        "three warpgroups, a cluster, three splits, not last, added",
        Problem(192, 96, 640, layout="nn", out_dtype="fp32"),
        config((192, 48, 64), 4, 3, split_k=3, cluster_n=2, dma_warps=2),
        2,
        last=False,
        beta=1.0,
    ),
    Case(
        "pieces of thirteen quads, rows cut to one, added",
        Problem(1, 200, 256),
        config((64, 208, 64), 3),
        1,
        beta=1.0,
    ),
    Case(
        "three pieces of five quads, elements, fp16",
        Problem(70, 115, 320, "fp16"),
        config((64, 120, 64), 4, mma_in_flight=1),
        1,
    ),
    Case("pieces of two quads", Problem(61, 40, 192, layout="nn"), config((64, 16, 64), 2), 1),
    Case(
        "pieces of seven quads, B of rows of 32 bytes",
        Problem(140, 200, 192, layout="tt"),
        config((64, 112, 64), 3, cluster_n=2),
        2,
        cta=1,
    ),
)
SMALL = CASES[0]
FLIGHT = CASES[2]
ADDED = next(case for case in CASES if case.plan.cluster > 1)
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@cache
def ptx_of(key: CompileKey) -> str:
    return kernel_ptx(key)


@cache
def program_of(case: Case) -> BarrierProgram:
    return read(ptx_of(case.key), case)


def read(ptx: str, case: Case, elected: int = 0) -> BarrierProgram:
    return barrier_program(
        ptx,
        case.plan,
        case.cta,
        last=(case.last,),
        alpha=case.alpha,
        beta=case.beta,
        elected=elected,
    )


# ---- what a launch asks for, worked out by counting


@dataclass(frozen=True)
class Unit:
    row: int
    column: int
    tile: int
    iterations: range


def tiles(case: Case) -> list[tuple[int, int]]:
    """First row and column of each tile, in the order in which clusters walk them; a cluster's
    own tiles one after the other."""
    config = case.config
    group = config.raster_group
    rows = range(0, case.problem.m, config.cluster_m * config.tile_m)
    columns = range(0, case.problem.n, config.cluster_n * config.tile_n)
    return [
        (row + down * config.tile_m, column + right * config.tile_n)
        for start in range(0, len(rows), group)
        for column in columns
        for row in rows[start : start + group]
        for down in range(config.cluster_m)
        for right in range(config.cluster_n)
    ]


def units(case: Case) -> list[Unit]:
    """The units of the CTA."""
    splits, cluster = case.config.split_k, case.plan.cluster
    iterations = -(-case.problem.k // case.config.tile_k)
    walked = [
        Unit(
            *tiles(case)[tile],
            tile,
            range(split * iterations // splits, (split + 1) * iterations // splits),
        )
        for tile in range(case.rank, len(tiles(case)), cluster)
        for split in range(splits)
    ]
    return walked[case.cta // cluster :: case.plan.grid // cluster]


def visits(case: Case) -> list[tuple[int, Unit, int]]:
    """(slot, unit, k-iteration) of every turn of the ring."""
    turns = [(unit, iteration) for unit in units(case) for iteration in unit.iterations]
    return [(i % case.config.stages, *turn) for i, turn in enumerate(turns)]


def loader(case: Case, operand: str) -> int:
    """The DMA warp that loads an operand."""
    return 1 if case.config.dma_warps == 2 and operand == "b" else 0


def requested(extent: int, tile: int, step: int) -> int:
    """Rows of a tile that are asked for, in whole steps."""
    return min(tile, -(-extent // step) * step)


def shared_step(sharers: int) -> int:
    """Rows of a tile K-major come as they are, or in a whole period of the swizzle for each CTA."""
    return 8 * sharers if sharers > 1 else 1


def boxes(case: Case, operand: str) -> tuple[list[tuple[int, int]], int, int, bool, bool]:
    """An operand's loads of a slot: (subtile, first line) of each, lines and elements of a line,
    whether it is K-major and whether it is shared."""
    problem, config = case.problem, case.config
    if operand == "a":
        k_major, sharers = problem.layout[0] == "t", config.cluster_n
        extent, tile, width = problem.m, config.tile_m, 64
    else:
        k_major, sharers = problem.layout[1] == "n", config.cluster_m
        extent, tile, width = problem.n, config.tile_n, swizzle_width(case)
    part = case.rank if sharers > 1 else 0
    if k_major:
        lines = requested(extent, tile, shared_step(sharers)) // sharers
        subtiles, width = config.tile_k // 64, 64
    else:
        lines, subtiles = config.tile_k // sharers, requested(extent, tile, width) // width
    places = [(subtile, part * lines) for subtile in range(subtiles)]
    return places, lines, width, k_major, sharers > 1


def loads(case: Case, dma_warp: int) -> list[BoxLoad]:
    """What a DMA warp has to load, in order."""
    expected = []
    for slot, unit, iteration in visits(case):
        for operand, across in (("a", unit.row), ("b", unit.column)):
            if loader(case, operand) != dma_warp:
                continue
            places, lines, width, k_major, shared = boxes(case, operand)
            along = iteration * case.config.tile_k
            for subtile, line in places:
                row = (across if k_major else along) + line
                column = (along if k_major else across) + subtile * width
                bytes_ = lines * width * 2
                full = f"full[{slot}]"
                expected.append(
                    BoxLoad(slot, full, bytes_, shared, operand, subtile, line, row, column)
                )
    return expected


def slot_bytes(case: Case) -> int:
    """Bytes that land in a slot on a visit, the peer's among them."""
    total = 0
    for operand in "ab":
        places, lines, width, _, shared = boxes(case, operand)
        total += len(places) * lines * width * 2 * (case.plan.cluster if shared else 1)
    return total


def swizzle_width(case: Case) -> int:
    return next(width for width in (64, 32, 16, 8) if case.config.tile_n % width == 0)


def piece_width(case: Case) -> int:
    """Columns of C in a staging buffer: as many as rows of no more than 208 bytes hold that meet
    no bank twice."""
    if case.problem.out == "fp32":
        return swizzle_width(case) // 2
    conflict_free = [w for w in range(8, 105, 8) if w % 16 or w in (16, 32, 64)]
    return max(width for width in conflict_free if case.config.tile_n % width == 0)


def pieces(case: Case, warpgroup: int) -> list[tuple[int, int]]:
    """Rows and columns of C that a warpgroup stores piece by piece where its CTA is last."""
    tile_m, tile_n = case.config.tile_m, case.config.tile_n
    rows = tile_m // case.config.math_warpgroups
    width = piece_width(case)
    return [
        (row, column)
        for unit in units(case)
        if case.last or case.config.split_k == 1
        for row in range(unit.row + warpgroup * rows, unit.row + (warpgroup + 1) * rows, 64)
        for column in range(unit.column, unit.column + tile_n, width)
        if row < case.problem.m and column < case.problem.n
    ]


def writers(case: Case, row: int, column: int) -> set[int]:
    """Threads of a warpgroup with an element of a piece that lies in C, dealt out in turn."""
    width = piece_width(case)
    rows, columns = min(64, case.problem.m - row), min(width, case.problem.n - column)
    return {(r * width + c) % 128 for r in range(rows) for c in range(columns)}


# ---- what to look for in a program


def of(kind: type[Op], ops: tuple[Op, ...]) -> list[Op]:
    return [op for op in ops if isinstance(op, kind)]


def steps_of(kind: type[Op], program: BarrierProgram) -> list[tuple[WarpProgram, Step]]:
    return [(warp, step) for warp, step in program.steps() if isinstance(step.op, kind)]


def releases(program: BarrierProgram) -> list[Step]:
    """The MATH warps' arrivals at empty barriers."""
    return [step for warp, step in steps_of(Arrive, program) if warp in program.math]


def worker(warp: WarpProgram) -> tuple[Op, ...]:
    """What the lane does that does most, in a DMA warp the elected one."""
    return max((threads.ops for threads in warp.threads()), key=len)


def early_releases(ops: tuple[Op, ...]) -> Iterator[Arrive]:
    """Arrivals on the empty barrier of a slot that a running group of wgmma still reads, or that
    was not multiplied from since it was last given back."""
    running: list[int] = []
    held: list[int] = []
    for op in ops:
        if isinstance(op, Multiply):
            running.append(op.slot)
            held.append(op.slot)
        elif isinstance(op, MultiplyWait):
            running = running[-op.pending :] if op.pending else []
        elif isinstance(op, Arrive) and not op.peer:
            slot = int(op.barrier.removeprefix("empty[").removesuffix("]"))
            if slot in running or slot not in held:
                yield op
            if slot in held:
                held.remove(slot)


def parities(ops: tuple[Op, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for op in ops:
        if isinstance(op, Wait):
            found.setdefault(op.barrier, []).append(op.parity)
    return found


# ---- the kernels as they ship


def test_the_cases_reach_every_branch_of_the_kernel() -> None:
    configs = [case.config for case in CASES]
    assert {c.tile_k for c in configs} == {64, 128}
    assert {c.mma_in_flight for c in configs} == {0, 1}
    assert {c.dma_warps for c in configs} == {1, 2}
    assert {(c.math_warpgroups, c.register_split) for c in configs} == {
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
    }
    assert {c.stages for c in configs} == {2, 3, 4, 5}
    assert {(c.split_k > 1, case.last) for c, case in zip(configs, CASES, strict=True)} == {
        (False, True),
        (True, True),
        (True, False),
    }
    assert {(case.plan.c_by_tma, case.config.split_k > 1) for case in CASES} >= {
        (True, False),
        (False, False),
        (False, True),
        (True, True),
    }
    assert any(case.plan.units > case.plan.grid > 1 for case in CASES)
    assert {case.problem.layout for case in CASES} == {"tn", "nn", "nt", "tt"}
    assert {(c.cluster_m, c.cluster_n, c.dma_warps) for c in configs} == {
        (m, n, warps) for m, n in family.CLUSTERS for warps in (1, 2)
    }
    stores = {(c.plan.c_by_tma, c.problem.out == "fp32", c.beta != 0) for c in CASES if c.last}
    assert len(stores) == 8
    assert {piece_width(c) for c in CASES} >= {8, 16, 24, 40, 56, 64, 104}
    for policies in ({c.plan.a.policy for c in CASES}, {c.plan.b.policy for c in CASES}):
        assert policies == set(CachePolicy)
    assert any(case.problem.out != case.problem.dtype == "bf16" for case in CASES)
    assert any(case.problem.m < case.config.tile_m for case in CASES)
    assert any(case.problem.n < case.config.tile_n for case in CASES)
    turns = [len(visits(case)) for case in CASES]
    assert min(turns) >= 3
    assert max(turns) <= 28


@by_case
def test_the_block_is_math_warps_then_dma_warps(case: Case) -> None:
    program = program_of(case)
    math, dma = 4 * case.config.math_warpgroups, case.config.dma_warps
    padded = 4 if case.config.register_split else dma
    assert [w.name for w in program.warps] == [
        *(f"math{i}" for i in range(math)),
        *(f"dma{i}" for i in range(padded)),
    ]
    assert [w.warp for w in program.warps] == list(range(case.plan.threads // 32))
    assert (len(program.math), len(program.dma)) == (math, padded)
    for warp in program.dma[dma:]:
        assert [step.op for step in warp.ring] == []


@by_case
def test_every_barrier_is_initialised_once_before_any_is_used(case: Case) -> None:
    program = program_of(case)
    stages = case.config.stages
    warps = 4 * case.config.math_warpgroups * case.plan.cluster
    assert program.counts == {
        **{f"full[{i}]": case.config.dma_warps for i in range(stages)},
        **{f"empty[{i}]": warps for i in range(stages)},
    }
    inits = steps_of(Init, program)
    assert len(inits) == 2 * stages
    assert {(warp.name, step.count) for warp, step in inits} == {("dma0", 1)}
    for warp in program.warps:
        whole = [s.op for s in warp.steps].index(start_of(case)[0])
        set_up = LetNextLaunchBegin | Init | Fence | WarpBarrier
        assert all(isinstance(s.op, set_up) for s in warp.steps[:whole])
        assert not any(isinstance(s.op, Init) for s in warp.steps[whole:])
    for lane in range(stages):
        start = program.dma[0].thread(lane)[:6]
        assert start == (
            LetNextLaunchBegin(),
            Init(f"full[{lane}]", case.config.dma_warps),
            Init(f"empty[{lane}]", warps),
            INIT_FENCE,
            ASYNC_FENCE,
            WarpBarrier(),
        )


@by_case
def test_whole_warps_do_what_needs_a_whole_warp(case: Case) -> None:
    program = program_of(case)
    for warp, step in program.steps():
        if isinstance(step.op, TOGETHER) and not warp.name.startswith("dma"):
            assert step.lanes == ALL, (warp.name, step)
        if isinstance(step.op, Arrive | Load | Store | StoreCommit | StoreWait):
            remote = isinstance(step.op, Arrive) and step.op.peer
            assert step.lanes == (2 if remote else 1), (warp.name, step)
    for warp in program.warps:
        assert warp.steps[-1].op == Exit()
        assert sum(step.count for step in warp.steps if step.op == Exit()) == 32
        assert all(threads.ops[-1] == Exit() for threads in warp.threads())
        assert sorted(lane for t in warp.threads() for lane in t.lanes) == list(range(32))


@by_case
def test_a_launch_lets_the_next_begin_first_and_touches_memory_after_the_one_before(
    case: Case,
) -> None:
    """Lane by lane, its elements of C among what it touches."""
    program = program_of(case)
    touching = (*OUTSIDE, LoadElements, StoreElements)
    for warp in program.warps:
        assert warp.steps[0] == Step(LetNextLaunchBegin())
        for threads in warp.threads():
            ops = threads.ops
            assert ops.count(LetNextLaunchBegin()) == 1
            touched = [at for at, op in enumerate(ops) if isinstance(op, touching)]
            waits = [at for at, op in enumerate(ops) if op == WaitForLaunchBefore()]
            has_role = warp in program.math or touched
            assert len(waits) == (1 if has_role else 0)
            assert all(at > waits[0] for at in touched)
            # All that is done before is to set up, which takes its time.
            meets = [at for at, op in enumerate(ops) if op in start_of(case)[-1:]]
            assert all(at > meets[0] for at in waits)


def start_of(case: Case) -> tuple[Op, ...]:
    """Where the whole block meets, or the whole cluster."""
    if case.plan.cluster > 1:
        return ClusterArrive(), ClusterWait()
    return (Sync(0, case.plan.threads // 32),)


@by_case
def test_the_whole_block_meets_at_the_start_and_a_cluster_at_its_end_too(case: Case) -> None:
    for warp in program_of(case).warps:
        whole = [
            s
            for s in warp.steps
            if isinstance(s.op, ClusterArrive | ClusterWait) or s.op == start_of(case)[0]
        ]
        assert whole == [Step(op) for op in start_of(case) * case.plan.cluster]
        if case.plan.cluster > 1:
            assert [s.op for s in warp.steps[-3:]] == [ClusterArrive(), ClusterWait(), Exit()]


@by_case
def test_the_dma_warps_load_every_sub_tile_of_every_iteration_in_order(case: Case) -> None:
    program = program_of(case)
    for number in range(case.config.dma_warps):
        assert of(BoxLoad, worker(program.dma[number])) == loads(case, number)
    per_turn = sum(len(boxes(case, operand)[0]) for operand in "ab")
    assert len(steps_of(Load, program)) == len(visits(case)) * per_turn


@by_case
def test_every_turn_expects_the_bytes_that_its_loads_deliver(case: Case) -> None:
    program = program_of(case)
    delivered: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    for warp in program.dma[: case.config.dma_warps]:
        turn, slot = -1, -1
        for step in warp.ring:
            match step.op:
                case Wait(barrier):
                    turn += 1
                    slot = turn % case.config.stages
                    assert barrier == f"empty[{slot}]"
                case Arrive(barrier, tx_bytes):
                    assert barrier == f"full[{slot}]"
                    expected[turn] += tx_bytes
                case Load(into, barrier, bytes_, shared):
                    assert (into, barrier) == (slot, f"full[{slot}]")
                    delivered[turn] += bytes_ * (case.plan.cluster if shared else 1)
                    assert delivered[turn] <= expected[turn]
                case other:
                    pytest.fail(f"{warp.name} does {other}")
    assert delivered == expected
    assert expected == dict.fromkeys(range(len(visits(case))), slot_bytes(case))


@by_case
def test_a_dma_warps_turn_is_wait_then_expect_then_loads(case: Case) -> None:
    for warp in program_of(case).dma[: case.config.dma_warps]:
        kinds = [type(step.op) for step in warp.ring]
        count = len(of(Load, worker(warp))) // len(visits(case))
        assert kinds == [Wait, Arrive, *[BoxLoad] * count] * len(visits(case))


@by_case
def test_parities_alternate_from_the_fresh_barriers_own(case: Case) -> None:
    program = program_of(case)
    turns = Counter(slot for slot, _, _ in visits(case))
    for warp in (*program.math, *program.dma[: case.config.dma_warps]):
        side, first = ("full", 0) if warp.name.startswith("math") else ("empty", 1)
        assert parities(worker(warp)) == {
            f"{side}[{slot}]": [(first + turn) % 2 for turn in range(count)]
            for slot, count in turns.items()
        }


@by_case
def test_a_math_warp_multiplies_each_turn_once_right_after_its_wait(case: Case) -> None:
    for warp in program_of(case).math:
        ring = [step.op for step in warp.ring]
        products = [i for i, op in enumerate(ring) if isinstance(op, Multiply)]
        assert [ring[i] for i in products] == [
            Multiply(slot, fresh=iteration == unit.iterations[0])
            for slot, unit, iteration in visits(case)
        ]
        for i, (slot, _, _) in zip(products, visits(case), strict=True):
            wait = ring[i - 1]
            assert isinstance(wait, Wait)
            assert wait.barrier == f"full[{slot}]"
        assert sum(isinstance(op, Wait) for op in ring) == len(products)


@by_case
def test_a_slot_is_given_back_once_a_turn_by_every_math_warp_and_not_too_early(
    case: Case,
) -> None:
    for warp in program_of(case).math:
        assert of(Arrive, warp.thread(0)) == [
            Arrive(f"empty[{slot}]") for slot, _, _ in visits(case)
        ]
        assert list(early_releases(warp.thread(0))) == []
        assert of(Arrive, warp.thread(1)) == [
            Arrive(f"empty[{slot}]", peer=True)
            for slot, _, _ in visits(case)
            if case.plan.cluster > 1
        ]
        assert not of(Arrive, warp.thread(2))


@by_case
def test_groups_in_flight_are_as_many_as_the_configuration_says(case: Case) -> None:
    in_flight = case.config.mma_in_flight
    for warp in program_of(case).math:
        waits: list[Op] = []
        for unit in units(case):
            waits += [MultiplyWait(in_flight)] * len(unit.iterations)
            waits += [MultiplyWait(0)] * in_flight
        assert of(MultiplyWait, worker(warp)) == waits


@by_case
def test_registers_move_once_where_they_are_split(case: Case) -> None:
    program = program_of(case)
    moved = {warp.name: of(SetRegisters, worker(warp)) for warp in program.warps}
    if not case.config.register_split:
        assert not any(moved.values())
        return
    dma, math = family.ROLE_REGISTERS[case.config.math_warpgroups]
    for warp in program.warps:
        more = warp.name.startswith("math")
        assert moved[warp.name] == [SetRegisters(math if more else dma, more)]


@by_case
def test_pieces_are_staged_and_stored_where_they_belong(case: Case) -> None:
    for warp in program_of(case).math:
        warpgroup = warp.warp // 4
        expected = pieces(case, warpgroup)
        buffers = [(warpgroup, i % 2) for i in range(len(expected))]
        assert of(Stage, warp.thread(7)) == [Stage(*buffer) for buffer in buffers]
        meets = len(expected) * (2 if case.beta else 1)
        assert of(Sync, warp.thread(7)).count(Sync(1 + warpgroup, 4)) == meets
        by_tma = case.plan.c_by_tma
        assert of(Store, warp.thread(0)) == [
            BoxStore(*buffer, row, column)
            for buffer, (row, column) in zip(buffers, expected, strict=True)
            if by_tma and warp.warp % 4 == 0
        ]
        for lane in range(32):
            thread = warp.warp % 4 * 32 + lane
            stores = 0 if by_tma else sum(thread in writers(case, *piece) for piece in expected)
            assert len(of(StoreElements, warp.thread(lane))) == stores
            assert len(of(ReadStaged, warp.thread(lane))) == stores


@by_case
def test_where_c_is_added_its_elements_come_first_then_a_barrier(case: Case) -> None:
    kinds = (LoadElements, Fill, ReadFilled, Stage, Sync)
    for warp in program_of(case).math:
        warpgroup = warp.warp // 4
        expected = pieces(case, warpgroup)
        for lane in (0, 7, 31):
            thread = warp.warp % 4 * 32 + lane
            filled = [c for c in expected if case.beta and thread in writers(case, *c)]
            assert len(of(Fill, warp.thread(lane))) == len(filled)
            assert len(of(LoadElements, warp.thread(lane))) == len(filled)
        assert len(of(ReadFilled, warp.thread(7))) == (len(expected) if case.beta else 0)
        if case.beta:
            ops = [op for op in warp.thread(7) if isinstance(op, kinds)]
            own = Sync(1 + warpgroup, 4)
            for at, op in enumerate(ops):
                if isinstance(op, ReadFilled):
                    assert ops[at - 1] == own
                    assert ops[at + 1] == Stage(op.warpgroup, op.buffer)


@by_case
def test_a_staging_buffer_is_refilled_only_once_its_store_has_read_it(case: Case) -> None:
    for warp in program_of(case).math[::4]:
        unread: set[tuple[int, int]] = set()
        known_read: set[tuple[int, int]] = set()  # by the storing thread; others at the barrier
        fenced = False
        for op in warp.thread(0):
            match op:
                case Fill(warpgroup, buffer) | Stage(warpgroup, buffer):
                    assert (warpgroup, buffer) not in unread | known_read
                    fenced = False
                case Fence() if op == ASYNC_FENCE:
                    fenced = True
                case Store(warpgroup, buffer):
                    assert fenced
                    unread.add((warpgroup, buffer))
                case StoreWait(0):
                    known_read |= unread
                    unread = set()
                case Sync():
                    known_read = set()
        assert not unread


@by_case
def test_split_k_counts_each_tile_between_its_partials_and_its_sum(case: Case) -> None:
    if case.config.split_k == 1:
        kinds = StorePartial, LoadPartial, CountAt, StoreFlag, LoadFlag
        assert not any(steps_of(kind, program_of(case)) for kind in kinds)
        return
    everybody, gpu = Sync(15, 4 * case.config.math_warpgroups), GPU_FENCE
    for warp in program_of(case).math:
        for lane in (0, 1):
            counts = warp.warp == lane == 0
            expected: list[Op] = []
            for unit in units(case):
                expected += [StorePartial(), gpu, everybody]
                if counts:
                    expected += [gpu, CountAt(case.config.split_k - 1, unit.tile), gpu]
                    expected += [StoreFlag()]
                expected += [everybody, LoadFlag(case.last)]
                expected += [gpu, LoadPartial()] if case.last else []
            kinds = StorePartial, LoadPartial, CountAt, StoreFlag, LoadFlag
            assert [
                op for op in warp.thread(lane) if isinstance(op, kinds) or op in (everybody, gpu)
            ] == expected


@pytest.mark.parametrize("case", [CASES[1], CASES[4]], ids=lambda case: case.name)
def test_any_lane_may_be_elected(case: Case) -> None:
    other = read(ptx_of(case.key), case, elected=31)
    program = program_of(case)
    assert other.math == program.math
    for one, two in zip(program.dma, other.dma, strict=True):
        assert [step.op for step in one.ring] == [step.op for step in two.ring]
        assert all(step.lanes == 1 << 31 for step in two.ring)


@pytest.mark.parametrize("case", [FLIGHT, ADDED], ids=lambda case: case.name)
def test_every_cta_of_a_launch_together_covers_c(case: Case) -> None:
    stored: Counter[tuple[int, int]] = Counter()
    for cta in range(case.plan.grid):
        for _, step in steps_of(Store, program_of(replace(case, cta=cta))):
            stored[step.op.row, step.op.column] += 1
    rows = range(0, case.problem.m, 64)
    columns = range(0, case.problem.n, piece_width(case))
    assert stored == {(row, column): 1 for row in rows for column in columns}


def test_both_ctas_of_a_cluster_load_a_shared_tile_in_halves() -> None:
    halves = [
        {
            (step.op.line, step.op.row)
            for _, step in steps_of(BoxLoad, program_of(case))
            if step.op.operand == "b"
        }
        for case in (replace(ADDED, cta=0), ADDED)
    ]
    assert halves == [{(0, 0), (0, 48)}, {(24, 24), (24, 72)}]


def test_the_ptx_is_the_one_the_cubin_is_made_from() -> None:
    key = SMALL.key
    real = nvrtc.ptx(f"{kernel_id(key)}.cu", instantiation(key), headers(), options())
    assert real == ptx_of(key)


def test_a_program_that_does_not_compile_names_the_error() -> None:
    with pytest.raises(CompileFailed, match="error"):
        nvrtc.ptx("bad.cu", "int x = ;", {}, options("compute_90a"))


def test_a_cta_that_is_not_launched_has_no_program() -> None:
    with pytest.raises(PtxError, match="not one of the launch's 1"):
        barrier_program(ptx_of(SMALL.key), SMALL.plan, 1)


def test_a_launch_of_another_kernel_traps() -> None:
    ptx = ptx_of(SMALL.key)
    with pytest.raises(PtxError, match="refuses this launch"):
        barrier_program(ptx, replace(SMALL.plan, threads=SMALL.plan.threads + 32), 0)


def test_a_launch_whose_layout_is_another_is_refused() -> None:
    ptx = ptx_of(SMALL.key)
    plan = replace(SMALL.plan, smem_bytes=SMALL.plan.smem_bytes + 16)
    with pytest.raises(PtxError, match="the layout ends at"):
        barrier_program(ptx, plan, 0)


# ---- planted errors


RELEASE = "if (lane == 0) ptx::barrier_arrive(empty);"
NOT_IN_FLIGHT = "release(args, memory.empty(cursor.slot));"
GROUP_WAIT = "wgmma::wait<Shape::kMmaInFlight ? 1 : 0>();"
EMPTY_WAIT = "ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase ^ 1);"
FULL_WAIT = "ptx::barrier_wait(memory.full(cursor.slot), cursor.phase);"
EXPECT = "ptx::barrier_arrive_expect(full, tx_bytes);"
MATH_START = "  float acc[Shape::kBlocks][Shape::kAccumulators];\n#pragma unroll 1"
LOAD_B = "memory.slot_b(cursor.slot), map_b, full,"
B_STEP = "? step / kSteps * Shape::kSubtileBBytes + step % kSteps * B::kStepBytes"


def planted(old: str, new: str, case: Case = SMALL, *, count: int = 1) -> BarrierProgram:
    """The program of a kernel in whose text ``old`` is ``new``, ``count`` times in all."""
    text = {name: header.replace(old, new) for name, header in headers().items()}
    assert sum(header.count(old) for header in headers().values()) == count
    ptx = kernel_ptx(case.key, text)
    return read(ptx, case)


def test_a_wrong_init_count_is_seen() -> None:
    old = "ptx::barrier_init(memory.empty(lane), Shape::kMathWarps * args.cluster_m"
    program = planted(old, old.replace("kMathWarps", "kMathWarpgroups"))
    assert program.counts["empty[0]"] == 1
    assert program_of(SMALL).counts["empty[0]"] == 4


def test_a_missing_arrival_is_seen() -> None:
    program = planted(RELEASE, "")
    assert releases(program) == []
    assert len(releases(program_of(SMALL))) == 4 * len(visits(SMALL))


def test_a_missing_last_arrival_of_a_unit_is_seen() -> None:
    old = "      wgmma::wait<0>();\n      release(args, held);"
    program = planted(old, "      wgmma::wait<0>();", FLIGHT)
    for warp in program.math:
        assert len(of(Arrive, worker(warp))) == len(visits(FLIGHT)) - len(units(FLIGHT))


@pytest.mark.parametrize(
    ("wait", "side", "role"), [(EMPTY_WAIT, "empty", "dma0"), (FULL_WAIT, "full", "math0")]
)
def test_a_phase_that_is_off_by_one_is_seen(wait: str, side: str, role: str) -> None:
    wrong = wait.replace(" ^ 1)", ")") if side == "empty" else wait.replace("phase)", "phase ^ 1)")

    def first(program: BarrierProgram) -> int:
        warp = next(warp for warp in program.warps if warp.name == role)
        return parities(worker(warp))[f"{side}[0]"][0]

    assert first(planted(wait, wrong)) == 1 - first(program_of(SMALL))


def test_a_phase_that_never_turns_is_seen() -> None:
    program = planted("phase ^= 1;", "")
    assert parities(worker(program.math[0]))["full[0]"] == [0] * 8


def test_a_block_barrier_in_one_role_is_seen() -> None:
    program = planted(MATH_START, f"__syncthreads();\n{MATH_START}")
    meets = {
        warp.name: sum(step.op == Sync(0, SMALL.plan.threads // 32) for step in warp.steps)
        for warp in program.warps
    }
    assert meets == {"math0": 2, "math1": 2, "math2": 2, "math3": 2, "dma0": 1}


def test_a_block_barrier_of_one_lane_can_not_be_run() -> None:
    with pytest.raises(PtxError, match=r"1 of the 32 lanes of warp 4 .* never come: .*bar\.sync"):
        planted(EXPECT, f"{EXPECT} __syncthreads();")


def test_an_arrival_of_a_whole_warp_is_thirty_two_arrivals() -> None:
    program = planted(RELEASE, RELEASE.replace("if (lane == 0) ", ""))
    assert {step.count for step in releases(program)} == {32}
    assert {step.count for step in releases(program_of(SMALL))} == {1}


def test_a_whole_dma_warp_that_loads_is_seen() -> None:
    program = planted("else if (ptx::elect_one())", "else")
    assert {step.count for _, step in steps_of(Load, program)} == {32}


def test_a_release_before_the_product_is_complete_is_seen() -> None:
    program = planted(GROUP_WAIT, "wgmma::wait<1>();")
    turns = visits(SMALL)
    assert len(list(early_releases(worker(program.math[0])))) == len(turns)
    assert list(early_releases(worker(program_of(SMALL).math[0]))) == []


def test_a_release_of_the_slot_in_flight_is_seen() -> None:
    program = planted("if (!first) release(args, held);", NOT_IN_FLIGHT, FLIGHT)
    early = list(early_releases(worker(program.math[0])))
    assert Arrive("empty[0]") in early
    assert len(early) >= len(visits(FLIGHT))


def test_a_slot_that_is_not_given_back_to_the_peer_is_seen() -> None:
    old = "if (is_clustered(args) && lane == 1)"
    assert of(Arrive, planted(old, "if (false)", ADDED).math[0].thread(1)) == []


def test_a_load_for_one_cta_of_what_both_share_is_seen() -> None:
    with pytest.raises(PtxError, match="loads of b into slot 0 do not make up its tile"):
        planted("} else if constexpr (kShared) {", "} else if constexpr (false) {", ADDED)


def test_a_load_for_a_cta_that_is_not_in_the_cluster_is_an_error() -> None:
    with pytest.raises(PtxError, match="goes to CTAs 0b111, not the cluster's"):
        planted("(1 << kClusterMax) - 1);", "7);", ADDED)


def test_a_half_of_a_tile_that_is_loaded_twice_is_an_error() -> None:
    with pytest.raises(PtxError, match="loads of b into slot 0 do not make up its tile"):
        planted("kSharedB ? schedule.rank() * args.b_box_rows : 0", "0", ADDED)


def test_a_product_that_does_not_wait_is_seen() -> None:
    program = planted(FULL_WAIT, "")
    for warp in program.math:
        assert of(Wait, worker(warp)) == []
        assert len(of(Multiply, worker(warp))) == len(visits(SMALL))


def test_a_staging_buffer_refilled_without_a_wait_is_seen() -> None:
    old = "  if (thread == 0) ptx::tma_store_wait_read();\n  __syncwarp();\n"
    assert of(StoreWait, planted(old, "  __syncwarp();\n").math[0].thread(0)) == [StoreWait(0)]
    stored = len(pieces(SMALL, 0))
    assert of(StoreWait, program_of(SMALL).math[0].thread(0)) == [StoreWait(0)] * (stored + 1)


def test_bytes_that_no_load_brings_are_seen() -> None:
    program = planted(EXPECT, EXPECT.replace("tx_bytes", "tx_bytes + 16"))
    (bytes_,) = {step.op.tx_bytes for _, step in steps_of(Arrive, program) if step.op.tx_bytes}
    assert bytes_ == slot_bytes(SMALL) + 16


def test_a_load_told_to_another_slots_barrier_is_seen() -> None:
    program = planted(LOAD_B, LOAD_B.replace("full,", "memory.full(0),"))
    found = {step.op.barrier for _, step in steps_of(BoxLoad, program) if step.op.operand == "b"}
    assert found == {"full[0]"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (LOAD_B, LOAD_B.replace("slot_b", "slot_a"), "fills operand a from another's map"),
        (LOAD_B, LOAD_B.replace("cursor.slot)", "cursor.slot) + 128"), "that the swizzle starts"),
        (LOAD_B, LOAD_B.replace("cursor.slot)", "cursor.slot + 2)"), "is not a slot"),
        (LOAD_B, LOAD_B.replace("map_b", "map_a"), "fills operand b from another's map"),
        (RELEASE, RELEASE.replace("(empty)", "(empty + 4)"), "is not a barrier"),
        (NOT_IN_FLIGHT, NOT_IN_FLIGHT.replace("empty(", "flag() + 0 * ("), "is not a barrier"),
        ("descriptor(memory.slot_b(slot))", "descriptor(memory.slot_b(0))", "multiplies slot 1"),
        ("descriptor(memory.slot_b(slot))", "descriptor(memory.slot_a(slot))", "operand b"),
        (B_STEP, f"{B_STEP} + 16", "step along k"),
        ("kSwizzle << 62", "u64{2} << 62", "has another layout"),
        ("issue<!Shape::kAKMajor", "issue<1 ^ !Shape::kAKMajor", "transposes an operand"),
        ("  wgmma::fence();\n", "", r"no wgmma\.fence"),
        ("step < Shape::kTileK / static_cast<int>(wgmma::kDepth)", "step < 3", "each block and"),
        ("step == 0 ? add : 1", "step != 0 ? add : 1", "drops a product"),
        ("  wgmma::commit();\n}", "}", "wait_group.*not committed"),
        ("while (!complete)", "while (false)", "not repeated"),
        ("while (!complete)", "while ((parity ^= 1), !complete)", "not the wait that failed"),
    ],
)
def test_what_no_program_can_say_is_an_error(old: str, new: str, words: str) -> None:
    with pytest.raises(PtxError, match=words):
        planted(old, new)


POLICY_B = "first_b, k, unit.column, policy_b);"
ODD = replace(next(c for c in CASES if piece_width(c) == 24 and c.plan.c_by_tma), last=True)
ADDED_ODD = next(case for case in CASES if piece_width(case) == 104)
SWIZZLED = next(case for case in CASES if piece_width(case) == 64 and case.plan.c_by_tma)
WIDE = next(case for case in CASES if case.problem.out == "fp32" and case.plan.c_by_tma)
ELEMENTS = CASES[1]
IS_SWIZZLED = "kSwizzled = kQuads == 8 || kQuads == 4 || kQuads == 2;"
ROW_ADDRESS = "const u32 row_address = staging + row * Piece::kRowBytes;"
LAST_QUAD = "row_address + (kLast ^ swizzle) * 16, beta);"
GOES_ON = "is not where its row of 48 bytes goes on|own rows"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (POLICY_B, POLICY_B.replace("policy_b", "policy_a"), "operand b .* policy, EVICT_LAST"),
        ("cache_policy(args.b_policy)", "cache_policy(args.a_policy)", "operand b .* EVICT_LAST"),
        ("policy == kEvictFirst ?", "policy != kEvictFirst ?", "operand . .* EVICT_"),
        ("evict_first.b64 %0, 1.0;", "evict_first.b64 %0, 0.5;", "no policy for all"),
    ],
)
def test_a_load_with_another_cache_policy_is_an_error(old: str, new: str, words: str) -> None:
    assert SMALL.plan.a.policy is CachePolicy.EVICT_FIRST
    assert SMALL.plan.b.policy is CachePolicy.EVICT_LAST
    with pytest.raises(PtxError, match=words):
        planted(old, new)


@pytest.mark.parametrize(
    ("old", "new", "words", "case"),
    [
        # Rows that run into one another; rows that TMA takes from elsewhere.
        (IS_SWIZZLED, "kSwizzled = true;", GOES_ON, ODD),
        (IS_SWIZZLED, "kSwizzled = false;", "is not where its row of 128 bytes", SWIZZLED),
        (ROW_ADDRESS, ROW_ADDRESS.replace("RowBytes", "RowBytes - row * 16"), GOES_ON, ODD),
        (ROW_ADDRESS, ROW_ADDRESS.replace("RowBytes", "RowBytes + row * 16"), "own rows", ODD),
        # Pieces of an odd number of quads end with one of its own.
        (LAST_QUAD, LAST_QUAD.replace("kLast", "(kLast - 1)"), GOES_ON, ODD),
        ("if constexpr (Piece::kQuads % 2 == 1) {", "if constexpr (false) {", "unfinished", ODD),
        ("quad + 1 < Piece::kQuads", "quad + 3 < Piece::kQuads", "208 bytes goes on", ADDED_ODD),
        ("for (int half = 0; half < 2; ++half)", "for (int half = 0; half < 1; ++half)",
         "unfinished", WIDE),
        # Elements of C from and to elsewhere.
        ("Piece::address(staging, r, at)", "Piece::address(staging, r, at ^ 1)", "belongs",
         ELEMENTS),
        ("Piece::address(staging, r, at)", "Piece::address(staging, r ^ 1, at)", "belongs",
         ADDED_ODD),
        ("static_cast<i64>(row) * args.ldc", "static_cast<i64>(row + 1) * args.ldc", "C|belongs",
         ELEMENTS),
    ],
)  # fmt: skip
def test_a_piece_of_c_that_is_staged_elsewhere_is_an_error(
    old: str, new: str, words: str, case: Case
) -> None:
    with pytest.raises(PtxError, match=words):
        planted(old, new, case)


TRANSPOSED = next(case for case in CASES if case.problem.layout == "nt")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("KMajor ? 1 : kNext >> 4", "1", "has another layout"),
        ("kDepth * kRowBytes;", "kDepth * kRowBytes / 2;", "step along k"),
        (": step * A::kStepBytes", ": step * A::kStepBytes * 2", "multiplies slot 0 step"),
        ("kAKMajor ? kBlockBytes : Shape::kSubtileABytes", "kAKMajor ? 0 : 0", "reads block 0"),
        ("issue<!Shape::kAKMajor, !Shape::kBKMajor>", "issue<1, 0>", "transposes an operand"),
    ],
)
def test_what_no_program_can_say_of_transposed_operands_is_an_error(
    old: str, new: str, words: str
) -> None:
    with pytest.raises(PtxError, match=words):
        planted(old, new, TRANSPOSED)
