"""The ring's protocol: every order of a few iterations, and all iterations by induction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from solver.errors import ProofError
from solver.ring.explore import Fault, TooManyStates, Warps, explore, explore_ring
from solver.ring.program import Arrive, Load, Multiply, MultiplyWait, Ring, Step, Sync, Wait
from solver.z3_ring import prove_ring

ONE, TWO = ((4096, 2048),), ((4096,), (2048,))
RINGS = [
    Ring(slots, math_warps, loads, in_flight)
    for slots in (2, 3)
    for math_warps in (4, 12)
    for loads in (ONE, TWO)
    for in_flight in (False, True)
    if slots > in_flight + 1
]


@pytest.mark.parametrize("ring", RINGS, ids=str)
@pytest.mark.parametrize("units", [(1,), (2, 1), (4, 1, 2)], ids=str)
def test_every_order_of_a_few_iterations_is_safe_and_ends(ring: Ring, units: tuple[int]) -> None:
    states = explore_ring(ring, units)
    assert not isinstance(states, Fault), states
    assert states > sum(units)


@pytest.mark.parametrize("math_warps", [4, 8, 12])
@pytest.mark.parametrize("loads", [ONE, TWO], ids=["one DMA warp", "two"])
@pytest.mark.parametrize("in_flight", [False, True])
def test_all_iterations_are_safe_and_never_stuck_by_induction(
    math_warps: int, loads: tuple[tuple[int, ...], ...], in_flight: bool
) -> None:
    lemmas = prove_ring(Ring(4, math_warps, loads, in_flight))
    assert [lemma.name for lemma in lemmas] == [
        "start",
        "waits",
        "arrivals",
        "loads",
        "reads",
        "progress",
    ]


@dataclass(frozen=True, slots=True)
class EmptyOffByOne(Ring):
    def freed_parity(self, visit: Any) -> Any:
        return visit % 2


@dataclass(frozen=True, slots=True)
class FullOffByOne(Ring):
    def filled_parity(self, visit: Any) -> Any:
        return (visit + 1) % 2


@dataclass(frozen=True, slots=True)
class TooMuchLag(Ring):
    @property
    def lag(self) -> int:
        return self.slots


@pytest.mark.parametrize("planted", [EmptyOffByOne, FullOffByOne])
def test_a_phase_off_by_one_is_refuted_by_both(planted: type[Ring]) -> None:
    ring = planted(3, 4, TWO, False)
    fault = explore_ring(ring, (5,))
    assert isinstance(fault, Fault)
    with pytest.raises(ProofError, match=r"ring protocol: .* does not hold: "):
        prove_ring(ring)


def test_a_ring_that_is_not_deeper_than_its_lag_is_stuck() -> None:
    fault = explore_ring(Ring(1, 4, ONE, True), (3,))
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"
    assert "wait for full[0]" in fault.words
    assert explore_ring(Ring(1, 4, ONE, False), (3,)) != fault


def planted(
    ring: Ring, units: Sequence[int], change: Any, who: str = "math0"
) -> tuple[list[Warps], dict[str, int], int]:
    """The ring's programs with one warp's changed, that warp apart from the others like it."""
    programs = ring.programs(units)
    programs[who] = tuple(change(list(programs[who])))
    groups = [Warps(name, steps) for name, steps in programs.items() if name.startswith("dma")]
    rest = [steps for name, steps in programs.items() if name.startswith("math") and name != who]
    if who.startswith("math"):
        groups.append(Warps(who, programs[who]))
    return [*groups, Warps("other MATH warps", rest[0], len(rest))], ring.counts(), ring.copies


def without(kind: type[Step], at: int) -> Any:
    """Leave out the at-th step of a kind."""

    def change(steps: list[Step]) -> list[Step]:
        found = [i for i, step in enumerate(steps) if isinstance(step, kind)]
        return [step for i, step in enumerate(steps) if i != found[at]]

    return change


def swapped(first: type[Step], second: type[Step]) -> Any:
    """Exchange neighbouring steps of two kinds."""

    def change(steps: list[Step]) -> list[Step]:
        for i in range(len(steps) - 1):
            if isinstance(steps[i], first) and isinstance(steps[i + 1], second):
                steps[i], steps[i + 1] = steps[i + 1], steps[i]
        return steps

    return change


RING = Ring(2, 4, ONE, False)


@pytest.mark.parametrize(
    ("change", "who", "kinds"),
    [
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
        (lambda s: [Sync("0", 5), *s], "math0", {"deadlock"}),
        (lambda s: s[: len(s) // 2], "math0", {"deadlock", "overwritten before read"}),
        (lambda s: s[: len(s) // 2], "dma0", {"deadlock"}),
        (lambda s: [x for t in s for x in ([t, t] if isinstance(t, Arrive) else [t])], "math0",
         {"too many arrivals", "overwritten before read", "overwritten while read"}),
        (
            lambda s: [replace(x, tx_bytes=8) if isinstance(x, Arrive) else x for x in s],
            "dma0",
            {"deadlock", "read before written"},
        ),
    ],
)  # fmt: skip
def test_a_planted_error_is_refuted_with_the_steps_that_lead_to_it(
    change: Any, who: str, kinds: set[str]
) -> None:
    fault = explore(*planted(RING, (3, 2), change, who))
    assert isinstance(fault, Fault)
    assert fault.kind in kinds, fault
    assert fault.trace
    text = str(fault)
    assert text.startswith(f"{fault.kind}: {fault.words}\n  1. ")
    assert text.count("\n") == len(fault.trace)


def test_a_count_that_is_wrong_is_refuted() -> None:
    groups, counts, copies = planted(RING, (3, 2), lambda steps: steps)
    for barrier, change in (("empty[0]", 1), ("full[1]", 1), ("empty[1]", -1)):
        fault = explore(groups, {**counts, barrier: counts[barrier] + change}, copies)
        assert isinstance(fault, Fault), barrier


def test_warps_at_a_named_barrier_leave_together() -> None:
    steps = (Sync("0", 3),)
    both = [Warps("one", steps), Warps("two others", steps, 2)]
    assert explore(both, {}, 1) == 2
    fault = explore(both[:1], {}, 1)
    assert isinstance(fault, Fault)
    assert fault.kind == "deadlock"


def test_a_check_that_would_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.ring.explore.STATES_MAX", 100)
    with pytest.raises(TooManyStates, match="more than 100"):
        explore_ring(Ring(3, 4, TWO, False), (5,))


def test_the_description_loads_reads_and_frees_each_slot_once_a_visit() -> None:
    ring, units = Ring(3, 8, TWO, True), (4, 1, 3)
    programs = ring.programs(units)
    assert len(programs) == 2 + 8
    math = programs["math0"]
    for slot in range(3):
        reads = sum(step == Multiply(slot) for step in math)
        assert reads == sum(step == Arrive(f"empty[{slot}]") for step in math)
        for warp in (0, 1):
            loads = [s for s in programs[f"dma{warp}"] if isinstance(s, Load) and s.slot == slot]
            assert len(loads) == reads
