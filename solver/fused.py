"""What recorded races say of advice and model: the arithmetic of ``warpwright bench fused``.

A problem's measured gain is the fastest of its rival's kinds over the fastest specialised kernel;
within TIE of 1 it is a tie, which decides nothing. Problems that are held out of every fit are
told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from solver.advice import thresholds
from solver.advice.advise import AGAINST, SPECIALISE, UNDECIDED, Verdict
from solver.calibration.rows import Floats
from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation_advice import advise_problem
from solver.families.norm_activation_rivals import DEFAULT_RIVAL, RIVALS
from solver.norm_record import NormRace

TIE = thresholds.TIE.value
"""What a gain may be off 1 and still decide nothing."""
HEADLINE = DEFAULT_RIVAL
VERDICTS = (SPECIALISE, AGAINST, UNDECIDED)
HELD_OUT = (
    *("decided", "undecided", "coverage", "advice_right", "right_when_yes", "right_when_no"),
    *("advice_right_all", "sign_right"),
)
"""Figures of advice that are given for what is held out, too."""
Sign = Literal["wins", "loses", "ties"]
SIGNS: tuple[Sign, ...] = ("wins", "loses", "ties")
RIGHT: dict[Sign, Verdict] = {"wins": SPECIALISE, "loses": AGAINST}
"""What advice must say of each sign of the measured gain."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A race, what the model predicts of its rows (µs, as an answer would: with blocks by its own
    count), and what advice says against each of RIVALS: its verdict, and the gain that it expects,
    None where no divided kernel is legal."""

    race: NormRace
    predicted_us: Floats
    verdicts: Mapping[str, Verdict]
    expected: Mapping[str, float | None]

    def fastest(self, *kinds: str) -> int | None:
        """The row of these kinds that was fastest; None where none was measured."""
        rows = np.flatnonzero(np.isin(self.race.kinds, kinds))
        return int(rows[self.race.measured_us[rows].argmin()]) if rows.size else None

    def least_us(self, *kinds: str) -> float | None:
        """Its measured time in µs."""
        row = self.fastest(*kinds)
        return None if row is None else float(self.race.measured_us[row])

    def gain(self, rival: str) -> float | None:
        """Measured gain of divided warps against a rival; None where one of them has no row."""
        other, divided = self.least_us(*RIVALS[rival]), self.least_us("specialised")
        return None if other is None or divided is None else other / divided

    def sign(self, rival: str) -> Sign | None:
        """Which side of a tie the measured gain is on."""
        gain = self.gain(rival)
        if gain is None:
            return None
        return "ties" if abs(gain - 1) <= TIE else "wins" if gain > 1 else "loses"

    @property
    def errors(self) -> Floats:
        """Absolute relative error of each row's predicted time. Shape [R]."""
        off: Floats = np.abs(self.predicted_us / self.race.measured_us - 1)
        return off

    @property
    def regret(self) -> float:
        """Measured time of the row that the model picks over the fastest."""
        return self.race.regret(self.predicted_us)

    @property
    def natural(self) -> bool:
        """Whether as many warps were on an SM as fit."""
        return self.race.warps_per_sm is None


