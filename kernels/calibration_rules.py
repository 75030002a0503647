"""Why a calibration is not taken: what the GPU was doing, what the rows show, what came out.

Pure: facts in, a refusal or None out. ``kernels.calibrate`` gathers the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kernels.host import GpuUse
from kernels.sweep_runner import Figures

GPU_SHARED, GPU_THROTTLED, CLOCK_HELD = "gpu_shared", "gpu_throttled", "clock_held"
ROWS_FAILED, NOISY, PREDICTS_WORSE = "rows_failed", "noisy", "predicts_worse"
UNFIT = "unfit"
REASONS = (GPU_SHARED, GPU_THROTTLED, CLOCK_HELD, ROWS_FAILED, NOISY, PREDICTS_WORSE, UNFIT)

BUSY = 0.05
"""Utilisation that a GPU may show before anything of ours runs."""
HELD_REASONS = (
    "application_clocks",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
)
"""The driver's reasons for a lower clock that are no part of the model, as the power cap is."""
HELD_ROWS = 0.05
"""The part of the rows that may show one of these."""
SHORT_US = 100.0
LEAST_CLOCK = 0.96
"""Short launches draw little power and run at the highest clock, or something holds it down."""
APART = 0.02
"""How far two measurements of a row may be apart, in the median."""
FAILED = 0.1
"""The part of the rows that may fail."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why, as one word for programs and as a sentence with its figures."""

    reason: str
    details: str


def of_use(use: GpuUse) -> Refusal | None:
    """A GPU that others use, or that is held back before anything runs.

    A context says nothing where the driver tells how busy the GPU is: a service keeps one in a
    process that waits.
    """
    if use.busy is not None and use.busy > BUSY:
        return Refusal(
            GPU_SHARED,
            f"the GPU is {use.busy:.0%} busy with work of others; at most {BUSY:.0%} may be",
        )
    if use.busy is None and use.others:
        who = "another process has" if use.others == 1 else f"{use.others} other processes have"
        words = f"{who} a context on the GPU, and the driver doesn't tell how busy it is"
        return Refusal(GPU_SHARED, words)
    held = [word for word in use.throttle if word in HELD_REASONS]
    if held:
        return Refusal(GPU_THROTTLED, f"the driver holds the clock down: {', '.join(held)}")
    return None


def of_rows(figures: Sequence[Figures], highest_clock_mhz: int | None) -> Refusal | None:
    """Rows that failed, or were measured while the clock was held down."""
    failed = [f for f in figures if f.reason is not None]
    if len(failed) > FAILED * len(figures):
        return Refusal(
            ROWS_FAILED,
            f"{len(failed)} of {len(figures)} rows failed, the first with {failed[0].reason}",
        )
    for word in HELD_REASONS:
        held = sum(word in f.throttle for f in figures)
        if held > HELD_ROWS * len(figures):
            return Refusal(
                GPU_THROTTLED,
                f"{held} of {len(figures)} rows ran while the driver held the clock down: {word}",
            )
    clocks = [
        f.sm_clock_mhz
        for f in figures
        if f.sm_clock_mhz and f.median_us is not None and f.median_us < SHORT_US
    ]
    if highest_clock_mhz and clocks and median(clocks) < LEAST_CLOCK * highest_clock_mhz:
        return Refusal(
            CLOCK_HELD,
            f"short launches ran at {median(clocks):.0f} MHz, the GPU's highest clock is "
            f"{highest_clock_mhz} MHz: something holds it down",
        )
    return None


def of_repeats(first: Mapping[int, float], again: Mapping[int, float]) -> Refusal | None:
    """Rows whose second time, in µs by their place, is another than the first."""
    apart = [abs(again[row] / first[row] - 1) for row in again if row in first]
    if not apart:
        return Refusal(ROWS_FAILED, "no row could be measured twice")
    if median(apart) > APART:
        return Refusal(
            NOISY,
            f"two measurements of a row are {median(apart):.1%} apart in the median of "
            f"{len(apart)} rows, at most {APART:.0%} may be: the GPU is shared, or its clock moves",
        )
    return None


def of_errors(present: float, calibrated: float, rows: int) -> Refusal | None:
    """Constants that predict fresh rows worse than those they would stand in for."""
    if calibrated > present:
        return Refusal(
            PREDICTS_WORSE,
            f"over {rows} fresh rows it is {calibrated:.2%} off on average, the present profile "
            f"{present:.2%}: that stays",
        )
    return None


def of_profile(why_unfit: str | None) -> Refusal | None:
    """A profile that could not stand in once it were stored (``solver.device.why_unfit``)."""
    return None if why_unfit is None else Refusal(UNFIT, f"what was fitted is none: {why_unfit}")
