"""The protocol's description: every order of a few iterations, and all iterations by induction."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from solver.errors import ProofError
from solver.ring.cta import Cta
from solver.ring.epilogue import Epilogue, Unit
from solver.ring.explore import (
    TooManyStates,
    explore,
    explore_cta,
    explore_epilogue,
    explore_ring,
    search,
)
from solver.ring.machine import Machine
from solver.ring.program import Copy, Ring
from solver.ring.split import explore_split, explore_tile
from solver.ring.state import Fault, Warps, parties
from solver.ring.steps import (
    ASYNC_FENCE,
    GPU_FENCE,
    INIT_FENCE,
    Arrive,
    ClusterArrive,
    ClusterWait,
    CountTile,
    Fill,
    Init,
    Load,
    Multiply,
    MultiplyWait,
    Op,
    Program,
    ReadStaged,
    Stage,
    Step,
    Store,
    StoreCommit,
    StoreFlag,
    StoreWait,
    Sync,
    Wait,
)
from solver.ring.table import barrier_table
from solver.z3_ring import prove_ring, prove_split

A, B, SHARED = Copy(4096), Copy(2048), Copy(1024, shared=True)
ONE, TWO = ((A, B),), ((A,), (B,))
# Alone: one or two DMA warps. In a cluster: A or B shared, by the one DMA warp or one of two.
LOADS = [(1, ONE), (1, TWO), (2, ((A, SHARED),)), (2, ((A,), (SHARED,))), (2, ((SHARED,), (B,)))]
RINGS = [
    Ring(slots, warpgroups, loads, in_flight, ctas)
    for slots in (2, 3)
    for warpgroups in (1, 3)
    for ctas, loads in LOADS
    for in_flight in (False, True)
    if slots > in_flight + 1 and not (ctas > 1 and len(loads) > 1 and slots > 2)
]
EPILOGUES = [
    Epilogue(splits, by_tma, adds)
    for splits in (1, 2)
    for by_tma in (False, True)
    for adds in (False, True)
]
Programs = dict[str, Program]
Change = Callable[[list[Step]], Sequence[Step]]


def iterations(*counts: int) -> list[Unit]:
    return [Unit(count) for count in counts]


# ---- every order of a few iterations


@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("units", [(1,), (3, 1)], ids=str)
def test_every_order_of_a_few_iterations_is_safe_and_ends(
    ring: Ring, units: tuple[int, ...]
) -> None:
    states = explore_cta(Cta(ring), iterations(*units))
    assert not isinstance(states, Fault), states
    assert states > sum(units)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("pieces", [(3, 3), (1, 0), (2, 5)], ids=str)
def test_every_order_of_an_epilogue_is_safe_and_ends(
    epilogue: Epilogue, pieces: tuple[int, ...]
) -> None:
    cta = Cta(Ring(2, 2, ONE, False), epilogue)
    units = [Unit(1, pieces), Unit(1, pieces[::-1], last=False), Unit(1, pieces)]
    states = explore_epilogue(cta.programs(units))
    assert not isinstance(states, Fault), states
    assert states > sum(pieces)


@pytest.mark.parametrize("splits", [2, 3, 4])
@pytest.mark.parametrize("warpgroups", [1, 3])
def test_in_every_order_one_cta_of_a_tile_sums_it(splits: int, warpgroups: int) -> None:
    states = explore_split(Cta(Ring(2, warpgroups, ONE, False), Epilogue(splits)), splits)
    assert not isinstance(states, Fault), states


def test_idle_warps_meet_the_others_at_the_start_and_at_the_end() -> None:
    for ctas, loads in LOADS[1:3]:
        cta = Cta(Ring(2, 2, loads, False, ctas), idle_warps=2)
        assert not isinstance(explore_cta(cta, iterations(3)), Fault)
        assert len(cta.programs(iterations(3))) == 8 + len(loads) + 2


# ---- all iterations


@pytest.mark.parametrize("warpgroups", [1, 2, 3])
@pytest.mark.parametrize(("ctas", "loads"), LOADS, ids=str)
@pytest.mark.parametrize("in_flight", [False, True])
def test_all_iterations_are_safe_and_never_stuck_by_induction(
    warpgroups: int, ctas: int, loads: tuple[tuple[Copy, ...], ...], in_flight: bool
) -> None:
    lemmas = prove_ring(Ring(4, warpgroups, loads, in_flight, ctas))
    assert [lemma.name for lemma in lemmas] == [
        "start",
        "waits",
        "arrivals",
        "bytes",
        "loads",
        "reads",
        "progress",
    ]


def test_any_number_of_splits_has_one_last_by_induction() -> None:
    assert prove_split().name == "split"


@dataclass(frozen=True, slots=True)
class EmptyOffByOne(Ring):
    def freed_parity(self, visit: Any) -> Any:
        return visit % 2


@dataclass(frozen=True, slots=True)
class FullOffByOne(Ring):
    def filled_parity(self, visit: Any) -> Any:
        return (visit + 1) % 2


@dataclass(frozen=True, slots=True)
class FreesItsOwnOnly(Ring):
    def frees(self, rank: int) -> bool:
        return rank == 0


@dataclass(frozen=True, slots=True)
class FreesItsPeerOnly(Ring):
    def frees(self, rank: int) -> bool:
        return rank == 1


@pytest.mark.parametrize(("ctas", "loads"), LOADS[1:3], ids=["alone", "cluster"])
@pytest.mark.parametrize("planted", [EmptyOffByOne, FullOffByOne])
def test_a_phase_off_by_one_is_refuted_by_both(
    planted: type[Ring], ctas: int, loads: tuple[tuple[Copy, ...], ...]
) -> None:
    ring = planted(3, 1, loads, False, ctas)
    assert isinstance(explore_cta(Cta(ring), iterations(5)), Fault)
    with pytest.raises(ProofError, match=r"ring protocol: .* does not hold: "):
        prove_ring(ring)


@pytest.mark.parametrize("planted", [FreesItsOwnOnly, FreesItsPeerOnly])
def test_a_cluster_that_does_not_give_slots_back_to_both_is_refuted_by_both(
    planted: type[Ring],
) -> None:
    ring = planted(2, 1, ((A, SHARED),), False, 2)
    fault = explore_cta(Cta(ring), iterations(4))
    assert isinstance(fault, Fault)
    with pytest.raises(ProofError, match=r"ring protocol: .* does not hold: "):
        prove_ring(ring)


def test_a_ring_that_is_not_deeper_than_its_lag_is_stuck() -> None:
    fault = explore_cta(Cta(Ring(1, 1, ONE, True)), iterations(3))
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"
    assert "wait for full[0]" in fault.words
    assert not isinstance(explore_cta(Cta(Ring(1, 1, ONE, False)), iterations(3)), Fault)


# ---- planted errors


def without(kind: type[Op], at: int) -> Change:
    """Leave out the at-th step of a kind."""

    def change(steps: list[Step]) -> list[Step]:
        found = [i for i, step in enumerate(steps) if isinstance(step.op, kind)]
        return [step for i, step in enumerate(steps) if i != found[at]]

    return change


def without_every(op: Op) -> Change:
    return lambda steps: [step for step in steps if step.op != op]


def swapped(first: type[Op], second: type[Op]) -> Change:
    """Exchange neighbouring steps of two kinds."""

    def change(steps: list[Step]) -> list[Step]:
        for i in range(len(steps) - 1):
            if isinstance(steps[i].op, first) and isinstance(steps[i + 1].op, second):
                steps[i], steps[i + 1] = steps[i + 1], steps[i]
        return steps

    return change


def half(steps: list[Step]) -> Sequence[Step]:
    return steps[: len(steps) // 2]


def twice(steps: list[Step]) -> Sequence[Step]:
    return [x for step in steps for x in [step] * (2 if isinstance(step.op, Arrive) else 1)]


def by_one_lane(op: Op) -> Change:
    return lambda steps: [replace(s, lanes=1) if s.op == op else s for s in steps]


def adding(steps: list[Step]) -> Sequence[Step]:
    """Every unit's first group is added to what the accumulators have."""
    return [
        replace(s, op=replace(s.op, fresh=False)) if isinstance(s.op, Multiply) else s
        for s in steps
    ]


