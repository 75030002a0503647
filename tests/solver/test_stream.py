"""norm_activation's rings: every order of a few chunks, and any number of them by induction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import z3

from solver.errors import ProofError
from solver.ring.state import Fault
from solver.ring.steps import ASYNC_FENCE, Arrive, Op, Step, StoreWait, Sync, Wait
from solver.ring.stream import Stream
from solver.ring.stream_instances import instances, search, small_units
from solver.ring.stream_steps import ArriveLoaded, ReadSlot, SyncArrive, WriteScratch
from solver.ring.teams import Teams
from solver.z3_stream import prove_slot, prove_stream, prove_team

Change = Callable[[list[Step]], Sequence[Step]]


def stream(**fields: Any) -> Stream:
    known: dict[str, Any] = {"warps": 2, "team": 1, "sums": 1, "producers": 1}
    return Stream(**{**known, "groups": 1, "depth": 2, **fields})


WAYS: list[dict[str, Any]] = [
    {"copies": "bulk"},
    {"copies": "bulk", "producers": 0},
    {"copies": "async", "producers": 2},
    {"copies": "async", "producers": 0},
    {"copies": "vector", "producers": 2},
    {"copies": "vector", "producers": 2, "barrier": "named"},
]
ROWS: list[dict[str, Any]] = [
    {},
    {"groups": 2},
    {"team": 2, "sums": 2},
    {"hold": "shared"},
    {"team": 2, "chunked": True},
    {"team": 2, "chunked": True, "hold": "shared", "depth": 3},
    {"team": 2, "chunked": True, "hold": "reload"},
]
BULK_STORES: list[dict[str, Any]] = [
    {"hold": "shared", "bulk_stores": True},
    {"team": 2, "hold": "shared", "bulk_stores": True},
    {"team": 2, "chunked": True, "hold": "shared", "bulk_stores": True, "depth": 3},
    {"team": 2, "chunked": True, "hold": "reload", "bulk_stores": True},
]
STREAMS = [stream(**way, **rows) for way in WAYS for rows in ROWS] + [
    stream(**way, **rows) for way in WAYS[:2] for rows in BULK_STORES
]
LARGE = [
    stream(warps=15, groups=15),
    stream(warps=12, producers=4, groups=3, team=4, copies="async"),
    stream(warps=8, producers=8, groups=1, team=4, copies="vector", barrier="named"),
    stream(warps=16, producers=0, groups=1, team=16, copies="async", hold="shared", chunked=True),
    stream(warps=8, producers=0, groups=2, team=4, hold="shared", bulk_stores=True),
]


@pytest.mark.parametrize("each", STREAMS, ids=str)
def test_every_order_of_a_few_chunks_is_safe_and_ends(each: Stream) -> None:
    states = search(each)
    assert not isinstance(states, Fault), str(states)
    assert states > 10


@pytest.mark.parametrize("each", [*STREAMS, *LARGE], ids=str)
def test_any_number_of_chunks_is_safe_and_never_stuck_by_induction(each: Stream) -> None:
    names = [lemma.name for lemma in prove_stream(each)]
    assert names == [
        *("start", "waits", "arrivals", "fills", "reads"),
        *(["left over"] if each.named else []),
        "progress",
        *(["meetings", "lines"] if each.team > 1 else []),
        "ids",
    ]


def test_warps_that_are_alike_share_sums_by_induction_and_in_every_order() -> None:
    assert len(prove_team(Teams(8, 8, 2))) == 2
    assert isinstance(search(Teams(3, 3, 2)), int)


@pytest.mark.parametrize("each", [s for s in STREAMS if s.depth == 2 and not s.chunked], ids=str)
def test_orders_that_are_left_out_show_nothing_new(each: Stream) -> None:
    every = search(each, every_order=True)
    assert isinstance(every, int)
    assert every >= int(search(each))  # type: ignore[arg-type]


# ---- faults of the description


@dataclass(frozen=True, slots=True)
class FullTakesMore(Stream):
    @property
    def full_count(self) -> int:
        return self.loaders * self.arrivals + 1


@dataclass(frozen=True, slots=True)
class FullTakesLess(Stream):
    @property
    def full_count(self) -> int:
        return self.loaders * self.arrivals - 1


@dataclass(frozen=True, slots=True)
class EmptyTakesMore(Stream):
    @property
    def empty_count(self) -> int:
        return self.group_warps + 1


@dataclass(frozen=True, slots=True)
class EmptyTakesLess(Stream):
    @property
    def empty_count(self) -> int:
        return self.group_warps - 1


@dataclass(frozen=True, slots=True)
class EmptyOffByOne(Stream):
    def freed_parity(self, visit: Any) -> Any:
        return visit % 2


@dataclass(frozen=True, slots=True)
class FullOffByOne(Stream):
    def filled_parity(self, visit: Any) -> Any:
        return (visit + 1) % 2


@dataclass(frozen=True, slots=True)
class OneDoesNotArrive(Stream):
    def arrives(self, loader: int) -> bool:
        return 0 < loader < self.loaders


@dataclass(frozen=True, slots=True)
class TakesTheConsumersAlone(Stream):
    @property
    def named_warps(self) -> int:
        return self.group_warps


@dataclass(frozen=True, slots=True)
class GivesBackForNobody(Stream):
    def gives_back(self, again: Any) -> Any:
        return True


@dataclass(frozen=True, slots=True)
class IdsOfAGroupAlone(Stream):
    """Every group's slots have the named barriers of the first group's."""

    def full_id(self, slot: Any) -> Any:
        return 1 + 2 * (slot % self.depth)


@dataclass(frozen=True, slots=True)
class SharedRing(Stream):
    """One ring for all groups, whose chunks take its slots in turn."""

    @property
    def slots(self) -> int:
        return self.depth

    def _number(self, group: int, chunk: int) -> int:
        return chunk * self.groups + group

    def slot(self, group: int, chunk: int) -> int:
        return self._number(group, chunk) % self.depth

    def visit(self, group: int, chunk: int) -> int:
        return self._number(group, chunk) // self.depth

    def visit_read(self, group: int, use: Any) -> Any:
        """Of slot 0, where a group uses it, for two groups."""
        if self.depth % self.groups == 0:
            return use
        return self.groups * use + group


NAMED = {"copies": "vector", "barrier": "named", "producers": 2}
VECTOR = {"copies": "vector", "producers": 2}
FAULTS: dict[str, tuple[type[Stream], dict[str, Any], str]] = {
    "a full barrier that takes one more": (FullTakesMore, VECTOR, "deadlock"),
    "a full barrier that takes one less": (FullTakesLess, VECTOR, "read before written"),
    "the same with asynchronous copies": (
        FullTakesLess,
        {"copies": "async", "producers": 2},
        "too many arrivals",
    ),
    "an empty barrier that takes one more": (EmptyTakesMore, {}, "deadlock"),
    "an empty barrier that takes one less": (EmptyTakesLess, {}, "overwritten before read"),
    "a loader's parity off by one": (EmptyOffByOne, {}, "deadlock"),
    "a consumer's parity off by one": (FullOffByOne, {}, "read before written"),
    "a producer that does not arrive": (OneDoesNotArrive, VECTOR, "deadlock"),
    "the same at a named barrier": (OneDoesNotArrive, NAMED, "deadlock"),
    "a named barrier without the producers": (TakesTheConsumersAlone, NAMED, "read before written"),
    "an arrival that nobody waits for": (GivesBackForNobody, NAMED, "left over"),
    "ids that two groups share": (
        IdsOfAGroupAlone,
        {**NAMED, "producers": 1, "groups": 2},
        "overwritten before read",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_in_some_order_and_by_the_induction(name: str) -> None:
    kind, fields, consequence = FAULTS[name]
    right = stream(**fields)
    wrong = kind(**{field: getattr(right, field) for field in Stream.__dataclass_fields__})
    assert isinstance(search(right), int)
    prove_stream(right)
    for every_order in (False, True):
        fault = search(wrong, every_order=every_order)
        assert isinstance(fault, Fault)
        assert fault.kind == consequence, str(fault)
        assert fault.trace
    with pytest.raises(ProofError, match=r"ring protocol: .* does not hold: "):
        prove_stream(wrong)


@pytest.mark.parametrize(("depth", "sound"), [(2, True), (4, True), (3, False)])
def test_slots_that_are_no_multiple_of_the_groups_alias_their_parities(
    depth: int, sound: bool
) -> None:
    shared = SharedRing(warps=2, team=1, sums=1, producers=1, groups=2, depth=depth)
    outcome = search(shared)
    assert isinstance(outcome, int) == sound, str(outcome)
    assert isinstance(search(stream(groups=2, depth=depth)), int)
    proofs = [prove_slot_of(shared, group) for group in (0, 1)]
    assert all(proofs) == sound


def prove_slot_of(shared: Stream, group: int) -> bool:
    try:
        return bool(list(prove_slot(z3.Context(), shared, group)))
    except ProofError:
        return False


@dataclass(frozen=True, slots=True)
class TooShallow(Stream):
    def enough(self, depth: Any, lag: Any) -> Any:
        return depth >= lag


@dataclass(frozen=True, slots=True)
class OneLine(Stream):
    def line(self, number: Any) -> Any:
        return 0 * number


@dataclass(frozen=True, slots=True)
class DoesNotDrain(Stream):
    @property
    def drains(self) -> bool:
        return False


def test_one_slot_too_few_for_a_row_that_is_held_is_stuck() -> None:
    held = {"team": 2, "chunked": True, "hold": "shared"}
    fault = search(stream(**held, depth=2))
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"
    right = stream(**held, depth=3)
    wrong = TooShallow(**{name: getattr(right, name) for name in Stream.__dataclass_fields__})
    with pytest.raises(ProofError, match="progress does not hold"):
        prove_stream(wrong)


def test_one_line_of_scratch_is_written_over() -> None:
    right = stream(team=2, sums=2)
    wrong = OneLine(**{name: getattr(right, name) for name in Stream.__dataclass_fields__})
    fault = search(wrong)
    assert isinstance(fault, Fault)
    assert fault.words.startswith("line 0 of team 0 is not read yet by")
    with pytest.raises(ProofError, match="writes, safe does not hold"):
        prove_team(wrong)


# ---- faults of the programs


def without(kind: type[Op]) -> Change:
    return lambda steps: [step for step in steps if not isinstance(step.op, kind)]


def without_fence(steps: list[Step]) -> Sequence[Step]:
    return [step for step in steps if step.op != ASYNC_FENCE or step.lanes == 1]


def without_any_fence(steps: list[Step]) -> Sequence[Step]:
    """But for those of the start."""
    at = next(i for i, step in enumerate(steps) if isinstance(step.op, Sync))
    return [*steps[:at], *(step for step in steps[at:] if step.op != ASYNC_FENCE)]


def whole_block(steps: list[Step]) -> Sequence[Step]:
    return [*steps, Step(Sync(0, 3))]


def lanes_without_work_arrive(steps: list[Step]) -> Sequence[Step]:
    return [
        replace(s, lanes=15) if isinstance(s.op, Arrive) and s.op.tx_bytes else s for s in steps
    ]


def early(kind: type[Op], before: type[Op]) -> Change:
    """Each step of a kind before the one of another that comes before it."""

    def change(steps: list[Step]) -> list[Step]:
        for at in range(1, len(steps)):
            if isinstance(steps[at].op, kind) and isinstance(steps[at - 1].op, before):
                steps[at - 1], steps[at] = steps[at], steps[at - 1]
        return steps

    return change


def plain_arrival(steps: list[Step]) -> Sequence[Step]:
    return [
        replace(s, op=Arrive(s.op.barrier)) if isinstance(s.op, ArriveLoaded) else s for s in steps
    ]


STORES = {"team": 2, "hold": "shared", "bulk_stores": True}
PROGRAMS: dict[str, tuple[dict[str, Any], str, Change, str]] = {
    "a barrier of the whole block by the consumers alone": (
        {},
        "consumer",
        whole_block,
        "deadlock",
    ),
    "lanes without work that arrive": (
        {},
        "producer",
        lanes_without_work_arrive,
        "too many arrivals",
    ),
    "a slot given back before it is read": (
        {},
        "consumer",
        early(Arrive, ReadSlot),
        "overwritten before read",
    ),
    "a slot read without waiting": ({}, "consumer", without(Wait), "read before written"),
    "a slot filled without waiting": ({}, "producer", without(Wait), "too many arrivals"),
    "an arrival that does not wait for its copies": (
        {"copies": "async"},
        "producer",
        plain_arrival,
        "read before written",
    ),
    "a named barrier that is never given back": (
        NAMED,
        "consumer",
        without(SyncArrive),
        "deadlock",
    ),
    "a bulk store that is not waited for": (
        STORES,
        "consumer0",
        without(StoreWait),
        "overwritten while read",
    ),
    "bulk copies over what was read, without a fence": (
        {},
        "producer",
        without_any_fence,
        "filled without a fence",
    ),
    "results that bulk stores can't see": (
        STORES,
        "consumer1",
        without_fence,
        "read before written",
    ),
    "a sum that one warp leaves out": (
        {"team": 2},
        "consumer1",
        without(WriteScratch),
        "read before written",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fault_in_one_roles_program_is_found_in_some_order(name: str) -> None:
    fields, role, change, consequence = PROGRAMS[name]
    of = stream(**fields)
    programs = of.programs(small_units(of))
    for warp, steps in programs.items():
        if warp.startswith(role):
            programs[warp] = (steps[0], *change(list(steps[1:])))
    for every_order in (False, True):
        fault = search(of, programs, every_order=every_order)
        assert isinstance(fault, Fault)
        assert fault.kind == consequence, str(fault)


def test_a_bulk_store_that_is_not_waited_for_fails_the_induction() -> None:
    right = stream(**STORES)
    wrong = DoesNotDrain(**{name: getattr(right, name) for name in Stream.__dataclass_fields__})
    with pytest.raises(ProofError, match="does not hold"):
        prove_stream(wrong)


def test_instances_have_two_of_what_is_more_than_two() -> None:
    one, several = instances(LARGE[1])
    assert isinstance(one, Stream)
    assert isinstance(several, Stream)
    assert (one.groups, one.producers, one.team, one.group_warps) == (1, 2, 2, 2)
    assert (several.groups, several.producers, several.team, several.group_warps) == (2, 2, 1, 1)
    assert isinstance(search(one), int)
    assert isinstance(search(several), int)
