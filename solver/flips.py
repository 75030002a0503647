"""What would change a pick: the least change of one limit, or of one constant of the profile.

Every change is found by asking the same question again with that one number moved, and shown
by two proofs: that the pick still stands just before, and that another is first right after.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.conflict import Unsatisfiable
from solver.constraints import Bound, Constraints, row_column
from solver.device import Constant, DeviceProfile
from solver.errors import ProofError
from solver.families import sm90_gemm_power
from solver.objective import ENERGY, Pareto, Ranking
from solver.pick import Row, best_rows, rows_before
from solver.problem import Problem
from solver.question import Question
from solver.space import Space, build_space

if TYPE_CHECKING:
    from solver.proof import Prover

CONSTANT_STEPS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Relative changes of a constant that are tried, until some flip the pick."""

CONSTANT_RESOLUTION = 0.02
"""Part of a step down to which a flip is narrowed."""

LIMITS = ("smem_per_block_bytes", "registers_per_sm")
"""The device's limits on what a block may have; the published model knows the first alone."""

LIFTED = 4
"""Factor by which a device limit is lifted to see whether it binds."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One number moved from ``before`` to ``after``, and the row that is first then.

    ``kind`` is constraint, limit or constant; ``name`` the user's path or the profile's name.
    ``stands_at`` is the nearest value that was shown to leave the pick as it is.
    """

    kind: str
    name: str
    before: Any
    stands_at: Any
    after: Any
    change: float
    row: Row

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without the row."""
        return {
            "kind": self.kind,
            "name": self.name,
            "before": self.before,
            "stands_at": self.stands_at,
            "after": self.after,
            "change": self.change,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its device, as it may be asked again with one number moved."""

    question: Question
    device: DeviceProfile

    def space(self) -> Space:
        """The priced space."""
        q = self.question
        return build_space(q.problem, self.device, q.pricing, q.constraints)

    def first(self) -> Row:
        """The pick."""
        return best_rows(self.space().allowed, 1, self.ranking)[0]

    def leaner(self) -> Asked:
        """On the device without constants of power where no part of the question rests on them:
        what they say of every row would be worked out each time it is asked again."""
        unused = {sm90_gemm_power.TABLE}.difference(self.tables)
        return Asked(self.question, self.device.without(*unused))

    def constrained(self, constraints: Constraints) -> Asked:
        """With other constraints."""
        return Asked(dataclasses.replace(self.question, constraints=constraints), self.device)

    def of(self, problem: Problem) -> Asked:
        """Of another problem."""
        return Asked(dataclasses.replace(self.question, problem=problem), self.device)

    def with_limit(self, name: str, value: int) -> Asked:
        """With another limit of the device."""
        limits = dict(self.device.limits)
        limits[name] = dataclasses.replace(limits[name], value=value)
        device = dataclasses.replace(self.device, limits=MappingProxyType(limits))
        return Asked(self.question, device)

    def with_constant(self, name: str, value: float) -> Asked:
        """With another constant of the model."""
        model = next(model for model in self.tables if name in self.device.models[model])
        table = dict(self.device.models[model])
        table[name] = dataclasses.replace(table[name], value=value)
        models = {**self.device.models, model: MappingProxyType(table)}
        device = dataclasses.replace(self.device, models=MappingProxyType(models))
        return Asked(self.question, device)

    @property
    def ranking(self) -> Ranking:
        """What the question ranks by; there is none for a front."""
        assert not isinstance(self.question.objective, Pareto)
        return self.question.objective.ranking

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of constants on which the answer rests."""
        if self.question.model == "paper":
            return ("paper",)
        asks_power = self.question.constraints.on_power is not None
        if asks_power or ENERGY in self.question.objective.named:
            return (self.device.families[0], sm90_gemm_power.TABLE)
        return self.device.families[:1]

    @property
    def constants(self) -> Mapping[str, Constant]:
        """The constants in them, by name."""
        return {name: c for model in self.tables for name, c in self.device.models[model].items()}


def binding(asked: Asked, pick: Row) -> list[Flip]:
    """The limits that keep a better configuration out: the user's and the device's.

    Each with its least change that lets one come before the pick; a limit of the device is
    raised up to LIFTED times.
    """
    found = [_relaxed(asked, pick, bound) for bound in asked.question.constraints.bounds]
    limits = LIMITS if asked.question.model == "calibrated" else LIMITS[:1]
    found += [_lifted(asked, pick, limit) for limit in limits]
    return [flip for flip in found if flip is not None]


def tightened(asked: Asked, pick: Row) -> list[Flip]:
    """The least lowering of what shared memory, registers and SMs are limited to that makes the
    pick another. A change is relative to the limit in force, the user's or the device's."""
    caps = [("smem_bytes", pick.smem_bytes, "smem_per_block_bytes")]
    if pick.registers:
        caps.append(("registers_per_thread", pick.registers, "registers_per_thread"))
    found = [_capped(asked, *cap) for cap in caps]
    found.append(_fewer_sms(asked, pick))
    return [flip for flip in found if flip is not None]


def nearest_constants(
    asked: Asked, pick: Row, progress: Callable[[int, int], None] | None = None
) -> list[Flip]:
    """The constants of the profile whose least change makes the pick another, nearest first.

    Those within the first of CONSTANT_STEPS at which any does; [] where none does.
    """
    names = [name for name, c in asked.constants.items() if c.value]
    done = 0
    for at, step in enumerate(CONSTANT_STEPS):
        lower = CONSTANT_STEPS[at - 1] if at else 0.0
        found = []
        for name in names:
            for sign in (1, -1):
                flip = _constant_flip(asked, pick, name, sign * lower, sign * step)
                found += [] if flip is None else [flip]
            done += 1
            if progress:
                progress(done, len(names) * len(CONSTANT_STEPS))
        if found:
            return sorted(found, key=lambda flip: flip.change)
    return []


def prove_flip(asked: Asked, pick: Row, flip: Flip, prover: Prover) -> None:
    """Prove that the pick is first at ``stands_at`` and the flip's row at ``after``.

    Raises ProofError where either does not hold.
    """
    ranking = asked.ranking
    for moved, config in (
        (moved_to(asked, flip, flip.stands_at), pick.config),
        (moved_to(asked, flip, flip.after), flip.row.config),
    ):
        space = moved.space()
        first = best_rows(space.allowed, 1, ranking)[0]
        if first.config != config:
            raise ProofError(f"{flip.name} does not flip the pick as found")
        prover.prove(space, [first], ranking)


def moved_to(asked: Asked, flip: Flip, value: Any) -> Asked:
    """The question with the flip's number at ``value``."""
    if flip.kind == "limit":
        return asked.with_limit(flip.name, value)
    if flip.kind == "constant":
        return asked.with_constant(flip.name, value)
    variable, _, relation = flip.name.removeprefix("constraints.").rpartition(".")
    constraints = asked.question.constraints
    values = tuple(value) if isinstance(value, list) else (value,)
    return asked.constrained(constraints.adding(Bound(variable, relation, values)))


