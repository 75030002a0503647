"""How far predictions are from a ground truth's rows, and what taking the first of them costs.

Arithmetic alone: rows come from ``solver.ground_truth``, which of them count is decided by
``solver.split``, predictions are columns of times, the model's and others'. What is told and how it
is meant: ``docs/accuracy.md``. Errors and regrets are fractions; times are in µs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.ground_truth import GroundTruthGroup
from solver.problem import Problem
from solver.row_price import price_rows
from solver.split import SPLITS, held_out
from solver.units import TICKS_PER_US

MODEL = "model"
NOISY = 0.05
"""A row is noisy whose repeat, or the 95th percentile of whose replays, is further than this from
its median."""

FITTED, HELD_OUT = "fitted", "held_out"
M_CLASSES = (1, 16, 64, 128, 511, 4095)
"""The last m of each class but the open one."""

LINE_BYTES = 128
ODD, UNALIGNED, LAYOUT, OUTPUT, PLAIN = "odd_pitch", "unaligned", "layout", "output", "plain"
KINDS = (PLAIN, ODD, UNALIGNED, LAYOUT, OUTPUT)
FIRST_ROWS = (1, 2, 3, 5, 10, 20, 50)
"""The k of "the best of the first k by prediction"."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def m_class(m: int) -> str:
    """The class of m by name, e.g. 2-16."""
    low = 1
    for last in M_CLASSES:
        if m <= last:
            return str(last) if low == last else f"{low}-{last}"
        low = last + 1
    return f"{low}-"


def m_classes() -> tuple[str, ...]:
    """All classes of m, ascending."""
    return tuple(m_class(m) for m in (*M_CLASSES, M_CLASSES[-1] + 1))


def kinds_of(problem: Problem) -> tuple[str, ...]:
    """What is special of a problem, of KINDS; ``plain`` where nothing is.

    unaligned: some line of A, B or C does not start on 16 bytes. odd_pitch: none so, and lines of A
    or B are no multiple of 128 bytes. layout: another than tn. output: C of another type.
    """
    kinds = []
    if not all(matrix.aligned for matrix in (problem.a, problem.b, problem.c)):
        kinds.append(UNALIGNED)
    elif any(
        matrix.lines > 1 and matrix.pitch * matrix.element_bytes % LINE_BYTES
        for matrix in (problem.a, problem.b)
    ):
        kinds.append(ODD)
    if problem.layout != "tn":
        kinds.append(LAYOUT)
    if problem.out != problem.dtype:
        kinds.append(OUTPUT)
    return tuple(kinds) or (PLAIN,)


@dataclass(frozen=True, slots=True)
class Scored:
    """A group's rows beside what was predicted of them.

    ``predicted`` has a column of µs for each predictor, NaN where it says nothing; ``order`` the
    rows as each predictor would take them, first the one that it takes. ``split`` holds, for each
    of SPLITS, which rows it holds out.
    """

    group: GroundTruthGroup
    predicted: Mapping[str, Floats]
    order: Mapping[str, Any]
    split: Mapping[str, Mask]

    @property
    def shape_held_out(self) -> bool:
        """Whether the whole shape is held out."""
        return bool((self.split["shape"] | self.split["both"]).any())

    def rows(self, which: str) -> Mask:
        """The rows that are FITTED, or HELD_OUT."""
        held: Mask = np.logical_or.reduce([self.split[name] for name in SPLITS])
        return held if which == HELD_OUT else ~held


Predictor = Callable[[GroundTruthGroup], Floats]


def score(
    group: GroundTruthGroup, device: DeviceProfile, others: Mapping[str, Predictor]
) -> Scored:
    """Predict a group's rows by the model, and by others' columns of µs."""
    time, wait = price_rows(group.problem, device, group.columns, cold=group.cold)
    smem_bytes = family.smem_bytes(group.columns, group.problem.element_bytes)
    predicted: dict[str, Floats] = {MODEL: time / TICKS_PER_US}
    order = {MODEL: np.lexsort((smem_bytes, wait, time))}
    for name, predictor in others.items():
        column = predicted[name] = predictor(group)
        order[name] = np.lexsort((smem_bytes, column))
    return Scored(group, predicted, order, held_out(group.problem, group.columns))


def noise_of(group: GroundTruthGroup) -> Floats:
    """How far apart two measurements of each row are, as a part of the first; NaN of those measured
    once. Shape [R]."""
    apart: Floats = np.abs(group.repeat_us / group.measured_us - 1)
    return apart


def is_noisy(group: GroundTruthGroup) -> Mask:
    """Rows of which NOISY is exceeded, by their repeat or among their replays. Shape [R]."""
    spread = group.p95_us / group.measured_us - 1
    with np.errstate(invalid="ignore"):
        noisy: Mask = (noise_of(group) > NOISY) | (spread > NOISY)
    return noisy