def always_fresh(steps: list[Step]) -> Sequence[Step]:
    return [
        replace(s, op=replace(s.op, fresh=True)) if isinstance(s.op, Multiply) else s for s in steps
    ]


def in_one_buffer(steps: list[Step]) -> Sequence[Step]:
    return [
        replace(step, op=replace(step.op, buffer=0))
        if isinstance(step.op, Stage | ReadStaged)
        else step
        for step in steps
    ]


def fewer_bytes(steps: list[Step]) -> Sequence[Step]:
    return [
        replace(step, op=replace(step.op, tx_bytes=8)) if isinstance(step.op, Arrive) else step
        for step in steps
    ]


def changed(programs: Programs, change: Change, who: str) -> Programs:
    """The programs with one warp's changed, or those of all MATH warps."""
    return {
        name: tuple(change(list(steps))) if who in (name, name.rstrip("0123456789")) else steps
        for name, steps in programs.items()
    }


def refuted(outcome: Fault | int, kinds: set[str]) -> None:
    assert isinstance(outcome, Fault)
    assert outcome.kind in kinds, outcome
    assert outcome.trace
    text = str(outcome)
    assert text.startswith(f"{outcome.kind}: {outcome.words}\n  1. ")
    assert text.count("\n") == len(outcome.trace)


