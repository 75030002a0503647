"""The problem in a certificate: whether it is one, and how its operands lie in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from solver.recheck.members import choice_faults, integer_faults, object_faults, shown

EXTENT_MAX = 2**31 - 1
VOLUME_MAX = 2**60
ELEMENT_BYTES = {"bf16": 2, "fp16": 2}
OUT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
LAYOUTS = ("tn", "nn", "nt", "tt")
PIECE_BYTES = 16  # offsets are counted from such a boundary
PROBLEM_FIELDS = (
    "m",
    "n",
    "k",
    "dtype",
    "layout",
    "out_dtype",
    "lda",
    "ldb",
    "ldc",
    "a_offset",
    "b_offset",
    "c_offset",
)


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in memory: so many lines of so many elements that lie side by side; ``pitch``
    and ``offset`` in elements, from line to line and from a 16-byte boundary to the first."""

    lines: int
    length: int
    pitch: int
    offset: int
    element_bytes: int

    @property
    def is_aligned(self) -> bool:
        """Whether the first element of every line lies on 16 bytes."""
        starts = [self.offset] if self.lines == 1 else [self.offset, self.offset + self.pitch]
        return all(start * self.element_bytes % PIECE_BYTES == 0 for start in starts)


def problem_faults(problem: Any, is_paper: bool) -> Iterator[str]:
    """Each reason why a certificate's problem is none in canonical form."""
    faults = list(object_faults("problem", problem, PROBLEM_FIELDS))
    if faults:
        yield from faults
        return
    for name in ("m", "n", "k"):
        faults += integer_faults(f"problem.{name}", problem[name], 1, EXTENT_MAX)
    faults += choice_faults("problem.dtype", problem["dtype"], ELEMENT_BYTES)
    faults += choice_faults("problem.layout", problem["layout"], ("tn",) if is_paper else LAYOUTS)
    faults += choice_faults("problem.out_dtype", problem["out_dtype"], OUT_BYTES)
    yield from faults
    if faults:
        return
    if problem["m"] * problem["n"] * problem["k"] > VOLUME_MAX:
        yield f"problem.m times n times k must be at most 2^60, got {shown(problem['m'])}"
    if is_paper and problem["out_dtype"] != problem["dtype"]:
        yield f"problem.out_dtype must be {problem['dtype']}, as problem.dtype, in model paper"
    longest = {
        "a": problem["k" if problem["layout"][0] == "t" else "m"],
        "b": problem["n" if problem["layout"][1] == "t" else "k"],
        "c": problem["n"],
    }
    for name, length in longest.items():
        pitch, offset = f"ld{name}", f"{name}_offset"
        # The published model knows packed and aligned operands alone.
        widest = length if is_paper else EXTENT_MAX
        size = OUT_BYTES[problem["out_dtype"]] if name == "c" else ELEMENT_BYTES[problem["dtype"]]
        furthest = 0 if is_paper else PIECE_BYTES // size - 1
        yield from integer_faults(f"problem.{pitch}", problem[pitch], length, widest)
        yield from integer_faults(f"problem.{offset}", problem[offset], 0, furthest)


def _runs_along_k(by_layout: bool, across: int, k: int, pitch: int) -> bool:
    """Whether an operand's memory is read along k; ``across`` is its other extent."""
    if by_layout:
        return not (pitch == 1 and k == 1 and across > 1)
    return pitch == 1 and across == 1


def operands(problem: dict[str, Any]) -> dict[str, Any]:
    """How A, B and C of a problem without faults lie, and whether A and B run along k.

    Lines of one element each that follow one another are a single line, whatever the layout
    calls them.
    """
    m, n, k = problem["m"], problem["n"], problem["k"]
    a_along = _runs_along_k(problem["layout"][0] == "t", m, k, problem["lda"])
    b_along = _runs_along_k(problem["layout"][1] == "n", n, k, problem["ldb"])
    shapes = {
        "a": (m, k) if a_along else (k, m),
        "b": (n, k) if b_along else (k, n),
        "c": (m, n),
    }
    sizes = dict.fromkeys("ab", ELEMENT_BYTES[problem["dtype"]])
    sizes["c"] = OUT_BYTES[problem["out_dtype"]]
    operands = {
        name: Operand(
            lines, length, max(problem[f"ld{name}"], length), problem[f"{name}_offset"], sizes[name]
        )
        for name, (lines, length) in shapes.items()
    }
    return {"a_runs_along_k": a_along, "b_runs_along_k": b_along, **operands}
