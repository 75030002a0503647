"""What operands cost that TMA can't take as they lie, and what the same question gives where they
lie so that it can.

TMA reads lines that start on 16 bytes; A and B are copied first where a line does not. It
stores C in whole pieces of 16 bytes; the kernel stores element by element where rows have none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from solver.families.sm90_gemm_cost import LINE_BYTES, copy_us
from solver.families.sm90_gemm_operands import copied_operands, stores_by_tma
from solver.flips import Asked
from solver.pick import Row
from solver.problem import MAX_EXTENT, VECTOR_BYTES, Matrix, Problem
from solver.units import us_from_ticks
from solver.words import compared, listing

if TYPE_CHECKING:
    from solver.proof import Prover

STEPS_BYTES = (VECTOR_BYTES, LINE_BYTES)
"""What pitches are rounded up to: what TMA takes, and whole lines of the L2, which load faster."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """``operands`` moved so that TMA takes them: the problem's fields that change, and the row
    that is first then."""

    operands: tuple[str, ...]
    before: dict[str, int]
    after: dict[str, int]
    row: Row

    def to_dict(self, pick: Row) -> dict[str, Any]:
        """The JSON form, beside the pick of the question as it was asked."""
        return {
            "operands": list(self.operands),
            "before": self.before,
            "after": self.after,
            "config": self.row.config.to_dict(),
            "time_us": us_from_ticks(self.row.time),
            "time_change": self.row.time / pick.time - 1,
        }


def alignments(asked: Asked, prover: Prover | None) -> list[Alignment]:
    """Each operand that TMA can't take, alone and then all of them, lying so that it can.

    Pitches are the least in whole STEPS_BYTES, of the step with which the first row is better.
    The question is asked again for each, and what is first proved with ``prover``. An operand is
    left out that no pitch in range and no offset makes TMA take: a C whose rows end off 16 bytes.
    """
    if asked.question.model == "paper":
        return []
    problem = asked.question.problem
    taken = [*copied_operands(problem), *([] if stores_by_tma(problem) else ["c"])]
    able = [name for name in taken if _moved(problem, (name,), VECTOR_BYTES) is not None]
    sets = [(name,) for name in able] + ([tuple(able)] if len(able) > 1 else [])
    found = []
    for operands in sets:
        moved = [_moved(problem, operands, step) for step in STEPS_BYTES]
        # min takes the first of equals: the least pitch.
        best = min(
            (asked.of(each) for each in moved if each is not None),
            key=lambda each: each.first().key(each.ranking),
        )
        first = best.first()
        if prover is not None:
            prover.prove(best.space(), [first], best.ranking)
        before, after = problem.to_dict(), best.question.problem.to_dict()
        names = [name for name in after if after[name] != before[name]]
        found.append(
            Alignment(operands, {n: before[n] for n in names}, {n: after[n] for n in names}, first)
        )
    return found


def _moved(problem: Problem, operands: tuple[str, ...], step_bytes: int) -> Problem | None:
    """The problem with these operands' lines on whole 16 bytes and pitches of whole
    ``step_bytes``; None where TMA can't take them so or a pitch would be out of range."""
    fields: dict[str, Any] = {}
    for name in operands:
        matrix: Matrix = getattr(problem, name)
        fields[f"{name}_offset"] = 0
        step = step_bytes // matrix.element_bytes
        if matrix.lines > 1 and matrix.pitch * matrix.element_bytes % VECTOR_BYTES:
            fields[f"ld{name}"] = -(-matrix.pitch // step) * step
    if any(value > MAX_EXTENT for value in fields.values()):
        return None
    moved = dataclasses.replace(problem, **fields)
    left = [*copied_operands(moved), *([] if stores_by_tma(moved) else ["c"])]
    return None if set(left) & set(operands) else moved


def detours(asked: Asked, pick: Row, found: list[Alignment]) -> Iterator[str]:
    """What it costs that TMA can't take some operand as it lies, a sentence or two a paragraph."""
    question, problem = asked.question, asked.question.problem
    if question.model == "paper":
        return
    if copied := copied_operands(problem):
        names = listing([name.upper() for name in copied])
        them, lie = ("it", "it lies") if len(copied) == 1 else ("them", "they lie")
        yield (
            f"TMA can't take {names} as {lie}: lines must start on {VECTOR_BYTES} bytes. Each "
            f"launch first copies {them} into an aligned buffer, "
            f"{copy_us(problem, asked.device):.2f} µs of its set-up."
        )
    if not stores_by_tma(problem):
        yield (
            "C is stored element by element: its rows do not all start and end on "
            f"{VECTOR_BYTES} bytes."
        )
    if found:
        yield " ".join(_words(pick, each) for each in found)


def _words(pick: Row, found: Alignment) -> str:
    moves = [
        f"{name} = {found.after[name]} instead of {found.before[name]}" for name in found.after
    ]
    copied = [name.upper() for name in found.operands if name != "c"]
    spared = [f"no copy of {listing(copied)}"] if copied else []
    spared += ["C stored by TMA"] if "c" in found.operands else []
    speed = compared(found.row.time, pick.time, ("slower", "faster", "as fast"))
    return (
        f"With {listing(moves)}, {listing(spared)}: {us_from_ticks(found.row.time):.2f} µs instead "
        f"of {us_from_ticks(pick.time):.2f}, {speed}."
    )
