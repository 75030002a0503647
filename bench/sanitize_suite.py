"""What a family has launched under compute-sanitizer, as ``bench.gpu_sanitize`` needs to know it;
and memory for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernels.bench import Named
from solver.problem import Matrix

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
ALL = "all"
"""The scope of a family whose kernels are not told apart."""
ANNOUNCED = "launch: "
ENDED = "every launch ended"
ROOM_BYTES = 1 << 19


class Planted(Protocol):
    """A fault planted for one ``tool``; its report names ``kernel``. It says something about the
    clean launches of its ``scope``."""

    @property
    def tool(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def scope(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Suite:
    """One family's plants and clean launches.

    kernels    entries of the family: a report on a clean launch names one of them
    module     ``python -m`` of it launches a plant by its name, or with ``clean SCOPE PART PARTS``
               one of so many parts of the clean launches of a scope
    parts      of each scope's clean launches, side by side
    hashes     of the sources, under the record's names
    keys       compile keys of everything that is launched unpatched, and ``build``, which compiles
               one into the cache and says why that failed
    taken      launches of all clean runs together, and how often each branch is taken
    tools      that a scope is launched under, where it is not all of them
    probes     right kernels that show what a tool can't follow: ``module`` launches them by name
    judge      what a whole record comes to, where that is more than its runs' outcomes
    """

    family: str
    kernels: tuple[str, ...]
    module: str
    plants: Mapping[str, Planted]
    plant_timeout_s: int  # a planted fault may hang the launch
    parts: Mapping[str, int]
    hashes: Callable[[], dict[str, str]]
    keys: Callable[[], Sequence[Named]]
    build: Callable[[Any], str | None]
    taken: Callable[[], tuple[int, dict[str, int]]]
    tools: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    probes: Mapping[str, Planted] = field(default_factory=dict)
    judge: Callable[[dict[str, Any]], dict[str, Any]] = lambda record: record

    def tools_of(self, scope: str) -> tuple[str, ...]:
        """The tools that a scope's clean launches run under."""
        return self.tools.get(scope, TOOLS)


def label(tool: str, scope: str) -> str:
    """The name under which a record has a tool's clean launches of a scope."""
    return tool if scope == ALL else f"{tool}, {scope}"


def allocated(operands: Iterable[tuple[Matrix, bool]]) -> list[Any]:
    """Memory of each matrix alone, without any pool: from a 16-byte boundary to its last element.
    What lies behind is nobody's. Where True, its lines are written, with numbers, and nothing
    else."""
    import cupy as cp

    cp.cuda.set_allocator(None)
    memory, rooms = [], [cp.empty(ROOM_BYTES, cp.uint8)]
    for matrix, written in operands:
        memory.append(_allocated(matrix, written))
        rooms.append(cp.empty(ROOM_BYTES, cp.uint8))
    return memory  # and without the rooms


def address(array: Any, matrix: Matrix) -> int:
    """Of a matrix' first element in its memory."""
    return int(array.data.ptr) + matrix.offset * matrix.element_bytes


def _allocated(matrix: Matrix, written: bool) -> Any:
    import cupy as cp
    import numpy as np

    size = matrix.element_bytes
    array = cp.empty((matrix.offset + matrix.elements) * size, cp.uint8)
    if written and matrix.lines:
        kind = np.float32 if size == 4 else "<u2"
        lines = np.full((matrix.lines, matrix.length), 1.0 if size == 4 else 0x3C00, kind)
        width = matrix.length * size
        to_device = 1
        cp.cuda.runtime.memcpy2D(
            address(array, matrix),
            matrix.pitch * size,
            lines.ctypes.data,
            width,
            width,
            matrix.lines,
            to_device,
        )
    return array


def announce(launch: object) -> None:
    """Say what is launched next, so that what a checker says after it can be told to be of it."""
    print(f"{ANNOUNCED}{launch}", flush=True)


def ended() -> None:
    """Say that all that was to be launched has come to its end."""
    print(ENDED, flush=True)
