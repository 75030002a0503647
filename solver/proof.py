"""The proof that an answer is right: which questions are put to Z3, about which rows.

For a ranking, given a space and the claimed first rows:

1. Exclusions. Z3 evaluates each of the user's constraints at every value its variable has; the
   rows allowed must be the legal ones for which all of them hold.
2. Groups. For every group of ``solver.cover``, what bounds all its rows must lie after the
   last claimed row: their time, by the closed form at the group's best parameters, or all
   values.
3. Rows. Every row of the works left open, exactly: it must not come before the last claimed
   row, unless it is claimed itself.
4. Finalists. The first claim and the rows nearest to it, over the event recurrence itself
   (``solver.z3_events``). "Some finalist is better" must be UNSAT, "the claimed row has the
   claimed values" SAT; its model is the timeline.
5. Controls. What must not be refuted is asked about too: the claimed row's own bounds and
   itself, and among the finalists a row before false claims of one more in the first rank and
   in the second. A prover that refutes these proves nothing.

For a Pareto front, 2 and 3 ask whether a row is beaten: slower than the factor allows, or
nowhere better than a point of the front, and in no case faster than the least time; rows left open
whose bounds one point beats together are refuted together. 4 confirms the values of points; as a
control, no point may be beaten by another.

Steps 2 and 3 are ground arithmetic. What ties the unrolled turn to all iterations is the ring
lemma, and the groups rest on monotony: tests/solver/test_lemmas.py proves the one by
induction and shows what is proved of the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.config import Config
from solver.conflict import Unsatisfiable, broken_sets
from solver.constraints import POWER, Bound, Constraints, row_column
from solver.cover import (
    CHAIN,
    CLOSED,
    VALUES,
    Cover,
    all_numbers,
    best_extremes,
    build_cover,
    build_row_cover,
    named,
    open_cover,
    row_numbers,
    value_bounds,
)
from solver.deadline import NEVER, Deadline, OutOfTime, collector_off
from solver.errors import ProofError
from solver.objective import AXES, DEFAULT, Pareto, Ranking
from solver.pick import SLACK, Front, Row, row_values
from solver.recurrence import INTEGERS, NUMPY, Ticks
from solver.solution import Proof, Unfinished
from solver.space import Space, check_restriction
from solver.table import Mask, Table
from solver.z3_events import UNROLLED
from solver.z3_questions import Smt

FINALISTS = 3
CHUNKS = 32
"""Parts of what a deadline left undecided, each bounded on its own."""

RESOURCE_OF = {"smem": "smem_bytes", "registers": "registers", "energy": "dynamic"}
"""Values by which works are put in order where they are ranked first."""


class _Progress:
    """What a proof has not decided yet."""

    def __init__(self, table: Table, cover: Cover) -> None:
        self.table, self.cover = table, cover
        self.groups_done = 0
        self.rows_left: Ticks | None = None  # works of undecided open rows, one entry a row

    def parts(self) -> tuple[list[Ticks], int]:
        """(works that hold undecided rows, in at most CHUNKS parts of neighbours; number of
        such rows).

        Parts are those of all works or lie within one, so that a bound by parts never gets
        worse as the proof goes on.
        """
        cover, count = self.cover, self.table.count
        left = slice(self.groups_done, None)
        spans = zip(cover.start[left], cover.stop[left], strict=True)
        works = [cover.order[a:b] for a, b in spans]
        rows = sum(int(count[some].sum()) for some in works)
        if self.rows_left is None:
            works.append(cover.open_works)
            rows += int(count[cover.open_works].sum())
        else:
            works.append(np.array(sorted(set(self.rows_left.tolist())), dtype=np.int64))
            rows += len(self.rows_left)
        everything = np.concatenate(works)
        place = np.empty(len(cover.order), dtype=np.int64)
        place[cover.order] = np.arange(len(cover.order))
        everything = everything[np.argsort(place[everything])]
        edges = np.arange(1, CHUNKS) * len(cover.order) // CHUNKS
        parts = np.split(everything, np.searchsorted(place[everything], edges))
        parts = [part for part in parts if len(part)]
        each = CHUNKS // max(1, len(parts))
        finer = (np.array_split(part, min(each, len(part))) for part in parts)
        return [part for split in finer for part in split], rows


def _untouched(table: Table, by: str = "") -> _Progress:
    """Of a proof that the deadline came before: what a cover would find could not be asked of Z3
    in time."""
    return _Progress(table, open_cover(table, all_numbers(table), by))


class Prover:
    """Proves answers with one ``Smt``; build once per process, never share by threads."""

    def __init__(self) -> None:
        self._smt = Smt()

    @collector_off
    def search(
        self, table: Table, ranking: Ranking = DEFAULT.ranking, deadline: Deadline = NEVER
    ) -> tuple[int, int]:
        """(work, kernel) of the first row of a small table, found by Z3 without a candidate.

        Each model is a row; asking for one that comes before it ends with the first. Raises
        OutOfTime where the deadline comes first.
        """
        work, kernel = table.rows(np.arange(len(table.first)))
        rows = _Rows(table, work, kernel)
        finalists = [self._smt.derive(rows[at]) for at in range(len(work))]
        best = self._smt.events.first(finalists, ranking, deadline)
        return int(work[best]), int(kernel[best])

    @collector_off
    def refute(
        self, free: Table, priced: Table, constraints: Constraints, conflict: Unsatisfiable
    ) -> None:
        """Prove that a conflict's core clashes and that nothing smaller does.

        ``free`` is the legal space priced without constraints, ``priced`` for the CTAs they leave.
        """
        members = [b for b in constraints.bounds if b.path in conflict.core]
        for bound in members:
            self._check_bound(free if bound.variable == "sms" else priced, bound)
        broken = broken_sets(free, priced, members)
        if len(members) != len(conflict.core) or not self._smt.clash(len(members), broken):
            raise ProofError(f"{conflict.core} is no minimal core")

    @collector_off
    def prove(
        self,
        space: Space,
        claims: Sequence[Row],
        ranking: Ranking = DEFAULT.ranking,
        deadline: Deadline = NEVER,
    ) -> Proof | Unfinished:
        """Prove that ``claims`` are the first rows allowed; ProofError where they are not."""
        self._exclude(space)
        table, first, last = space.allowed, claims[0], claims[-1]
        _check_claims(table, claims, [claim.key(ranking) for claim in claims])
        ranks = ranking.ranks(last.values)
        place = [*ranks, last.config.code]
        by = RESOURCE_OF.get(ranking.names[0], "")
        if deadline.passed:
            return self._unfinished(_untouched(table, by), ranking, ranking.ranks(first.values)[0])
        if ranking.by_time:
            cover = build_cover(table, last.time, None)
        else:
            cover = build_cover(table, None, lambda bounds: _after(bounds, ranking, ranks), by)

        def refuted(at: int, values: list[int], how: int) -> bool:
            if how == VALUES:
                return self._smt.group_after(values, ranking, ranks)
            return self._smt.time_above(values, last.time, how)

        self._control_bounds(cover, claims, refuted, (CHAIN, CLOSED) if ranking.by_time else ())
        behind = [*place[:-1], place[-1] + 1]
        if not self._smt.row_before(_row(table, last), ranking, behind):
            raise ProofError("the last claimed row was not found before a place behind it")

        progress = _Progress(table, cover)
        try:
            self._refute_groups(cover, progress, deadline, refuted)
            work, kernel = table.rows(cover.open_works)
            rows = _Rows(table, work, kernel)
            listed = _places(work, kernel, claims)
            others = _in_order(table, work, kernel, ranking, without=listed)
            near, far = others[: FINALISTS - 1], others[FINALISTS - 1 :]
            # The nearest are refuted as finalists, but only as rivals of the first claim.
            exactly = [*far, *near] if len(claims) > 1 else far
            for done, at in enumerate(exactly):
                progress.rows_left = work[sorted({*listed, *near, *exactly[done:]})]
                _in_time(deadline)
                if self._smt.row_before(rows[at], ranking, place):
                    raise ProofError(f"{rows.config(at)} comes first")
            progress.rows_left = work[[*listed, *near]]
            for claim in claims[1:]:
                _in_time(deadline)
                self._check_values(table, claim)
            finalists = [self._smt.derive(rows[at]) for at in (listed[0], *near)]
            timeline = self._smt.events.decide(finalists, ranking, first.values, deadline)
        except OutOfTime:
            return self._unfinished(progress, ranking, ranking.ranks(first.values)[0])
        return Proof(
            configurations=table.size,
            excluded=space.excluded,
            groups=len(cover.start),
            refuted_by_group=table.size - len(work),
            refuted_exactly=len(far),
            finalists=len(finalists),
            listed=len(claims) - 1,
            unrolled=UNROLLED,
            table_sha256=table.sha256(),
            timeline=timeline,
        )

    @collector_off
    def prove_front(
        self, space: Space, front: Front, pareto: Pareto, deadline: Deadline = NEVER
    ) -> Proof | Unfinished:
        """Prove that ``front`` is the whole front of the rows allowed; ProofError otherwise.

        Every row must be too slow or nowhere better than a point, and none faster than the
        fastest; every point must be real and not beaten by another.
        """
        self._exclude(space)
        table, points = space.allowed, front.points
        least, limit = front.fastest.time, front.time_limit
        vectors = [_vector(point, pareto) for point in points]
        _check_claims(table, points, [tuple(v[i] for i in pareto.columns) for v in vectors])
        if limit != pareto.time_limit(least) or max(point.time for point in points) > limit:
            raise ProofError("the front's time limit is not that of its fastest row")
        if deadline.passed or not front.whole:
            return self._unfinished(_untouched(table), DEFAULT.ranking, least)
        self._check_values(table, front.fastest)
        aim = _Aim(np.array(vectors, dtype=np.int64), least, limit)
        cover = build_cover(table, limit, aim.beaten)
        by = aim.beater(value_bounds(named(cover.best), NUMPY))

        def refuted(at: int, values: list[int], how: int) -> bool:
            if how == VALUES:
                return self._smt.group_beaten(values, limit, least, vectors[by[at]])
            return self._smt.time_above(values, limit, how)

        self._control_bounds(cover, points, refuted, (CHAIN, CLOSED))
        progress = _Progress(table, cover)
        try:
            self._refute_groups(cover, progress, deadline, refuted)
            work, kernel = table.rows(cover.open_works)
            groups, grouped = self._refute_rows(table, work, kernel, aim, progress, deadline)
            finalists = []
            for at, point in enumerate(points):
                progress.rows_left = np.array([p.work for p in points[at:]])
                _in_time(deadline)
                row = self._check_values(table, point)
                if at < FINALISTS:
                    finalists.append(self._smt.derive(row))
                # Points ascend: one that comes later is worse in its first differing axis.
                for earlier in vectors[:at]:
                    if self._smt.values_beaten(point.values, earlier):
                        raise ProofError(f"{point.config} is beaten")
            progress.rows_left = np.array([point.work for point in points[:FINALISTS]])
            confirmed = [point.values for point in points[:FINALISTS]]
            timeline = self._smt.events.confirm(finalists, confirmed, deadline)
        except OutOfTime:
            return self._unfinished(progress, DEFAULT.ranking, least)
        opened = set(zip(work.tolist(), kernel.tolist(), strict=True))
        open_points = sum((point.work, point.kernel) in opened for point in points)
        return Proof(
            configurations=table.size,
            excluded=space.excluded,
            groups=len(cover.start) + groups,
            refuted_by_group=table.size - len(work) - (len(points) - open_points) + grouped,
            refuted_exactly=len(work) - open_points - grouped,
            finalists=len(finalists),
            listed=len(points) - len(finalists),
            unrolled=UNROLLED,
            table_sha256=table.sha256(),
            timeline=timeline,
        )

    def _refute_rows(
        self,
        table: Table,
        work: Ticks,
        kernel: Ticks,
        aim: _Aim,
        progress: _Progress,
        deadline: Deadline,
    ) -> tuple[int, int]:
        """Show of rows that each is too slow or nowhere better than a point: of several at once
        where one point beats them all, of the others exactly. Points stay apart.

        Returns how many groups that took, and how many rows are in them.
        """
        points, limits = aim.points.tolist(), (aim.limit, aim.least)
        cover = build_row_cover(table, work, kernel, aim.beaten)
        left = work[cover.order]
        by = aim.beater(value_bounds(named(cover.best), NUMPY))
        for at, values in enumerate(cover.best.T.tolist()):
            progress.rows_left = left[cover.start[at] :]
            _in_time(deadline)
            if not self._smt.group_beaten(values, *limits, points[by[at]]):
                raise ProofError(f"the bound of the rows at {values} does not refute them")
        rows = _Rows(table, work, kernel)
        by = aim.beater(row_values(table, work, kernel))
        for done, at in enumerate(cover.order[cover.grouped :].tolist(), cover.grouped):
            progress.rows_left = left[done:]
            _in_time(deadline)
            row = rows[at]
            if by[at] >= 0 and self._smt.row_beaten(row, *limits, points[by[at]]):
                continue
            if not self._smt.row_beaten(row, *limits, NOWHERE):
                raise ProofError(f"{rows.config(at)} is missing")
        return len(cover.start), cover.grouped

    def _exclude(self, space: Space) -> None:
        """Show that the rows allowed are those legal ones for which every constraint holds."""
        for bound in space.constraints.bounds:
            self._check_bound(space.legal, bound)
        check_restriction(space)

    def _check_bound(self, table: Table, bound: Bound) -> None:
        """Show that a bound holds where numpy says so, at every value that its variable has."""
        if bound.variable == "sms":
            values = np.arange(1, int(table.works.active.max()) + 1)
        elif bound.variable == POWER:
            rows = table.rows(np.arange(len(table.first)))
            values = np.unique(row_column(table, POWER, *rows))
        else:
            values = np.unique(table.column(bound.variable)[1])
        for value, kept in zip(values.tolist(), bound.holds(values), strict=True):
            if self._smt.bound_holds(bound.relation, bound.values, value) != kept:
                raise ProofError(f"{bound.path} was not applied as it reads to {value}")

    def _control_bounds(
        self, cover: Cover, claims: Sequence[Row], refuted: _Refuted, by_time: tuple[int, ...]
    ) -> None:
        """Show that no bound refutes the last claim's own work: it would refute anything."""
        limits = cover.limits[:, claims[-1].work].tolist()
        if any(refuted(-1, limits, how) for how in (by_time or (VALUES,))):
            raise ProofError("a claimed row is refuted by its own bound")

    def _refute_groups(
        self, cover: Cover, progress: _Progress, deadline: Deadline, refuted: _Refuted
    ) -> None:
        groups = zip(cover.best.T.tolist(), cover.how.tolist(), strict=True)
        for at, (values, how) in enumerate(groups):
            progress.groups_done = at
            _in_time(deadline)
            if not refuted(at, values, how):
                raise ProofError(f"the bound of the group at {values} does not refute it")
        progress.groups_done = len(cover.start)

    def _check_values(self, table: Table, claim: Row) -> list[int]:
        """The row's numbers, shown to have the claimed values."""
        row = _row(table, claim)
        if not self._smt.row_is(row, claim.values):
            raise ProofError(f"{claim.config} does not have the claimed values")
        return row

    def _unfinished(self, progress: _Progress, ranking: Ranking, first_rank: int) -> Unfinished:
        """A bound on all that is undecided, by parts whose neighbours are alike."""
        parts, rows = progress.parts()
        lower = first_rank
        for works in parts:
            values = best_extremes(progress.cover.limits[:, works]).tolist()
            bound, *rest = ranking.ranks(value_bounds(named(values), INTEGERS))
            if not self._smt.group_after(values, ranking, [bound - 1, *rest]):
                raise ProofError(f"the bound of the undecided rows at {values} does not hold")
            lower = min(lower, bound)
        return Unfinished(progress.table.size, rows, lower)