def outcomes(
    races: Sequence[NormRace],
    device: DeviceProfile,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[Outcome]:
    """Each race with its predictions and advice, which is asked for as if the race itself had not
    been run. Raises Unsupported without the model's constants.

    ``progress`` is told (races done, all).
    """
    found = []
    for done, race in enumerate(races, start=1):
        cache = "cold" if race.cold else "warm"
        said = {
            rival: advise_problem(
                race.problem,
                device,
                cache,
                warps_per_sm=race.warps_per_sm,
                rival=rival,
                unseen=True,
            ).advice
            for rival in RIVALS
        }
        found.append(
            Outcome(
                race,
                race.predicted_us(device, counted=True),
                {rival: advice.verdict for rival, advice in said.items()},
                {
                    rival: None if advice.gain is None else advice.gain.expected
                    for rival, advice in said.items()
                },
            )
        )
        progress(done, len(races))
    return found


def advice_figures(found: Sequence[Outcome], rival: str) -> dict[str, Any]:
    """How often advice against a rival was right, and where it was not.

    ``decided`` problems are those whose measured gain is no tie; ``undecided`` those of them for
    which advice has no verdict, ``coverage`` the part for which it has one. ``advice_right`` is of
    the latter, ``right_when_yes`` of those that specialising won, ``right_when_no`` of those that
    it lost; the same with ``_all`` of all decided ones, where no verdict is a wrong one.
    ``sign_right``: of all decided ones, where the expected gain is on the measured gain's side of
    1. None where there is none.
    """
    confusion = {verdict: dict.fromkeys(SIGNS, 0) for verdict in VERDICTS}
    for outcome in found:
        if (sign := outcome.sign(rival)) is not None:
            confusion[outcome.verdicts[rival]][sign] += 1
    right = {sign: confusion[verdict][sign] for sign, verdict in RIGHT.items()}
    decided = {sign: sum(row[sign] for row in confusion.values()) for sign in RIGHT}
    advised = {sign: decided[sign] - confusion[UNDECIDED][sign] for sign in RIGHT}
    signs = [
        expected > 1 if sign == "wins" else expected <= 1
        for outcome in found
        if (sign := outcome.sign(rival)) in RIGHT
        and (expected := outcome.expected[rival]) is not None
    ]
    every = sum(decided.values())
    gains = [gain for outcome in found if (gain := outcome.gain(rival)) is not None]
    return {
        "decided": every,
        "undecided": every - sum(advised.values()),
        "coverage": _share(sum(advised.values()), every),
        **_rights(right, advised, ""),
        **_rights(right, decided, "_all"),
        "sign_right": _share(sum(signs), every),
        "specialised_wins": decided["wins"],
        "confusion": confusion,
        "gain_median": float(np.median(gains)) if gains else None,
        "gain_least": min(gains, default=None),
        "gain_most": max(gains, default=None),
    }


def _rights(right: Mapping[Sign, int], of: Mapping[Sign, int], end: str) -> dict[str, Any]:
    return {
        f"advice_right{end}": _share(sum(right.values()), sum(of.values())),
        f"right_when_yes{end}": _share(right["wins"], of["wins"]),
        f"right_when_no{end}": _share(right["loses"], of["loses"]),
    }


def model_figures(found: Sequence[Outcome]) -> dict[str, Any]:
    """How far predicted times are off, over all rows, and what the model's picks cost."""
    off = np.concatenate([outcome.errors for outcome in found]) if found else np.empty(0)
    regrets = [outcome.regret for outcome in found]
    return {
        "rows": int(off.size),
        "mean_ape": float(off.mean()) if off.size else None,
        "p95_ape": float(np.percentile(off, 95)) if off.size else None,
        "max_ape": float(off.max()) if off.size else None,
        "regret_mean": float(np.mean(regrets)) if regrets else None,
        "regret_worst": max(regrets, default=None),
    }


def problem_figures(outcome: Outcome) -> dict[str, Any]:
    """A problem's least measured time by kind in µs, and its gain against HEADLINE, measured and
    predicted over the same race's rows."""
    race = outcome.race
    rows = {kind: np.flatnonzero(race.kinds == kind) for kind in family.KINDS}
    likes = np.flatnonzero(np.isin(race.kinds, RIVALS[HEADLINE]))
    both = likes.size and rows["specialised"].size
    predicted = outcome.predicted_us
    return {
        **race.problem.to_dict(),
        "warps_per_sm": race.warps_per_sm,
        "held_out": race.held_out,
        **{f"{kind}_us": outcome.least_us(kind) for kind in family.KINDS},
        "gain": outcome.gain(HEADLINE),
        "gain_predicted": float(predicted[likes].min() / predicted[rows["specialised"]].min())
        if both
        else None,
        "advice": outcome.verdicts[HEADLINE],
        "regret": outcome.regret,
        "mean_ape": float(outcome.errors.mean()),
    }


def figures(found: Sequence[Outcome]) -> dict[str, Any]:
    """``problems`` and what advice and model are worth over them; advice against HEADLINE, and
    against every rival in ``against``. None where nothing is held out."""
    held = [outcome for outcome in found if outcome.race.held_out]
    against = {
        rival: {**advice_figures(found, rival), "heldout": advice_figures(held, rival)}
        for rival in RIVALS
    }
    headline, unseen, model = against[HEADLINE], against[HEADLINE]["heldout"], model_figures(held)
    return {
        "problems": len(found),
        "problems_heldout": len(held),
        "headline": HEADLINE,
        **{name: value for name, value in headline.items() if name != "heldout"},
        **{f"{name}_heldout": unseen[name] for name in HELD_OUT},
        "specialised_wins_natural": _wins(found, natural=True),
        **model_figures(found),
        **{f"{name}_heldout": value for name, value in model.items()},
        "against": against,
    }


def _wins(found: Sequence[Outcome], *, natural: bool) -> int:
    return sum(each.sign(HEADLINE) == "wins" for each in found if each.natural == natural)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
