"""The proof that an answer is right: which questions are put to Z3, about which rows.

For a ranking, given a table of integer parameters and the claimed first rows:

1. Exclusions. Where the user's constraints leave rows out, Z3 evaluates each constraint on
   both sides of every step of its variable.
2. Groups. For every group of ``solver.cover``, what bounds all its rows must lie after the
   last claimed row: their time, by the closed form at the group's best parameters, or all
   four values.
3. Rows. Every row of the works left open, exactly: it must not come before the last claimed
   row, unless it is claimed itself.
4. Finalists. The first claim and the rows nearest to it, in a persistent solver over the event
   recurrence itself: load_issue, load_end, math_start and math_end are arrays of type
   Int → Int, unrolled for a ring's full turn. "Some finalist is better" must be UNSAT, "the
   claimed row has the claimed values" SAT; its model is the timeline.
5. Controls. Claims of one more in the first rank, and of one more in the second, must be
   refuted.

For a Pareto front, 2 and 3 ask whether a row is beaten: slower than the factor allows, or
nowhere better than a point of the front. 4 confirms every point's values; as a control, each
point must not be beaten by any other.

Steps 2 and 3 are ground arithmetic. What ties the unrolled turn to all iterations is the ring
lemma, and the groups rest on monotony: tests/solver/test_lemmas.py proves the one by
induction and shows what is proved of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from solver.config import config_code
from solver.conflict import Unsatisfiable
from solver.cover import (
    EXTREMES,
    VALUES,
    Cover,
    best_extremes,
    build_cover,
    value_bounds,
    work_extremes,
)
from solver.errors import ProofError
from solver.objective import AXES, DEFAULT, Pareto, Ranking
from solver.pick import SLACK, Front, Row, price
from solver.recurrence import INTEGERS, NUMPY, Ticks
from solver.simulator import Event
from solver.smt import NEVER, UNROLLED, Deadline, OutOfTime, Smt, collector_off
from solver.space import Space
from solver.table import Mask, Table

FINALISTS = 3
CHUNKS = 32
"""Parts of what a deadline left undecided, each bounded on its own."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, over what; ``timeline`` is the first turn of the ring, from Z3's model.

    ``configurations`` are those refuted by their group or exactly, the finalists, and the
    further ones that the claim lists. With ``undecided`` ones the deadline came first: of
    these Z3 has shown only that their first rank (of a front, their time) is no less than
    ``lower_bound``.
    """

    configurations: int
    excluded: int
    groups: int = 0
    refuted_by_group: int = 0
    refuted_exactly: int = 0
    finalists: int = 0
    listed: int = 0
    unrolled: int = UNROLLED
    table_sha256: str = ""
    timeline: tuple[Event, ...] = ()
    undecided: int = 0
    lower_bound: int = 0


class _Progress:
    """What a proof has not decided yet, for the answer where its deadline comes first."""

    def __init__(self, table: Table, cover: Cover) -> None:
        self._table, self._cover = table, cover
        self.groups_done = 0
        self.rows_left: Ticks | None = None  # works of open rows, one entry a row

    def works(self) -> tuple[Ticks, int]:
        """(works that hold undecided rows, neighbours alike; number of such rows)."""
        cover, count = self._cover, self._table.count
        left = [
            cover.order[a:b]
            for a, b in zip(
                cover.start[self.groups_done :], cover.stop[self.groups_done :], strict=True
            )
        ]
        rows = sum(int(count[works].sum()) for works in left)
        if self.rows_left is None:
            left.append(cover.open_works)
            rows += int(count[cover.open_works].sum())
        else:
            left.append(np.array(sorted(set(self.rows_left.tolist())), dtype=np.int64))
            rows += len(self.rows_left)
        works = np.concatenate(left)
        place = np.empty(len(cover.order), dtype=np.int64)
        place[cover.order] = np.arange(len(cover.order))
        return works[np.argsort(place[works])], rows


class Prover:
    """Proves answers with one ``Smt``; build once per process, never share by threads."""

    def __init__(self) -> None:
        self._smt = Smt()

    @collector_off
    def search(self, table: Table, ranking: Ranking = DEFAULT.ranking) -> tuple[int, int]:
        """(work, kernel) of the first row of a small table, found by Z3 without a candidate.

        Each model is a row; asking for one that comes before it ends with the first.
        """
        work, kernel = table.rows(np.arange(len(table.first)))
        rows = [
            self._smt.derive(_row(table, int(w), int(k))) for w, k in zip(work, kernel, strict=True)
        ]
        best = self._smt.events.first(rows, ranking)
        return int(work[best]), int(kernel[best])

    @collector_off
    def refute(self, conflict: Unsatisfiable) -> None:
        """Prove that a conflict's core clashes and that nothing smaller does."""
        if not self._smt.clash(len(conflict.core), conflict.broken):
            raise ProofError(f"{conflict.core} is no minimal core")

    @collector_off
    def prove(
        self,
        space: Space,
        claims: Sequence[Row],
        ranking: Ranking = DEFAULT.ranking,
        deadline: Deadline = NEVER,
    ) -> Proof:
        """Prove that ``claims`` are the first rows allowed; ProofError where they are not."""
        table = space.allowed
        keys = [claim.key(ranking) for claim in claims]
        if sorted(set(keys)) != keys:
            raise ProofError("the claimed rows are not in order")
        last = claims[-1]
        ranks = ranking.ranks(last.values)
        place = [*ranks, config_code(last.config)]
        if ranking.by_time:
            cover = build_cover(table, last.time, None)
        else:
            by = 0 if ranking.weights else ranking.order[0]
            cover = build_cover(table, None, lambda bounds: _after(bounds, ranking, ranks), by)
        progress = _Progress(table, cover)
        try:
            self._exclude(space, deadline)
            for at, (values, how) in _groups(cover):
                progress.groups_done = at
                _in_time(deadline)
                if how == VALUES:
                    refuted = self._smt.group_after(values, ranking, ranks)
                else:
                    refuted = self._smt.time_above(values, last.time, how)
                if not refuted:
                    raise ProofError(f"the bound of the group at {values} does not refute it")
            progress.groups_done = len(cover.start)

            work, kernel = table.rows(cover.open_works)
            listed = _listed(work, kernel, claims)
            others = _in_order(table, work, kernel, ranking, without=listed)
            near, far = others[: FINALISTS - 1], others[FINALISTS - 1 :]
            checked = [*far, *(near if len(claims) > 1 else ())]
            for done, at in enumerate(checked):
                progress.rows_left = work[[*listed, *near, *checked[done:]]]
                _in_time(deadline)
                row = _row(table, int(work[at]), int(kernel[at]))
                if self._smt.row_before(row, ranking, place):
                    raise ProofError(f"{table.config(int(work[at]), int(kernel[at]))} comes first")
            progress.rows_left = work[[*listed, *near]]
            for claim in claims[1:]:
                _in_time(deadline)
                self._check_row(table, claim)
            finalists = [
                self._smt.derive(_row(table, int(work[at]), int(kernel[at])))
                for at in (listed[0], *near)
            ]
            timeline = self._smt.events.decide(finalists, ranking, claims[0].values, deadline)
        except OutOfTime:
            return self._unfinished(space, progress, ranking, ranking.ranks(claims[0].values)[0])
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
    ) -> Proof:
        """Prove that ``front`` is the whole front of the rows allowed; ProofError otherwise.

        Every row must be too slow or nowhere better than a point, every point real and not
        beaten by another.
        """
        table, limit = space.allowed, front.time_limit
        axes = pareto.columns
        points = np.array([row.values for row in front.points], dtype=np.int64)
        points[:, [i for i in range(len(AXES)) if i not in axes]] = -1
        # Where time is an axis, a row faster than the least could be beaten by no point.
        least = 0 if 0 in axes else front.best_time

        def beaten(bounds: tuple[Ticks, ...]) -> Mask:
            return _beater(bounds, points, least) >= 0

        cover = build_cover(table, limit, beaten)
        progress = _Progress(table, cover)
        groups = SimpleNamespace(**{name: cover.best[:, i] for i, name in enumerate(EXTREMES)})
        by = _beater(value_bounds(groups, NUMPY), points, least)
        vectors = points.tolist()
        try:
            self._exclude(space, deadline)
            for at, (values, how) in _groups(cover):
                progress.groups_done = at
                _in_time(deadline)
                if how == VALUES:
                    refuted = self._smt.group_beaten(values, limit, least, vectors[by[at]])
                else:
                    refuted = self._smt.time_above(values, limit, how)
                if not refuted:
                    raise ProofError(f"the bound of the group at {values} does not refute it")
            progress.groups_done = len(cover.start)

            work, kernel = table.rows(cover.open_works)
            time, wait = price(table, work, kernel)
            k = table.kernels
            by = _beater((time, wait, k.smem_bytes[kernel], k.registers[kernel]), points, least)
            for at in range(len(work)):
                progress.rows_left = work[at:]
                _in_time(deadline)
                row = _row(table, int(work[at]), int(kernel[at]))
                if not self._smt.row_beaten(row, limit, least, vectors[by[at]]):
                    raise ProofError(f"{table.config(int(work[at]), int(kernel[at]))} is missing")
            finalists = []
            for at, point in enumerate(front.points):
                _in_time(deadline)
                row = self._check_row(table, point)
                if at < FINALISTS:
                    finalists.append(self._smt.derive(row))
                for other in vectors[:at]:
                    if self._smt.row_beaten(row, limit, least, other):
                        raise ProofError(f"{point.config} is beaten")
            confirmed = [point.values for point in front.points[:FINALISTS]]
            timeline = self._smt.events.confirm(finalists, confirmed, deadline)
        except OutOfTime:
            return self._unfinished(space, progress, DEFAULT.ranking, front.best_time)
        return Proof(
            configurations=table.size,
            excluded=space.excluded,
            groups=len(cover.start),
            refuted_by_group=table.size - len(work),
            refuted_exactly=len(work) - len(front.points),
            finalists=len(finalists),
            listed=len(front.points) - len(finalists),
            unrolled=UNROLLED,
            table_sha256=table.sha256(),
            timeline=timeline,
        )

    def _check_row(self, table: Table, claim: Row) -> list[int]:
        """The row's numbers, shown to have the claimed values."""
        row = _row(table, claim.work, claim.kernel)
        if not self._smt.row_is(row, claim.values):
            raise ProofError(f"{claim.config} does not have the claimed values")
        return row

    def _exclude(self, space: Space, deadline: Deadline) -> None:
        """Show that the constraints leave out what they must and nothing else.

        Each bound is evaluated at both sides of every step of its variable's values in the
        legal space: what lies between two values on the same side is on that side too.
        """
        for bound in space.constraints.bounds:
            _in_time(deadline)
            _, column = space.legal.column(bound.variable)
            values = np.unique(column)
            kept = bound.holds(values)
            # Values on one side of a step; of a list, between the same two of its values too.
            step = np.diff(kept)
            if bound.relation == "in":
                step |= np.diff(np.searchsorted(bound.values, values)) != 0
            runs = np.split(np.arange(len(values)), np.flatnonzero(step) + 1)
            for run in runs:
                ends = {int(values[run[0]]), int(values[run[-1]])}
                if bound.relation == "in" and kept[run[0]]:
                    ends = set(values[run].tolist())
                agree = all(
                    self._smt.bound_holds(bound.relation, bound.values, value) == kept[run[0]]
                    for value in ends
                )
                if bound.relation == "in" and not kept[run[0]]:
                    agree &= self._smt.none_between(bound.values, min(ends), max(ends))
                if not agree:
                    raise ProofError(f"{bound.path} was not applied as it reads")

    def _unfinished(
        self, space: Space, progress: _Progress, ranking: Ranking, first_rank: int
    ) -> Proof:
        """What is known where the deadline came first: a bound on all that is undecided."""
        works, rows = progress.works()
        lower = first_rank
        for chunk in np.array_split(work_extremes(space.allowed)[works], CHUNKS):
            if not len(chunk):
                continue
            values = best_extremes(chunk).tolist()
            p = SimpleNamespace(**dict(zip(EXTREMES, values, strict=True)))
            bound, *rest = ranking.ranks(value_bounds(p, INTEGERS))
            if not self._smt.group_after(values, ranking, [bound - 1, *rest]):
                raise ProofError(f"the bound of the undecided rows at {values} does not hold")
            lower = min(lower, bound)
        return Proof(
            configurations=space.allowed.size,
            excluded=space.excluded,
            undecided=rows,
            lower_bound=lower,
        )


