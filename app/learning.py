"""What verifications of picks taught: which measured configurations beat the model's pick, and
whether the device has moved away from its profile."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.host import Host
from app.measured_answer import Winner
from app.ops import GEMM, op_of
from app.store.job import Job, Outcome, written
from app.store.measurements import Conditions, Measured, MeasurementStore, Raced
from app.verification import KIND
from app.winners import Winners
from kernels.drift import LATEST, Drift, drift_of
from kernels.errors import CompilerAbsent
from kernels.nvrtc import version as nvrtc_version
from kernels.sources import source_hash
from solver.calibration.rows import measured_over_predicted, timed_row
from solver.config import Config
from solver.device import DeviceProfile, families_of, load_profile
from solver.errors import InvalidInput, UnusableProfile
from solver.model_version import MODEL_VERSION
from solver.problem import Problem

log = logging.getLogger(__name__)


def conditions_of(host: Host) -> Conditions | None:
    """What measurements here hold for; None where nothing is measured: without a GPU that a kernel
    family runs on, or without the compiler."""
    if host.gpu is None or host.profile is None or not families_of(host.profile):
        return None
    try:
        nvrtc = nvrtc_version()
    except CompilerAbsent:
        return None
    return Conditions(host.profile, host.gpu.name, host.gpu.driver, nvrtc, source_hash())


class Learning:
    """What is remembered in one database, under ``conditions``; without these nothing is.

    ``winners`` are kept up with it. Any thread may call.
    """

    def __init__(self, store: MeasurementStore, conditions: Conditions | None) -> None:
        self._store = store
        self._conditions = conditions
        self.winners = Winners(None if conditions is None else conditions.profile)

    def load(self) -> None:
        """Read what is remembered; a row that can't be read is logged and counts for nothing.
        Raises StoreUnavailable."""
        if self._conditions is None:
            return
        for raced in self._store.races(self._conditions):
            try:
                self._adopt(raced)
            except (InvalidInput, AttributeError, KeyError, TypeError, ValueError) as error:
                log.error("measurement %d can't be read: %s", raced.number, error)

    def learn_from(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome of a job's run, with what it taught where it was a verification of a pick."""
        picked = job.kind == KIND and job.request.get("picked") is True
        picked = picked and op_of(job.request).name == GEMM  # of no other op it is remembered
        taught = self.remember(job.id, outcome) if picked else None
        return outcome if taught is None else replace(outcome, result=outcome.result | taught)

    def remember(self, verification_id: str, outcome: Outcome) -> dict[str, Any] | None:
        """Keep what a verification of a pick measured; what it taught, as its result has it. None
        where it did not pass, says too little of where it ran, or no profile says what to expect.

        Raises StoreUnavailable.
        """
        if outcome.status != "passed" or self._conditions is None:
            return None
        try:
            profile = load_profile(self._conditions.profile)
        except UnusableProfile as error:
            log.error("verification %s is not remembered: %s", verification_id, error)
            return None
        measured = _measured(verification_id, outcome.result, self._conditions, profile)
        if measured is None:
            return None
        raced = self._store.add(measured)
        if measured.conditions == self._conditions and measured.candidates > 1:
            self._adopt(raced)
        return {"measurement": raced.number, "drift": self._drift(profile).to_dict()}

    def prune(self, kept: int) -> int:
        """Drop some of the first measurements beyond the ``kept`` last that nothing here rests on;
        how many were. None where nothing is measured here: it is not known what they hold for.
        Raises StoreUnavailable."""
        return 0 if self._conditions is None else self._store.prune(kept, self._conditions)

    def drift(self) -> Drift:
        """How far picks that were verified here are off what is predicted of them now.

        Raises StoreUnavailable, and UnusableProfile.
        """
        if self._conditions is None:
            return drift_of(())
        return self._drift(load_profile(self._conditions.profile))

    def _drift(self, profile: DeviceProfile) -> Drift:
        assert self._conditions is not None
        rows = []
        for timed in self._store.timings(self._conditions, LATEST):
            try:
                problem, config = Problem(**timed.problem), Config.from_dict(dict(timed.config))
                rows.append(timed_row(problem, config, timed.cache, timed.measured_us))
            except (InvalidInput, AttributeError, KeyError, TypeError, ValueError) as error:
                log.error("measurement %d can't be read: %s", timed.number, error)
        return drift_of(measured_over_predicted(rows, profile))

    def _adopt(self, raced: Raced) -> None:
        winner = None if raced.winner is None else _winner(raced, raced.winner)
        self.winners.adopt(Problem(**raced.problem), raced.cache, raced.number, winner)


def _winner(raced: Raced, winner: Mapping[str, Any]) -> Winner:
    facts = {
        **winner["facts"],
        "at": written(raced.at),
        "verification_id": raced.verification_id,
        "measurements_revision": raced.number,
    }
    beaten = tuple(Config.from_dict(each) for each in winner["beaten"])
    return Winner(raced.number, Config.from_dict(winner["config"]), beaten, facts)


def _measured(
    verification_id: str, result: Mapping[str, Any], here: Conditions, profile: DeviceProfile
) -> Measured | None:
    """What is kept of a verification's result."""
    needed = ("problem", "config", "predicted_us", "median_us", "device", "driver", "nvrtc")
    if any(result.get(name) is None for name in needed):
        return None
    contest = result.get("contest")
    if contest is not None and contest["winner"] is None:
        contest = None  # it was not run to its end
    return Measured(
        verification_id=verification_id,
        problem=Problem(**result["problem"]),
        cache=result["protocol"]["cache"],
        conditions=replace(here, **{name: result[name] for name in ("device", "driver", "nvrtc")}),
        model_version=MODEL_VERSION,
        profile_sha256=profile.sha256,
        config=result["config"],
        predicted_us=result["predicted_us"],
        measured_us=result["median_us"],
        candidates=1 if contest is None else len(contest["candidates"]),
        winner=None if contest is None else _kept_winner(contest),
    )


def _kept_winner(contest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is kept of a contest's winner, None where it does not surely beat the pick."""
    if not contest["beats_pick"]:
        return None
    configs = [candidate["config"] for candidate in contest["candidates"]]
    fresh = contest["fresh"]
    return {
        "config": configs[contest["winner"]],
        "beaten": [configs[place] for place in contest["beaten"]],
        "facts": {
            "time_us": fresh["time_us"],
            "pick_time_us": fresh["own_us"],
            "ratio": fresh["ratio"],
            "ratio_low": fresh["low"],
            "ratio_high": fresh["high"],
        },
    }