RING = Ring(2, 1, ONE, False)
CLUSTER = Ring(2, 1, ((A, SHARED),), False, 2)
RING_PLANTS = [
    (without(Arrive, 1), "math0", {"deadlock"}),
    (without(Arrive, 1), "dma0", {"deadlock", "read before written"}),
    (without(Load, 2), "dma0", {"deadlock", "read before written"}),
    (without(Wait, 2), "dma0", {"too many arrivals"}),
    (without(Wait, 2), "math0", {"read before written"}),
    (
        swapped(MultiplyWait, Arrive),
        "math0",
        {"overwritten while read", "overwritten before read"},
    ),
    (lambda steps: [Step(Sync(0, 5)), *steps], "math0", {"deadlock"}),
    (half, "math0", {"deadlock", "overwritten before read", "left too early"}),
    (half, "dma0", {"deadlock"}),
    (twice, "math0", {"too many arrivals", "overwritten before read", "overwritten while read"}),
    (fewer_bytes, "dma0", {"deadlock", "read before written"}),
    (without(Init, 0), "dma0", {"used before it is initialised"}),
    (without_every(INIT_FENCE), "dma0", {"initialised without a fence"}),
    (without_every(ASYNC_FENCE), "dma0", {"initialised without a fence"}),
    (by_one_lane(INIT_FENCE), "dma0", {"initialised without a fence"}),
    (adding, "math0", {"wrong sum"}),
    (always_fresh, "math2", {"wrong sum"}),
    (without(Multiply, 3), "math0", {"wrong sum"}),
    (
        lambda steps: [*steps[:1], steps[0], *steps[1:]],
        "dma0",
        {"initialised twice"},
    ),
]


@pytest.mark.parametrize(("change", "who", "kinds"), RING_PLANTS)
def test_an_error_planted_in_the_ring_is_refuted_with_the_steps_that_lead_to_it(
    change: Change, who: str, kinds: set[str]
) -> None:
    programs = changed(Cta(RING).programs(iterations(3, 2)), change, who)
    refuted(explore([programs], RING.copies, (3, 2)), kinds)


def test_sums_are_looked_at_where_the_units_are_told() -> None:
    programs = changed(Cta(RING).programs(iterations(3, 2)), always_fresh, "math0")
    assert not isinstance(explore([programs], RING.copies), Fault)
    fault = explore([programs], RING.copies, (3, 2))
    assert isinstance(fault, Fault)
    assert fault.words == "slot 1, by math0, drops the sums of its own unit"
    short = explore([Cta(RING).programs(iterations(3, 2))], RING.copies, (3, 3))
    assert isinstance(short, Fault)
    assert short.words == "math0 has summed 5 slots, not 6"