def _in_time(deadline: Deadline) -> None:
    if deadline.passed:
        raise OutOfTime


def _groups(cover: Cover) -> Iterator[tuple[int, tuple[list[int], int]]]:
    return enumerate(zip(cover.best.tolist(), cover.how.tolist(), strict=True))


def _after(bounds: tuple[Ticks, ...], ranking: Ranking, ranks: Sequence[int]) -> Mask:
    """Whose lower bounds come after ``ranks``; of a score only what is clearly so."""
    if ranking.weights:
        return np.asarray(ranking.approximate(bounds) > ranks[0] * (1 + SLACK))
    after = np.zeros(len(bounds[0]), dtype=bool)
    equal = ~after
    for bound, rank in zip(ranking.ranks(bounds), ranks, strict=True):
        after |= equal & (bound > rank)
        equal &= bound == rank
    return after


def _beater(values: tuple[Ticks, ...], points: Ticks, least: int) -> Ticks:
    """Index of a point that is nowhere worse than each of ``values``, -1 without. Shape [N]."""
    found = np.full(len(values[0]), -1, dtype=np.int64)
    for at, point in enumerate(points):
        nowhere_worse = values[0] >= max(least, point[0])
        for i in range(1, len(AXES)):
            nowhere_worse &= values[i] >= point[i]
        found[nowhere_worse] = at
    return found


def _listed(work: Ticks, kernel: Ticks, claims: Sequence[Row]) -> list[int]:
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
    time, wait = price(table, work, kernel)
    values = (time, wait, table.kernels.smem_bytes[kernel], table.kernels.registers[kernel])
    left_out = set(without)
    nearest = np.lexsort((values[ranking.order[1]], ranking.approximate(values)))
    return [int(i) for i in nearest if i not in left_out]


def _row(table: Table, work: int, kernel: int) -> list[int]:
    """A row's numbers in ``solver.smt.ROW``'s order."""
    w, k = table.works, table.kernels
    numbers = [
        w.load[work],
        w.latency[work],
        w.math[work],
        w.early[work],
        w.epilogue[work],
        k.slots[kernel],
        w.iterations[work],
        w.units[work],
        w.waves[work],
        w.fixed[work] + k.setup[kernel] + w.store[work],
        k.smem_bytes[kernel],
        k.registers[kernel],
    ]
    return [*map(int, numbers), config_code(table.config(work, kernel))]
