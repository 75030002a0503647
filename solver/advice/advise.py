"""Whether to divide a kernel's warps into producers and consumers: a verdict with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from solver.advice import steps
from solver.advice import thresholds as given
from solver.advice.figures import KernelFigures
from solver.advice.finding import UNKNOWN, Reason, Step, rounded
from solver.advice.gain import gain_over, present_us
from solver.advice.rates import rates_of
from solver.advice.situation import Situation, situation_of
from solver.advice.thresholds import Range
from solver.device import DeviceProfile

Verdict = Literal["specialise", "no", "undecided"]
SPECIALISE: Verdict = "specialise"
AGAINST: Verdict = "no"
UNDECIDED: Verdict = "undecided"

Source = Literal["figures", "model", "races"]
BY_FIGURES: Source = "figures"
BY_MODEL: Source = "model"
BY_RACES: Source = "races"
SOURCES: Mapping[Source, str] = {
    BY_FIGURES: "its figures",
    BY_MODEL: "the model",
    BY_RACES: "races beside it",
}
"""What an answer is by, in words."""
ALTERNATIVE = (
    "asynchronous copies several chunks ahead, into a ring that like warps fill themselves: "
    "cp.async, or bulk copies from sm_90 on. On one H200, over 96 problems of norm_activation, "
    "such kernels took 0.94 to 1.11 times the time of divided warps (1.02 times in the median): "
    "where a kernel waits on loads, try it first"
)
CAVEAT = (
    "On one H200, over 96 problems of norm_activation, divided warps took 0.91 to 1.11 times the "
    "time of the best like warps, a ring of theirs included (0.99 times in the median): at natural "
    "occupancy they won 3 of 24 problems, by 2 to 3 %, with few warps on an SM 35 of 72, by up to "
    "10 %."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """A verdict for one kernel on one device.

    ``reasons`` are all those against; ``missing`` the figures that would decide an undecided one.
    ``gain`` is present time over the divided kernel's, ``alternative_gain`` over that of like warps
    with deep asynchronous copies; None where a stage's time is not known, or is less than what a
    launch pays once. ``source`` says what the
    answer is by.
    """

    verdict: Verdict
    steps: tuple[Step, ...]
    reasons: tuple[Reason, ...]
    missing: tuple[str, ...]
    present_us: Range | None
    gain: Range | None
    alternative_gain: Range | None
    figures: KernelFigures
    device: DeviceProfile
    source: Source = BY_FIGURES
    gain_rests_on: str = given.DIVIDED.source
    alternative_rests_on: str = given.LIKE.source

    @property
    def thresholds(self) -> tuple[given.Threshold, ...]:
        """Those of reasons that belong to no step."""
        least = given.GAIN if self.source == BY_FIGURES else given.TIE
        return given.SHORT, given.SERVED, least

    def to_dict(self) -> dict[str, Any]:
        """The advice as JSON-ready values."""
        present = None if self.present_us is None else _range(self.present_us)
        measured = self.figures.time_us is not None
        return {
            "verdict": self.verdict,
            "source": self.source,
            "steps": [step.to_dict() for step in self.steps],
            "reasons": [reason.to_dict() for reason in self.reasons],
            "missing": list(self.missing),
            "present_us": None if present is None else {**present, "measured": measured},
            "gain": None if self.gain is None else _range(self.gain),
            "gain_rests_on": self.gain_rests_on,
            "alternative": {
                "words": ALTERNATIVE,
                "gain": None if self.alternative_gain is None else _range(self.alternative_gain),
                "gain_rests_on": self.alternative_rests_on,
            },
            "caveat": CAVEAT,
            "thresholds": [limit.to_dict() for limit in self.thresholds],
            "figures": self.figures.to_dict(),
            "device": {"name": self.device.name, "title": self.device.title},
        }


def advise(figures: KernelFigures, device: DeviceProfile) -> Advice:
    """The advice for a kernel of these figures.

    Raises InvalidInput for a block that no SM of the device holds, Unsupported for a device that
    advice is not for.
    """
    s = situation_of(figures, rates_of(device))
    asked = (steps.waits_on_loads(s), steps.stages(s), steps.buffers(s))
    present = present_us(s, asked[0].outcome)
    gain = gain_over(present, given.DIVIDED, s)
    reasons, missing = _others(s, present, gain)
    reasons += [reason for step in asked for reason in step.reasons]
    missing += [name for step in asked for name in step.missing]
    unknown = any(step.outcome == UNKNOWN for step in asked)
    verdict = AGAINST if reasons else UNDECIDED if unknown or missing else SPECIALISE
    measured = figures.time_us is not None
    if {"short_kernel", "too_little_data"} & {reason.reason for reason in reasons}:
        gain = None  # what is paid once, which no stage has, would be most of the time
    return Advice(
        verdict=verdict,
        steps=asked,
        reasons=tuple(reasons),
        missing=tuple(dict.fromkeys(missing)) if verdict == UNDECIDED else (),
        present_us=present if measured or gain is not None else None,
        gain=gain,
        alternative_gain=None if gain is None else gain_over(present, given.LIKE, s),
        figures=figures,
        device=device,
    )


def _others(s: Situation, present: Range, gain: Range | None) -> tuple[list[Reason], list[str]]:
    """Reasons that belong to no step, and figures that would decide about them."""
    reasons, missing = [], []
    if s.loads_known:
        whole = s.figures.time_us is not None or s.compute_us is not None
        if whole and present.high <= given.SHORT.value:
            words = (
                f"Its stages take at most {present.high:.3g} µs: most of a launch is what it pays "
                "once, undivided."
                if s.figures.time_us is None
                else f"The launch takes {present.high:.3g} µs, and pays some of it once, undivided."
            )
            reasons.append(Reason("short_kernel", words))
        elif present.low <= given.SHORT.value:
            missing.append("time_us")
    if s.served_by_l2:
        words = "The L2 serves the loads: there is little latency to hide."
        reasons.append(Reason("served_by_l2", words))
    if gain is not None and gain.expected < given.GAIN.value:
        if s.figures.time_us is not None or gain.high < given.GAIN.value:
            words = (
                f"It would run {gain.expected:.3g} times as fast ({gain.low:.3g} to "
                f"{gain.high:.3g}): too little."
            )
            reasons.append(Reason("small_gain", words))
        else:
            missing.append("time_us")
    return reasons, missing


def _range(value: Range) -> dict[str, float | str | None]:
    return {
        "expected": rounded(value.expected),
        "low": rounded(value.low),
        "high": rounded(value.high),
    }
