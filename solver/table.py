"""The priced space of one problem: integer parameters for every legal configuration.

Two levels. A *work* fixes all that decides the time of a k-iteration but how deep the ring is;
a *row* is a work together with one of its kernels, which adds ring depth, threads and registers.
Rows are never materialised as a whole: a work's kernels are a slice of the kernel arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from solver.config import Config
from solver.recurrence import Pipeline, Ticks

LOAD_PATHS = ("loads", "l2", "memory")
"""The SM's own path, the L2 it shares, the device memory it shares."""

POWER = STATIC, DYNAMIC, SLOWDOWN, CLOCK, HIGH, LIMIT = (
    "power_static",
    "power_dynamic",
    "power_slowdown",
    "power_clock_mhz",
    "power_high",
    "power_limit",
)
"""Columns of what works do where launches follow one another for seconds: watts for every tick that
one is predicted to take by itself; energy ticks besides; how long it takes then, in thousandths of
that; the SM clock that is held; power with its margin, in thousandths of what is predicted; and the
driver's limit in watts, where the margin ends."""
PER_MILLE = 1000

MAPPINGS = ("config", "power")
"""Fields of works and kernels that hold columns by name."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]
P = TypeVar("P", "Works", "Kernels")


@dataclass(frozen=True, slots=True)
class Works:
    """Parameters of W works: the recurrence's (``solver.recurrence``), and what frames it.

    ``jitter`` is the scale, in ticks, by which loads scatter around ``latency`` (``load_at``).
    ``waves`` rounds of such CTAs follow one another (1 where the kernel is persistent).
    ``fixed`` precedes the first load (launch), ``store`` follows the last MATH (epilogue,
    split-K reduction); both in ticks. ``active`` CTAs are launched, one an SM. ``load_path``
    indexes LOAD_PATHS: what a load waits for most. ``clock_mhz`` is the SM clock the cycles
    were priced at, 0 in a model without one. ``config`` holds the configuration fields a work
    fixes, ``power`` the columns of POWER, or none where the device has no constants of power.
    """

    load: Ticks
    jitter: Ticks
    latency: Ticks
    math: Ticks
    early: Ticks
    epilogue: Ticks
    iterations: Ticks
    units: Ticks
    waves: Ticks
    fixed: Ticks
    store: Ticks
    active: Ticks
    load_path: Ticks
    clock_mhz: Ticks
    config: Mapping[str, Ticks]
    power: Mapping[str, Ticks] = field(default_factory=dict)

    def load_at(self, work: Any, slots: Any) -> Ticks:
        """Load occupancy of works in rings of so many slots, in ticks, with what late loads add.

        In the mean a load comes x = ramp - slots·pace after its MATH could begin, a turn of the
        ring later. Where it scatters around that by Laplace's distribution of scale ``jitter``,
        the wait is max(0, x), which the recurrence has, and jitter/2·exp(-|x|/jitter) more; each
        of the turn's loads bears its part.
        """
        load, math, scale = self.load[work], self.math[work], self.jitter[work]
        ramp = self.latency[work] + load + math - self.early[work]
        lateness = ramp - slots * np.maximum(load, math)
        added = scale / 2 * np.exp(-np.abs(lateness) / np.maximum(scale, 1)) / slots
        comes_round = self.iterations[work] * self.units[work] > slots
        ticks: Ticks = load + np.rint(np.where(comes_round, added, 0)).astype(np.int64)
        return ticks

    def energy(self, work: Any, time: Any) -> Any:
        """Energy of launches of works that take ``time`` ticks, held for seconds, in energy ticks;
        0 without columns of power."""
        if not self.power:
            return np.zeros_like(time)
        return self.power[STATIC][work] * time + self.power[DYNAMIC][work]

    def watts(self, work: Any, time: Any) -> Any:
        """Their power meanwhile with its margin, in whole watts, rounded up: not beyond the
        driver's limit where no more than that is predicted."""
        energy, held = self.energy(work, time), time * self.power[SLOWDOWN][work]
        predicted = -(-energy * PER_MILLE // held)
        with_margin = -(-energy * self.power[HIGH][work] // held)
        return np.minimum(with_margin, np.maximum(predicted, self.power[LIMIT][work]))

    @property
    def cluster(self) -> Ticks:
        """CTAs of a cluster; a launch has whole clusters. Shape [W]."""
        ctas: Ticks = self.config["cluster_m"] * self.config["cluster_n"]
        return ctas


@dataclass(frozen=True, slots=True)
class Kernels:
    """What K kernels add: usable ``slots``, ``setup`` ticks before the first load, resources."""

    slots: Ticks
    setup: Ticks
    smem_bytes: Ticks
    registers: Ticks
    threads: Ticks
    config: Mapping[str, Ticks]


@dataclass(frozen=True, slots=True)
class Table:
    """Works, kernels, and which kernels belong to each work: ``first[w] : first[w]+count[w]``.

    ``slots_max`` and ``setup_min`` are the extremes over a work's kernels, for its bound.
    ``copies`` are the ticks of every work's ``fixed`` that copies of operands take. ``decode``
    makes a configuration of its columns' integers, of a family whose configurations are no Config.
    """

    family: str
    works: Works
    kernels: Kernels
    first: Ticks
    count: Ticks
    slots_max: Ticks
    setup_min: Ticks
    copies: int = 0
    decode: Callable[[Mapping[str, int]], Any] | None = None

    @property
    def size(self) -> int:
        """Number of legal configurations."""
        return int(self.count.sum())

    def rows(self, works: Ticks) -> tuple[Ticks, Ticks]:
        """Every row of the given works, as (work index, kernel index) arrays."""
        count = self.count[works]
        work = np.repeat(works, count)
        offset = np.arange(len(work)) - np.repeat(np.cumsum(count) - count, count)
        return work, self.first[work] + offset

    def column(self, variable: str) -> tuple[bool, Ticks]:
        """(whether it is the works', the column) of a variable that constraints may name.

        ``smem_bytes``, ``registers_per_thread``, ``sms`` or ``config.`` and a field. Rows decide
        ``power_w``: ``solver.constraints.row_column``.
        """
        if variable == "sms":
            return True, self.works.active
        if variable == "smem_bytes":
            return False, self.kernels.smem_bytes
        if variable == "registers_per_thread":
            return False, self.kernels.registers
        field = variable.removeprefix("config.")
        if field in self.works.config:
            return True, self.works.config[field]
        return False, self.kernels.config[field]

    def restrict(self, keep_works: Mask, keep_kernels: Mask) -> Table:
        """The table without the works and kernels that are not kept, in the same order."""
        rank = np.concatenate([[0], np.cumsum(keep_kernels)])
        count = rank[self.first + self.count] - rank[self.first]
        works = np.flatnonzero(keep_works & (count > 0))
        kernels = np.flatnonzero(keep_kernels)
        first, count = rank[self.first[works]], count[works]
        kept = _take(self.kernels, kernels)
        return Table(
            family=self.family,
            works=_take(self.works, works),
            kernels=kept,
            first=first,
            count=count,
            slots_max=extremes(np.maximum, kept.slots, first, count),
            setup_min=extremes(np.minimum, kept.setup, first, count),
            copies=self.copies,
            decode=self.decode,
        )

    def restrict_rows(self, keep: Mask) -> Table:
        """The table without the rows that are not kept, of all in order; each row left has a
        kernel entry of its own, since what is left of a work need not be a slice. Shape [R]."""
        work, kernel = self.rows(np.arange(len(self.first)))
        kernels = _take(self.kernels, kernel[keep])
        left = np.bincount(work[keep], minlength=len(self.first)).astype(np.int64)
        works = np.flatnonzero(left > 0)
        count = left[works]
        first = np.cumsum(count) - count
        return replace(
            self,
            works=_take(self.works, works),
            kernels=kernels,
            first=first,
            count=count,
            slots_max=extremes(np.maximum, kernels.slots, first, count),
            setup_min=extremes(np.minimum, kernels.setup, first, count),
        )

    def launch_ticks(self, work: Any, setup: Any, end: Any) -> Ticks:
        """Time of whole launches whose critical CTA ends at ``end``: launch, waves, last store."""
        w = self.works
        ticks: Ticks = w.fixed[work] + setup + w.waves[work] * end + w.store[work]
        return ticks

    def pipeline(self, work: Any, slots: Any) -> Pipeline:
        """Recurrence parameters of works at the given ring depths."""
        w = self.works
        return Pipeline(
            load=w.load_at(work, slots),
            latency=w.latency[work],
            math=w.math[work],
            early=w.early[work],
            epilogue=w.epilogue[work],
            slots=slots,
            iterations=w.iterations[work],
            units=w.units[work],
        )

    def config(self, work: int, kernel: int) -> Any:
        """The configuration of one row: a Config, or what ``decode`` makes."""
        values = {name: int(column[kernel]) for name, column in self.kernels.config.items()}
        values |= {name: int(column[work]) for name, column in self.works.config.items()}
        return Config(family=self.family, **values) if self.decode is None else self.decode(values)

    def sha256(self) -> str:
        """Hash of every integer of the table, in order."""
        digest = hashlib.sha256(self.family.encode())
        for part in (self.works, self.kernels):
            for name, column in part_columns(part).items():
                digest.update(name.encode())
                digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        for column in (self.first, self.count, self.slots_max, self.setup_min):
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()


def largest_grid(
    work_units: Ticks, sms: int, grids: Ticks | None, cluster: Ticks | int = 1
) -> Ticks:
    """CTAs launched for so many units of work: the largest allowed count that leaves none idle.

    Counts are multiples of ``cluster``, as ``work_units`` is. ``grids`` are the allowed counts,
    ascending; any up to ``sms`` without. Where none is small enough the count is the
    unconstrained one, which no allowed count equals.
    """
    count: Ticks = np.minimum(work_units, sms // cluster * cluster)
    if grids is None:
        return count
    for ctas in np.unique(cluster):
        whole = grids[grids % ctas == 0]
        if len(whole):
            at = np.searchsorted(whole, work_units, side="right") - 1
            count = np.where((cluster == ctas) & (at >= 0), whole[np.maximum(at, 0)], count)
    return count


def part_columns(part: Works | Kernels) -> dict[str, Ticks]:
    """Every column of works or kernels by name, configuration fields last but for power's."""
    columns = {f.name: getattr(part, f.name) for f in fields(part) if f.name not in MAPPINGS}
    for name in MAPPINGS:
        columns |= getattr(part, name, {})
    return columns


def _take(part: P, rows: Ticks) -> P:
    """Works or kernels, the given rows of every column."""
    taken: dict[str, Any] = {}
    for name in (f.name for f in fields(part)):
        column = getattr(part, name)
        if name in MAPPINGS:
            taken[name] = {each: values[rows] for each, values in column.items()}
        else:
            taken[name] = column[rows]
    return type(part)(**taken)


def extremes(reduce: np.ufunc, column: Ticks, first: Ticks, count: Ticks) -> Ticks:
    """``reduce`` (np.minimum, np.maximum) of a kernel column over each work's kernels. Shape [W].

    Slices may be shared by works; none is empty and none overlaps another in part.
    """
    if not first.size:
        return first
    start, slice_of = np.unique(first, return_inverse=True)
    stop = np.zeros_like(start)
    stop[slice_of] = first + count
    ends = np.stack([start, stop], axis=1).ravel()
    padded = np.append(column, column[-1:])  # the last slice may end with the column
    by_slice: Ticks = reduce.reduceat(padded, ends)[::2]
    return by_slice[slice_of]