def error_figures(errors: Floats) -> dict[str, Any]:
    """Rows, mean, 95th percentile (linear interpolation) and maximum of absolute relative errors;
    None each where there is no row. NaN are left out."""
    errors = errors[~np.isnan(errors)]
    if not errors.size:
        return {"rows": 0, "mean_ape": None, "p95_ape": None, "max_ape": None}
    return {
        "rows": int(errors.size),
        "mean_ape": float(errors.mean()),
        "p95_ape": float(np.percentile(errors, 95)),
        "max_ape": float(errors.max()),
    }


def geomean(values: Sequence[float] | Floats) -> float:
    """Geometric mean of at least one value."""
    return float(np.exp(np.log(np.asarray(values, dtype=float)).mean()))


def ratio_figures(ratios: Sequence[float]) -> dict[str, Any]:
    """How many shapes, geometric mean and worst of regrets (1 is none)."""
    if not len(ratios):
        return {"shapes": 0, "geomean": None, "worst": None}
    return {"shapes": len(ratios), "geomean": geomean(ratios), "worst": float(max(ratios))}


@dataclass(frozen=True, slots=True)
class _Flat:
    """Rows of several groups, one after another."""

    chosen: Mask
    errors: Mapping[str, Floats]
    noisy: Mask
    m: Any
    role: Any
    suite: Any
    kinds: Mapping[str, Mask]
    split: Mapping[str, Mask]


def _flat(scored: Sequence[Scored], which: str) -> _Flat:
    names = list(scored[0].predicted)
    sizes = [len(s.group.measured_us) for s in scored]

    def each(value: Callable[[Scored], Any]) -> Any:
        return np.repeat([value(s) for s in scored], sizes)

    def errors(s: Scored, name: str) -> Floats:
        apart: Floats = np.abs(s.predicted[name] / s.group.measured_us - 1)
        return apart

    def of_kind(kind: str) -> Any:
        return each(lambda s: kind in kinds_of(s.group.problem))

    return _Flat(
        chosen=np.concatenate([s.rows(which) for s in scored]),
        errors={name: np.concatenate([errors(s, name) for s in scored]) for name in names},
        noisy=np.concatenate([is_noisy(s.group) for s in scored]),
        m=each(lambda s: m_class(s.group.problem.m)),
        role=np.concatenate([s.group.role for s in scored]),
        suite=each(lambda s: s.group.suite),
        kinds={kind: of_kind(kind) for kind in KINDS},
        split={name: np.concatenate([s.split[name] for s in scored]) for name in SPLITS},
    )


def part_figures(scored: Sequence[Scored], which: str = HELD_OUT) -> dict[str, Any]:
    """Errors over the rows of some groups that are held out (or FITTED), noisy ones among them.

    Beside the figures themselves: ``quiet``, without noisy rows; ``noise`` of what was repeated, of
    all rows; by split, m class, kind, suite and role; the worst row; ``peers`` by name, of these
    rows those for which each has a prediction, with the model's over just these. A peer's
    ``scaled`` errors: ``scaled_errors``.
    """
    if not scored:
        return error_figures(np.array([]))
    flat = _flat(scored, which)
    mine = flat.errors[MODEL]

    scaled = {name: scaled_errors(scored, name) for name in flat.errors if name != MODEL}

    def peers(mask: Mask) -> dict[str, Any]:
        found = {}
        for name, errors in scaled.items():
            if np.isnan(flat.errors[name]).all():
                continue
            theirs = error_figures(flat.errors[name][mask])
            found[name] = theirs | {"scaled": error_figures(errors[mask])}
        return found

    def among(masks: Mapping[str, Mask]) -> dict[str, Any]:
        parts = {name: flat.chosen & mask for name, mask in masks.items()}
        return {
            name: error_figures(mine[mask]) | {"peers": peers(mask)}
            for name, mask in parts.items()
            if mask.any()
        }

    figures: dict[str, Any] = error_figures(mine[flat.chosen])
    figures["quiet"] = error_figures(mine[flat.chosen & ~flat.noisy])
    figures["noise"] = noise_figures([s.group for s in scored])
    figures["by_split"] = among(flat.split) if which == HELD_OUT else {}
    figures["by_m"] = among({name: flat.m == name for name in m_classes()})
    figures["by_kind"] = among(flat.kinds)
    figures["by_suite"] = among({name: flat.suite == name for name in np.unique(flat.suite)})
    figures["by_role"] = among({name: flat.role == name for name in np.unique(flat.role)})
    figures["worst"] = _worst(scored, which)
    figures["peers"] = peers(flat.chosen)
    for name, theirs in figures["peers"].items():
        said = flat.chosen & ~np.isnan(flat.errors[name])
        theirs["model_on_the_same"] = error_figures(mine[said])
    return figures