def _relaxed(asked: Asked, pick: Row, bound: Bound) -> Flip | None:
    """The least change of a user's bound that lets a configuration before the pick in."""
    if bound.variable == "sms" and bound.relation != "min":
        return _freed_sms(asked, pick, bound)
    constraints = asked.question.constraints
    free = asked.constrained(constraints.replace(bound, None)).space().allowed
    work, kernel = rows_before(free, pick, asked.ranking)
    values = row_column(free, bound.variable, work, kernel)
    if not values.size:
        return None
    away = bound.distance(values)
    value = int(values[away == away.min()].min())
    widened = bound.widened(value)
    stands = bound.given
    if bound.relation != "in":
        stands = value - 1 if bound.relation == "max" else value + 1
    return Flip(
        kind="constraint",
        name=bound.path,
        before=bound.given,
        stands_at=stands,
        after=widened.given,
        change=int(away.min()) / max(1, *bound.values),
        row=asked.constrained(constraints.replace(bound, widened)).first(),
    )


def _freed_sms(asked: Asked, pick: Row, bound: Bound) -> Flip | None:
    """The same for SMs, on which prices depend: the counts outside it are asked, nearest first."""
    counts = np.arange(1, asked.device.limit("sms") + 1)
    away = bound.distance(counts)
    for at in np.argsort(away, kind="stable"):
        if not away[at]:
            continue
        widened = bound.widened(int(counts[at]))
        first = asked.constrained(asked.question.constraints.replace(bound, widened)).first()
        if first.key(asked.ranking) < pick.key(asked.ranking):
            return Flip(
                kind="constraint",
                name=bound.path,
                before=bound.given,
                stands_at=bound.given,
                after=widened.given,
                change=int(away[at]) / max(1, *bound.values),
                row=first,
            )
    return None


