"""A pick's measurement held to the lock's and to the fastest of other candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.picks.step import Status, Step
from app.schemas.locks import LockedMeasurement
from kernels.sources import copy_hash, source_hash
from kernels.statistics import Interval
from kernels.verify import Reason
from solver.objective import Objective, Pareto
from solver.question import Question
from solver.report import config_words

CANCELLED = "requested"
"""The reason of a job that was cancelled, which has no details."""
NOT_THE_PICKS = (
    Reason.ENVIRONMENT,
    Reason.WORKER_LOST,
    Reason.OUT_OF_MEMORY,
    "unreadable",
    "internal_error",
    CANCELLED,
)
"""Reasons of a verification that say nothing of the kernel."""

Result = Mapping[str, Any]


def numerics(status: str, reason: str | None, result: Result, elapsed_s: float) -> Step:
    """Whether the kernel ran and made the right product."""
    if status == "passed":
        words = (
            f"every element of {result['exact_draws']} exact draws, and a relative error of "
            f"{result['rel_error']:.1e} on random values"
        )
        figures = {name: result[name] for name in ("exact_draws", "rel_error", "kernel_id")}
        return Step("numerics", Status.HOLDS, words, elapsed_s, figures)
    unsaid = "somebody cancelled its job" if reason == CANCELLED else "no details"
    details = str(result.get("details") or unsaid)
    ended = Status.LACKS if reason in NOT_THE_PICKS else Status.FAILS
    return Step("numerics", ended, f"{reason}: {details}", elapsed_s, {"reason": reason})


def measurement(result: Result) -> dict[str, Any]:
    """What the lock keeps of a result that passed."""
    reference = None
    if result["ratio_to_cublas"] is not None:
        reference = {
            "name": result["comparison"],
            "ratio": result["ratio_to_cublas"],
            "low": result["ratio_low"],
            "high": result["ratio_high"],
        }
    return {
        "gpu": result["device"],
        "driver": result["driver"],
        "nvrtc": result["nvrtc"],
        "kernel_source_hash": source_hash(),
        "copy_source_hash": copy_hash(),
        "time_us": result["median_us"],
        "low_us": result["median_low_us"],
        "high_us": result["median_high_us"],
        "rounds": result["replays"],
        "reference": reference,
    }


def kept(before: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The old measurement where the new one, on the same GPU with the same software, does not
    differ from it by what either interval shows; else the new one. A lock that is made again then
    has no changes that are none."""
    if before is None:
        return new
    same = all(
        before[name] == new[name]
        for name in ("gpu", "driver", "nvrtc", "kernel_source_hash", "copy_source_hash")
    )
    if same and before["low_us"] <= new["high_us"] and new["low_us"] <= before["high_us"]:
        return before
    return new


def time_against(locked: LockedMeasurement | None, result: Result, tolerance: float) -> Step:
    """The median time over this run's rounds against the lock's.

    It fails where the interval of their quotient lies above 1 + ``tolerance``, unless cuBLAS, timed
    in turn with the pick both times, took as much longer: then the machine is slower.
    """
    if locked is None:
        words = "the lock has no measured time: `warpwright lock` with --gpu or --server adds it"
        return Step("time", Status.LACKS, words)
    if locked.gpu != result["device"]:
        words = f"the lock's times are of {locked.gpu}, this is {result['device']}"
        return Step("time", Status.LACKS, words)
    now = Interval(result["median_us"], result["median_low_us"], result["median_high_us"])
    then = Interval(locked.time_us, locked.low_us, locked.high_us)
    slowdown = now.over(then)
    words = (
        f"{now.value:.2f} µs against the lock's {then.value:.2f}: {_change(slowdown)}; "
        f"{tolerance:.1%} more is allowed"
    )
    figures: dict[str, Any] = {
        "time_us": now.value,
        "locked_us": then.value,
        "ratio": slowdown.value,
        "low": slowdown.low,
        "high": slowdown.high,
        "rounds": result["replays"],
    }
    shown = slowdown.within(1 + tolerance)
    beside = _beside(locked, result)
    if beside is not None:
        figures["beside_reference"] = {"low": beside.low, "high": beside.high}
        if shown is False and beside.within(1 + tolerance) is True:
            words += (
                f"; beside {result['comparison']} it is {_change(beside)}: the machine is slower"
            )
            return Step("time", Status.HOLDS, words, 0.0, figures)
    if shown is False:
        changed = _software(locked, result)
        words = f"slower: {words}" + (f"; since the lock: {changed}" if changed else "")
        return Step("time", Status.FAILS, words, 0.0, figures)
    if shown is None:
        words += "; the interval is too wide to tell, which is no failure"
    return Step("time", Status.HOLDS, words, 0.0, figures)


def regret(question: Question, result: Result, tolerance: float) -> Step:
    """The pick's time over that of the fastest of other candidates, from rounds in turn."""
    if not _by_time(question.objective):
        words = "not asked: the objective does not put time first"
        return Step("regret", Status.SKIPPED, words)
    if any(bound.variable == "sms" for bound in question.constraints.bounds):
        words = "not asked: the pick is for fewer SMs than it is timed on"
        return Step("regret", Status.SKIPPED, words)
    against = result.get("against")
    if against is None:
        return Step("regret", Status.SKIPPED, "there is no other candidate")
    if against["failure"] is not None:
        words = (
            f"the fastest of {len(against['tried'])} others, {config_words(against['config'])}, "
            f"gives a wrong result: {against['failure']}"
        )
        return Step("regret", Status.FAILS, words)
    if against["ratio"] is None:
        return Step("regret", Status.LACKS, str(against["note"]))
    behind = Interval(against["ratio"], against["low"], against["high"]).inverse
    words = (
        f"{_change(behind)} the time of the fastest of {len(against['tried'])} others, "
        f"{config_words(against['config'])}, over {against['rounds']} rounds in turn; "
        f"{tolerance:.1%} more is allowed"
    )
    figures = {
        "ratio": behind.value,
        "low": behind.low,
        "high": behind.high,
        "rounds": against["rounds"],
        "config": against["config"],
    }
    shown = behind.within(1 + tolerance)
    if shown is False:
        return Step("regret", Status.FAILS, f"not the fastest: {words}", 0.0, figures)
    if shown is None:
        words += "; the interval is too wide to tell, which is no failure"
    return Step("regret", Status.HOLDS, words, 0.0, figures)


def _beside(locked: LockedMeasurement, result: Result) -> Interval | None:
    """How much slower the pick is beside the library that was timed in turn with it."""
    reference = locked.reference
    if reference is None or result["ratio_to_cublas"] is None:
        return None
    if reference.name != result["comparison"]:
        return None
    then = Interval(reference.ratio, reference.low, reference.high)
    now = Interval(result["ratio_to_cublas"], result["ratio_low"], result["ratio_high"])
    return then.over(now)


def _software(locked: LockedMeasurement, result: Result) -> str:
    """What else than the pick is not what it was."""
    pairs = (
        ("driver", locked.driver, result["driver"]),
        ("NVRTC", locked.nvrtc, result["nvrtc"]),
        ("kernel sources", locked.kernel_source_hash[:12], source_hash()[:12]),
    )
    return ", ".join(f"{name} {then} → {now}" for name, then, now in pairs if then != now)


def _by_time(objective: Objective) -> bool:
    return not isinstance(objective, Pareto) and objective.ranking.names[0] == "time"


def _change(ratio: Interval) -> str:
    """A ratio as a change, with its interval."""
    return f"{ratio.value - 1:+.1%} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%})"
