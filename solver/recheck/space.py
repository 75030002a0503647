"""A priced space: works, the kernels each work can use, and the bytes that identify it.

A work fixes all that decides the time of one k-iteration, a kernel adds ring depth, threads
and resources; a configuration is one of both.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import accumulate, compress

from solver.recheck.question import CONFIG_FIELDS, Bound

TICKS_PER_US = 10_000
RESOURCE_FIELD = {
    "smem_bytes": "smem_bytes",
    "registers_per_thread": "registers",
    "sms": "active",
}
"""Where a kernel or a work has what the bounds call by another name."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Parameters of one work: ticks, except counts, ``load_path`` (0 own path, 1 L2, 2 memory)
    and ``clock_mhz``; ``jitter`` is the scale by which loads scatter around ``latency``, in ticks.
    The order of fields is the order in which a table is hashed."""

    load: int
    jitter: int
    latency: int
    math: int
    early: int
    epilogue: int
    iterations: int
    units: int
    waves: int
    fixed: int
    store: int
    active: int
    load_path: int
    clock_mhz: int
    config: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """What a kernel adds: usable slots, set-up ticks, bytes, registers and threads.

    The order of fields is the order in which a table is hashed.
    """

    slots: int
    setup: int
    smem_bytes: int
    registers: int
    threads: int
    config: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Works and kernels in order; ``slices[w]`` are the kernels of work w, as a range."""

    family: str
    works: tuple[Work, ...]
    kernels: tuple[Kernel, ...]
    slices: tuple[range, ...]

    @property
    def size(self) -> int:
        """Number of configurations."""
        return sum(map(len, self.slices))

    def rows(self) -> Iterator[tuple[Work, Kernel]]:
        """Every configuration."""
        for work, kernels in zip(self.works, self.slices, strict=True):
            for at in kernels:
                yield work, self.kernels[at]


def config_values(work: Work, kernel: Kernel) -> tuple[int, ...]:
    """A configuration's integer fields, in the order of CONFIG_FIELDS."""
    values = {**work.config, **kernel.config}
    return tuple(values[name] for name in CONFIG_FIELDS)


def largest_grid(units: int, sms: int, bounds: Mapping[str, Bound], cluster: int = 1) -> int:
    """CTAs launched for so many units of work: the most that the bounds allow, none idle, all
    of whole clusters.

    Where they allow none it is what would be launched without them, which they then exclude.
    """
    most = min(units, sms // cluster * cluster)
    if "sms" not in bounds:
        return most
    counts = range(most, 0, -cluster)
    return next((count for count in counts if bounds["sms"].allows(count)), most)


def within(space: Space, bounds: Mapping[str, Bound]) -> Space:
    """The works and kernels that the bounds allow, in their order; a work without kernels goes."""

    def is_allowed(item: Work | Kernel) -> bool:
        values = ((bound, _value(item, variable)) for variable, bound in bounds.items())
        return all(value is None or bound.allows(value) for bound, value in values)

    if not bounds:
        return space
    keep = [is_allowed(kernel) for kernel in space.kernels]
    before = list(accumulate(keep, initial=0))
    works, slices = [], []
    for work, kernels in zip(space.works, space.slices, strict=True):
        left = range(before[kernels.start], before[kernels.stop])
        if left and is_allowed(work):
            works.append(work)
            slices.append(left)
    return Space(space.family, tuple(works), tuple(compress(space.kernels, keep)), tuple(slices))


def _value(item: Work | Kernel, variable: str) -> int | None:
    """What a work or a kernel has for a variable of bounds; None where the other decides it."""
    if variable.startswith("config."):
        return item.config.get(variable.removeprefix("config."))
    value: int | None = getattr(item, RESOURCE_FIELD[variable], None)
    return value


def table_sha256(space: Space) -> str:
    """The hash by which a certificate names the priced space, one that is not empty.

    Over the family's name; for works, then kernels, each column's name and its integers; then,
    without names, the first kernel of each work, how many it has, its deepest ring and its
    least set-up. Integers are 64 bits, little-endian.
    """
    digest = hashlib.sha256(space.family.encode())
    for part in (space.works, space.kernels):
        for field in fields(part[0]):
            if field.name == "config":
                for name in part[0].config:
                    digest.update(name.encode())
                    digest.update(_int64(item.config[name] for item in part))
            else:
                digest.update(field.name.encode())
                digest.update(_int64(getattr(item, field.name) for item in part))
    deepest, least = [], []
    extremes: dict[range, tuple[int, int]] = {}
    for kernels in space.slices:
        if kernels not in extremes:
            of_work = space.kernels[kernels.start : kernels.stop]
            extremes[kernels] = (max(k.slots for k in of_work), min(k.setup for k in of_work))
        deepest.append(extremes[kernels][0])
        least.append(extremes[kernels][1])
    digest.update(_int64(kernels.start for kernels in space.slices))
    digest.update(_int64(len(kernels) for kernels in space.slices))
    digest.update(_int64(deepest))
    digest.update(_int64(least))
    return digest.hexdigest()


def _int64(column: Iterable[int]) -> bytes:
    values = array("q", column)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