CLUSTER_PLANTS = [
    # Without the cluster's barrier at the end, at the start.
    (lambda steps: steps[:-2], "", {"left too early"}),
    (
        lambda steps: [s for s in steps if not isinstance(s.op, ClusterArrive | ClusterWait)],
        "",
        {"used before it is initialised"},
    ),
    (without_every(ClusterWait()), "", {"used before it is initialised"}),
    (
        lambda steps: [s for s in steps if not (isinstance(s.op, Arrive) and s.op.peer)],
        "math",
        {"deadlock"},
    ),
    # The peer's share is not expected; or counted on, but never sent.
    (
        lambda steps: [
            replace(s, op=replace(s.op, tx_bytes=4096 + 1024)) if isinstance(s.op, Arrive) else s
            for s in steps
        ],
        "dma",
        {"read before written", "deadlock"},
    ),
    (
        lambda steps: [
            replace(s, op=replace(s.op, shared=False)) if isinstance(s.op, Load) else s
            for s in steps
        ],
        "dma",
        {"deadlock"},
    ),
    (
        lambda steps: [
            replace(s, op=Init(s.op.barrier, 4 if s.op.count > 4 else s.op.count))
            if isinstance(s.op, Init)
            else s
            for s in steps
        ],
        "dma",
        {"overwritten while read", "overwritten before read", "too many arrivals"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "who", "kinds"), CLUSTER_PLANTS)
def test_an_error_planted_in_a_cluster_is_refuted(
    change: Change, who: str, kinds: set[str]
) -> None:
    programs = Cta(CLUSTER).programs(iterations(3))
    for name in ("math", "dma"):
        if who in ("", name):
            programs = changed(programs, change, name)
    refuted(explore([programs] * 2, CLUSTER.copies), kinds)


def test_one_cta_of_a_cluster_that_leaves_early_is_refuted() -> None:
    whole = Cta(CLUSTER).programs(iterations(2))
    early = {name: steps[:-2] for name, steps in whole.items()}
    for ctas in ([early, whole], [whole, early]):
        refuted(explore(ctas, CLUSTER.copies), {"left too early"})


EPILOGUE_PLANTS = [
    (Epilogue(), without(Sync, 1), "math1", {"overwritten while read"}),
    (Epilogue(), without_every(Sync(1, 4)), "math", {"read before written"}),
    (Epilogue(), without_every(ASYNC_FENCE), "math", {"read before written"}),
    (Epilogue(), by_one_lane(ASYNC_FENCE), "math", {"read before written"}),
    (Epilogue(), without(StoreWait, 1), "math0", {"overwritten while read"}),
    (Epilogue(), without(StoreWait, -1), "math0", {"left too early"}),
    (Epilogue(), without(StoreCommit, 1), "math0", {"overwritten while read"}),
    (Epilogue(), swapped(Sync, Store), "math0", {"read before written"}),
    (Epilogue(), lambda s: [*s[:3], Step(Sync(0, 5)), *s[3:]], "math2", {"deadlock"}),
    (Epilogue(by_tma=False), without_every(Sync(1, 4)), "math", {"read before written"}),
    (Epilogue(by_tma=False), without(Stage, 1), "math3", {"read before written"}),
    (
        Epilogue(by_tma=False),
        in_one_buffer,
        "math",
        {"overwritten before read"},
    ),
    (Epilogue(adds=True), without(Sync, 1), "math", {"read before written"}),
    (Epilogue(adds=True), without(Sync, 2), "math", {"read before written"}),
    (Epilogue(adds=True), without(Fill, 1), "math2", {"read before written"}),
    (Epilogue(2), without(Sync, 2), "math", {"read before written"}),
    (Epilogue(2), without_every(Sync(15, 4)), "math", {"read before written"}),
    (Epilogue(2), without(StoreFlag, 0), "math0", {"read before written"}),
    (Epilogue(2), without(Sync, 1), "math3", {"read before written"}),
    (Epilogue(2), without(Sync, -1), "math3", {"deadlock"}),
]  # fmt: skip


@pytest.mark.parametrize(("epilogue", "change", "who", "kinds"), EPILOGUE_PLANTS)
def test_an_error_planted_in_the_epilogue_is_refuted(
    epilogue: Epilogue, change: Change, who: str, kinds: set[str]
) -> None:
    programs = Cta(RING, epilogue).programs([Unit(1, (3,)), Unit(1, (2,))])
    refuted(explore_epilogue(changed(programs, change, who)), kinds)


SPLIT_PLANTS = [
    (without(Sync, 0), "math", {"read before written"}),
    (without(Sync, 1), "math", {"read before written"}),
    (without(Sync, 1), "math1", {"read before written"}),
    (lambda s: [*s, Step(Sync(15, 4))], "math1", {"deadlock"}),
    # Before the count: the other warps' sums are not published; after it: not taken.
    (lambda s: [x for x in s if not (x.op == GPU_FENCE and x.lanes == 1)], "math0",
     {"read before written"}),
    (without_every(GPU_FENCE), "math", {"read before written"}),
    (without(CountTile, 0), "math0", {"no sum", "read before written", "deadlock"}),
    (lambda s: [Step(CountTile(0)) if isinstance(x.op, CountTile) else x for x in s], "math0",
     {"summed twice", "read before written"}),
    (lambda s: [Step(CountTile(5)) if isinstance(x.op, CountTile) else x for x in s], "math0",
     {"no sum"}),
]  # fmt: skip


@pytest.mark.parametrize(("change", "who", "kinds"), SPLIT_PLANTS)
def test_an_error_planted_in_split_k_is_refuted(change: Change, who: str, kinds: set[str]) -> None:
    cta = Cta(RING, Epilogue(3))
    # The start's barrier is no part of it.
    both = [
        {name: steps[steps.index(Step(Sync(0, 5))) + 1 :] for name, steps in programs.items()}
        for programs in (cta.programs([Unit(1, (), last)]) for last in (True, False))
    ]
    refuted(explore_tile([[changed(p, change, who) for p in both]] * 3), kinds)


def test_a_count_that_is_wrong_is_refuted() -> None:
    programs = Cta(RING).programs(iterations(3, 2))
    for barrier, change in (("empty[0]", 1), ("full[1]", 1), ("empty[1]", -1)):

        def wrong(steps: list[Step], barrier: str = barrier, change: int = change) -> list[Step]:
            return [
                replace(s, op=Init(barrier, s.op.count + change))
                if isinstance(s.op, Init) and s.op.barrier == barrier
                else s
                for s in steps
            ]

        outcome = explore_ring([changed(programs, wrong, "dma0")], RING.copies)
        assert isinstance(outcome, Fault), barrier


def test_warps_at_a_named_barrier_leave_together() -> None:
    steps = (Step(Sync(3, 3)),)
    both = [Warps("one", steps), Warps("two others", steps, 2)]
    assert search(Machine(both, 1)) == 2
    fault = search(Machine(both[:1], 1))
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"


def test_a_named_barrier_lets_any_warps_pass_that_are_as_many_as_it_takes() -> None:
    steps = (Step(Sync(3, 2)),)
    one, two, three = (Warps(name, steps) for name in ("one", "two", "three"))
    fault = search(Machine([one, two, three], 1))
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"
    assert fault.words == "three can't wait for 2 warps at barrier 3"
    assert fault.trace == ("one, two: leave barrier 3",)
    assert list(parties(0, {0: 1, 1: 1, 2: 1}, 2)) == [(0, 1), (0, 2)]
    assert list(parties(1, {0: 1, 1: 1, 2: 1}, 2)) == [(1, 2)]
    assert list(parties(0, {0: 2, 1: 3}, 4)) == []
    four = Warps("four", steps)
    assert not isinstance(search(Machine([one, two, three, four], 1)), Fault)


@pytest.mark.parametrize("by_tma", [True, False])
@pytest.mark.parametrize("warpgroups", [2, 3])
def test_a_named_barrier_that_two_warpgroups_take_is_refuted(by_tma: bool, warpgroups: int) -> None:
    """Warps of one meet those of the other there, and pass before their own have come."""
    cta = Cta(Ring(2, warpgroups, ONE, False), Epilogue(by_tma=by_tma))
    programs = cta.programs([Unit(1, (2,) * warpgroups)] * 2)

    def shared(steps: list[Step]) -> Sequence[Step]:
        return [replace(s, op=Sync(1, 4)) if s.op == Sync(2, 4) else s for s in steps]

    assert not isinstance(explore_epilogue(programs), Fault)
    refuted(explore_epilogue(changed(programs, shared, "math")), {"read before written"})


@pytest.mark.parametrize(
    ("cta", "units", "trials"),
    [
        (Cta(Ring(2, 1, TWO, False)), iterations(2, 1), 30),
        (Cta(Ring(3, 1, ONE, True)), iterations(4), 20),
        (Cta(Ring(2, 1, ((SHARED,),), False, 2)), iterations(3), 12),
        (Cta(Ring(2, 1, ONE, False), Epilogue(2)), [Unit(1, (2,)), Unit(1, (2,))], 30),
        (Cta(Ring(2, 1, ONE, False), Epilogue(1, False, True)), [Unit(1, (3,))], 30),
    ],
    ids=["alone", "in flight", "cluster", "split", "elements"],
)
def test_orders_that_are_not_played_show_nothing_new(
    cta: Cta, units: list[Unit], trials: int
) -> None:
    """Programs with steps left out at random: both searches find a fault, or neither."""
    chance = random.Random(trials)
    whole = cta.programs(units)
    faults = 0
    for _ in range(trials):
        who = chance.choice(["math", "dma0"] + (["math0", "math1"] if cta.ring.ctas == 1 else []))
        length = len(whole["math0" if who == "math" else who])
        left_out = {chance.randrange(3 * length), chance.randrange(length)}

        def planted(steps: list[Step], left_out: set[int] = left_out) -> list[Step]:
            return [step for at, step in enumerate(steps) if at not in left_out]

        ctas = [changed(whole, planted, who)] * cta.ring.ctas
        one, two = (
            explore(
                ctas,
                cta.ring.copies,
                [unit.iterations for unit in units],
                every_order=every_order,
            )
            for every_order in (False, True)
        )
        assert isinstance(one, Fault) == isinstance(two, Fault), (one, two)
        faults += isinstance(one, Fault)
    assert faults > trials // 3


def test_a_check_that_would_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.ring.explore.STATES_MAX", 100)
    with pytest.raises(TooManyStates, match="more than 100"):
        explore_cta(Cta(Ring(3, 1, TWO, False)), iterations(5))


def test_the_description_loads_reads_and_frees_each_slot_once_a_visit() -> None:
    ring = Ring(3, 2, ((A,), (SHARED, SHARED)), True, 2)
    programs = Cta(ring).programs(iterations(4, 1, 3))
    assert len(programs) == 2 + 8
    math = [step.op for step in programs["math0"]]
    for slot in range(3):
        reads = sum(isinstance(op, Multiply) and op.slot == slot for op in math)
        for peer in (False, True):
            assert reads == sum(op == Arrive(f"empty[{slot}]", peer=peer) for op in math)
        for warp, copies in (("dma0", 1), ("dma1", 2)):
            ops = [step.op for step in programs[warp]]
            assert reads * copies == sum(isinstance(o, Load) and o.slot == slot for o in ops)
            announced = {o.tx_bytes for o in ops if o.__class__ is Arrive}
            assert announced == {4096 if warp == "dma0" else 4 * 1024}
    assert ring.copies == 1 + 2 * 2
    assert sum(isinstance(op, Multiply) and op.fresh for op in math) == 3


def test_the_table_in_the_docs_is_the_descriptions() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
    table = barrier_table()
    assert table.count("\n") == 9
    assert f"\n\n{table}\n" in text