_Refuted = Callable[[int, list[int], int], bool]
"""Whether group number, with these extremes, is refuted in this way (CHAIN, CLOSED, VALUES)."""

NOWHERE = (2**62,) * len(AXES)
"""A point that beats nothing: with it, a row is beaten by its time alone."""


def _in_time(deadline: Deadline) -> None:
    if deadline.passed:
        raise OutOfTime


def _check_claims(table: Table, claims: Sequence[Row], keys: Sequence[tuple[object, ...]]) -> None:
    """Claims are distinct rows of the table, in order, each under its own configuration."""
    if any(a >= b for a, b in itertools.pairwise(keys)):
        raise ProofError("the claimed rows are not in order")
    for claim in claims:
        first = table.first[claim.work]
        if not first <= claim.kernel < first + table.count[claim.work]:
            raise ProofError(f"{claim.config} is no row of the space")
        if table.config(claim.work, claim.kernel) != claim.config:
            raise ProofError(f"{claim.config} is not the configuration of the claimed row")


def _after(bounds: tuple[Ticks, ...], ranking: Ranking, ranks: Sequence[int]) -> Mask:
    """Whose lower bounds come after ``ranks``; of a score only what is clearly so."""
    columns = ranking.columns(bounds)
    if columns is None:
        return np.asarray(ranking.approximate(bounds) > ranks[0] * (1 + SLACK))
    after = np.zeros(len(bounds[0]), dtype=bool)
    equal = ~after
    for bound, rank in zip(columns, ranks, strict=True):
        after |= equal & (bound > rank)
        equal &= bound == rank
    return after