def _lifted(asked: Asked, pick: Row, limit: str) -> Flip | None:
    """The least limit of the device at which a configuration comes before the pick."""
    key = pick.key(asked.ranking)
    here = asked.device.limit(limit)

    def first(value: int) -> Row:
        return asked.with_limit(limit, value).first()

    low, high = here, here * LIFTED
    if not first(high).key(asked.ranking) < key:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if first(middle).key(asked.ranking) < key else (middle, high)
    return Flip("limit", limit, here, low, high, high / here - 1, first(high))


def _capped(asked: Asked, variable: str, used: int, limit: str) -> Flip | None:
    """A cap just below what the pick uses; None where nothing is left under it."""
    bound = Bound(variable, "max", (used - 1,))
    space = _or_nothing(asked.constrained(asked.question.constraints.adding(bound)))
    if space is None:
        return None
    before = _in_force(asked, bound.path, limit)
    first = best_rows(space.allowed, 1, asked.ranking)[0]
    change = (before - used + 1) / before
    return Flip("constraint", bound.path, before, used, used - 1, change, first)


def _fewer_sms(asked: Asked, pick: Row) -> Flip | None:
    """The most SMs below those there are with which another configuration is first."""
    before = _in_force(asked, "constraints.sms.max", "sms")
    for count in range(before - 1, 0, -1):
        bound = Bound("sms", "max", (count,))
        space = _or_nothing(asked.constrained(asked.question.constraints.adding(bound)))
        if space is None:
            return None
        first = best_rows(space.allowed, 1, asked.ranking)[0]
        if first.config != pick.config:
            change = (before - count) / before
            return Flip("constraint", bound.path, before, count + 1, count, change, first)
    return None


def _in_force(asked: Asked, path: str, limit: str) -> int:
    """The user's upper bound of that path, or the device's limit."""
    given = [b.values[0] for b in asked.question.constraints.bounds if b.path == path]
    return min([*given, asked.device.limit(limit)])


def _or_nothing(asked: Asked) -> Space | None:
    try:
        return asked.space()
    except Unsatisfiable:
        return None


def _constant_flip(
    asked: Asked, pick: Row, name: str, stands: float, changed: float
) -> Flip | None:
    """Where between two relative changes of a constant the pick becomes another."""
    value = asked.constants[name].value

    def first(change: float) -> Row:
        return asked.with_constant(name, value * (1 + change)).first()

    row = first(changed)
    if row.config == pick.config:
        return None
    while abs(changed - stands) > CONSTANT_RESOLUTION * abs(changed):
        middle = (stands + changed) / 2
        at = first(middle)
        if at.config == pick.config:
            stands = middle
        else:
            changed, row = middle, at
    return Flip(
        "constant",
        name,
        value,
        value * (1 + stands),
        value * (1 + changed),
        abs(changed),
        row,
    )