def scaled_errors(scored: Sequence[Scored], predictor: str) -> Floats:
    """A predictor's errors over all rows of some groups when all of its times are multiplied by one
    constant: that of the least mean error over fitted rows. It was made for other kernels.
    """
    ratios = np.concatenate([s.predicted[predictor] / s.group.measured_us for s in scored])
    fitted = ratios[np.concatenate([s.rows(FITTED) for s in scored]) & ~np.isnan(ratios)]
    if not fitted.size:
        return np.full(len(ratios), np.nan)
    # The mean of |scale·ratio - 1| is least at the median of 1/ratio, each weighing its ratio.
    fitted = np.sort(fitted)[::-1]
    middle = np.searchsorted(np.cumsum(fitted), fitted.sum() / 2)
    errors: Floats = np.abs(ratios / fitted[middle] - 1)
    return errors


def noise_figures(groups: Sequence[GroundTruthGroup]) -> dict[str, Any]:
    """How many rows were measured twice, and the median and 95th percentile of how far apart."""
    apart = np.concatenate([noise_of(group) for group in groups])
    apart = apart[~np.isnan(apart)]
    noisy = sum(int(is_noisy(group).sum()) for group in groups)
    if not apart.size:
        return {"rows": 0, "median": None, "p95": None, "noisy_rows": noisy}
    return {
        "rows": int(apart.size),
        "median": float(np.median(apart)),
        "p95": float(np.percentile(apart, 95)),
        "noisy_rows": noisy,
    }


def _worst(scored: Sequence[Scored], which: str) -> dict[str, Any] | None:
    """The row of the largest error."""
    worst: tuple[float, Scored, int] | None = None
    for s in scored:
        errors = np.abs(s.predicted[MODEL] / s.group.measured_us - 1)
        errors[~s.rows(which)] = -1
        at = int(errors.argmax())
        if errors[at] >= 0 and (worst is None or errors[at] > worst[0]):
            worst = (float(errors[at]), s, at)
    if worst is None:
        return None
    _, s, at = worst
    return {
        "suite": s.group.suite,
        **{name: getattr(s.group.problem, name) for name in ("m", "n", "k")},
        "config": {name: int(column[at]) for name, column in s.group.columns.items()},
        "predicted_us": float(s.predicted[MODEL][at]),
        "measured_us": float(s.group.measured_us[at]),
    }


def first_regret(scored: Scored, predictor: str, count: int = 1) -> float | None:
    """Measured time of the best of the first ``count`` rows that a predictor would take, over the
    best of all rows of the group. None where it predicts no row.

    A predictor that says the same of every row takes none of them: what drawing one evenly costs,
    the geometric mean, for one; for more, the mean of the best of so many drawn.
    """
    column, measured = scored.predicted[predictor], scored.group.measured_us
    known = ~np.isnan(column)
    if not known.any():
        return None
    best = measured.min()
    if len(column) > 1 and known.all() and np.ptp(column) == 0:
        return _drawn_regret(measured, count)
    order = scored.order[predictor]
    taken = order[known[order]][:count]
    return float(measured[taken].min() / best)


def _drawn_regret(measured: Floats, count: int) -> float:
    """Geometric mean of the best of ``count`` rows drawn without putting back, over the best."""
    logs = np.sort(np.log(measured / measured.min()))
    size = len(logs)
    # P(the least of the drawn is the i-th smallest), from P(all drawn are among the later ones).
    later = np.ones(size + 1)
    for i in range(size):
        left = size - i - 1
        later[i + 1] = 0.0 if left < count else later[i] * (left - count + 1) / (left + 1)
    return float(np.exp((logs * (later[:-1] - later[1:])).sum())) if count < size else 1.0


def measured_regret(scored: Sequence[Scored], which: str = HELD_OUT) -> dict[str, Any]:
    """Regret among the rows of cold groups, by predictor: ``first`` is the row that it takes,
    ``of_first`` the geometric mean of the best of its first k, k in FIRST_ROWS.

    The groups are those whose shape is held out (or FITTED): all of their rows may be taken. Unlike
    the raced regret it knows the pick of these rows alone, and times of one pass each.
    """
    groups = [s for s in scored if s.group.cold and s.shape_held_out == (which == HELD_OUT)]
    figures = {}
    for name in groups[0].predicted if groups else ():
        by_count = {
            k: [r for s in groups if (r := first_regret(s, name, k)) is not None]
            for k in FIRST_ROWS
        }
        if not by_count[1]:
            continue
        figures[name] = ratio_figures(by_count[1]) | {
            "of_first": {str(k): geomean(r) for k, r in by_count.items() if r}
        }
    return figures