def _vector(point: Row, pareto: Pareto) -> list[int]:
    """A point's values on the front's axes, and less than any value elsewhere."""
    return [v if i in pareto.columns else -1 for i, v in enumerate(point.values)]


@dataclass(frozen=True, slots=True)
class _Aim:
    """What a front's rows must not reach: its ``points`` [N, 5], ticks below ``least``, all within
    the time limit."""

    points: Ticks
    least: int
    limit: int

    def beater(self, values: Iterable[Ticks]) -> Ticks:
        """Index of a point that is nowhere worse than each of ``values``, -1 without. Shape [R]."""
        time, *others = values
        found = np.full(len(time), -1, dtype=np.int64)
        for at, point in enumerate(self.points):
            nowhere_worse = time >= max(self.least, point[0])
            for value, mine in zip(others, point[1:], strict=True):
                nowhere_worse &= value >= mine
            found[nowhere_worse] = at
        return found

    def beaten(self, values: Iterable[Ticks]) -> Mask:
        """Which of ``values`` a point beats."""
        return self.beater(values) >= 0


def _places(work: Ticks, kernel: Ticks, claims: Sequence[Row]) -> list[int]:
    """Indices of the claims among open rows."""
    found = []
    for claim in claims:
        mine = np.flatnonzero((work == claim.work) & (kernel == claim.kernel))
        if len(mine) != 1:
            raise ProofError("a claimed row is not among the open ones: some row beats it")
        found.append(int(mine[0]))
    return found


def _in_order(
    table: Table, work: Ticks, kernel: Ticks, ranking: Ranking, *, without: list[int]
) -> list[int]:
    """Indices of open rows, nearest first, but for those ``without``."""
    values = row_values(table, work, kernel)
    nearest = np.lexsort((values[ranking.order[1]], ranking.approximate(values)))
    left_out = set(without)
    return [int(i) for i in nearest if i not in left_out]


class _Rows:
    """Rows of a table and their numbers in ``solver.z3_events.ROW``'s order."""

    def __init__(self, table: Table, work: Ticks, kernel: Ticks) -> None:
        self._table, self._work, self._kernel = table, work, kernel
        self._numbers = row_numbers(table, work, kernel).T

    def config(self, at: int) -> Config:
        """The configuration of one row."""
        config: Config = self._table.config(int(self._work[at]), int(self._kernel[at]))
        return config

    def __getitem__(self, at: int) -> list[int]:
        return [*self._numbers[at, :-1].tolist(), self.config(at).code]


def _row(table: Table, claim: Row) -> list[int]:
    """The numbers of one row."""
    return _Rows(table, np.array([claim.work]), np.array([claim.kernel]))[0]
