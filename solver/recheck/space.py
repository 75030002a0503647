"""A priced space: works, the kernels each work can use, and the bytes that identify it.

A work fixes all that decides the time of one k-iteration, a kernel adds ring depth, threads
and resources; a configuration is one of both.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import accumulate, compress

from solver.recheck.question import CONFIG_FIELDS, Bound

TICKS_PER_US = 10_000
ENERGY_TICKS_PER_MJ = 10_000_000  # of a watt for a tick, 100 pJ
ENERGY_MAX = 1 << 52
JOULES_PER_TICK = 1e-10
PER_MILLE = 1000
RESOURCE_FIELD = {
    "smem_bytes": "smem_bytes",
    "registers_per_thread": "registers",
    "sms": "active",
}
"""Where a kernel or a work has what the bounds call by another name."""
POWER = "power_w"
"""What of bounds neither a work nor a kernel decides alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Parameters of one work: ticks, except counts, ``load_path`` (0 own path, 1 L2, 2 memory)
    and ``clock_mhz``; ``jitter`` is the scale by which loads scatter around ``latency``, in ticks.
    ``power`` is what it does where launches follow one another for seconds, empty where the device
    has no constants: watts for each tick of time, energy ticks besides, the time that is held in
    thousandths, the clock, power with its margin in thousandths, the driver's limit. The order of
    fields is the order in which a table is hashed."""

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
    power: Mapping[str, int]

    def energy(self, time: int) -> int:
        """Energy ticks of a launch of so many ticks; 0 without constants."""
        if not self.power:
            return 0
        return self.power["power_static"] * time + self.power["power_dynamic"]

    def watts(self, time: int) -> int:
        """Its power with its margin, in whole watts, rounded up: not beyond the driver's limit
        where no more than that is predicted."""
        energy, held = self.energy(time), time * self.power["power_slowdown"]
        predicted = -(-energy * PER_MILLE // held)
        with_margin = -(-energy * self.power["power_high"] // held)
        return min(with_margin, max(predicted, self.power["power_limit"]))

    @property
    def longest(self) -> int:
        """A time that none of its kernels exceeds by more than its set-up, in ticks."""
        step = self.load + self.jitter + self.latency + self.math
        run = self.units * (self.iterations * step + self.epilogue)
        return self.waves * run + self.fixed + self.store


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


def within(
    space: Space, bounds: Mapping[str, Bound], watts: Callable[[Work, Kernel], int]
) -> Space:
    """The works and kernels that the bounds allow, in their order; a work without kernels goes.

    ``watts`` is asked for the power of a configuration where that is bounded.
    """

    def is_allowed(item: Work | Kernel) -> bool:
        values = (
            (bound, _value(item, variable))
            for variable, bound in bounds.items()
            if variable != POWER
        )
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
    kept = Space(space.family, tuple(works), tuple(compress(space.kernels, keep)), tuple(slices))
    return kept if POWER not in bounds else _within_power(kept, bounds[POWER], watts)


def _within_power(space: Space, bound: Bound, watts: Callable[[Work, Kernel], int]) -> Space:
    """The configurations whose power a bound allows, a kernel of its own for each of them."""
    works: list[Work] = []
    kernels: list[Kernel] = []
    slices = []
    for work, of_work in zip(space.works, space.slices, strict=True):
        left = [
            k for k in space.kernels[of_work.start : of_work.stop] if bound.allows(watts(work, k))
        ]
        if left:
            works.append(work)
            slices.append(range(len(kernels), len(kernels) + len(left)))
            kernels += left
    return Space(space.family, tuple(works), tuple(kernels), tuple(slices))


def countable(space: Space) -> Space:
    """The space; without power where some energy is beyond what is counted."""
    if all(work.energy(work.longest) < ENERGY_MAX for work in space.works):
        return space
    works = tuple(replace(work, power={}) for work in space.works)
    return replace(space, works=works)


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
            if field.name in ("config", "power"):
                for name in getattr(part[0], field.name):
                    digest.update(name.encode())
                    digest.update(_int64(getattr(item, field.name)[name] for item in part))
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
