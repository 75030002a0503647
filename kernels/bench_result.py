"""The result file of the bench runner: whole at every moment, so that a killed run keeps
the rows it has."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernels.bench_plan import PlanRow
from kernels.contest import Contest
from kernels.files import replace_whole
from kernels.regret import RegretRace, RegretRun
from kernels.verify import Reason
from kernels.worker import TaskResult

FLUSH_EVERY_S = 2.0
PACKAGES = (
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cuda-bindings",
    "numpy",
    "torch",
    "triton",
    "nvidia-cublas",
)
_ROW_FIELDS = (
    "median_us",
    "p95_us",
    "p99_us",
    "exact",
    "rel_error",
    "comparison",
    "cublas_us",
    "ratio_to_cublas",
    "ratio_low",
    "ratio_high",
    "ratio_note",
    "ratio_rounds",
    "sm_clock_mhz",
    "sm_clock_before_mhz",
    "power_w",
    "throttle",
    "replays",
    "launches_per_replay",
    "sets",
    "flushed",
    "copies",
    "k_coverage",
    "registers",
    "kernel_id",
)


def package_versions(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of packages, by default of those that matter to a measurement, where installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def passed_row(row: PlanRow, result: TaskResult) -> dict[str, Any]:
    """The record of a row that was measured, or found wrong."""
    wrong = result.failure is not None
    return row.identity() | {
        "status": "failed" if wrong else "passed",
        "reason": Reason.WRONG_RESULT if wrong else None,
        "details": result.failure,
        **{name: getattr(result, name) for name in _ROW_FIELDS},
    }


def failed_row(row: PlanRow, reason: Reason, details: str) -> dict[str, Any]:
    """The record of a row that gave no figures."""
    return row.identity() | {
        "status": "failed",
        "reason": reason,
        "details": details,
        **dict.fromkeys(_ROW_FIELDS),
    }


def raced_row(
    job: Sequence[PlanRow],
    raced: RegretRace | None,
    failures: Mapping[int, str],
    note: str | None,
) -> dict[str, Any]:
    """The record of a race's job: that of its first row, with every row as a candidate.

    ``median_us`` is the first's, None where it did not run; ``status`` is failed where none ran.
    """
    runs = {} if raced is None else raced.runs
    clocks = {} if raced is None else raced.clocks
    candidates = [
        {
            "config": row.config.to_dict(),
            "of": list(row.of),
            "predicted_us": row.predicted_us,
            **(runs[index] if index in runs else RegretRun(failure=failures.get(index))).to_dict(),
        }
        for index, row in enumerate(job)
    ]
    ran = any(candidate["median_us"] is not None for candidate in candidates)
    return job[0].identity() | {
        "status": "passed" if ran else "failed",
        "reason": None if ran else "no candidate ran",
        "note": note,
        "median_us": candidates[0]["median_us"],
        **clocks,
        "candidates": candidates,
    }


def learnt_part(places: Sequence[int], contest: Contest | None, note: str | None) -> dict[str, Any]:
    """What a contest of a job's rows at ``places`` found, ``winner`` by its place in the job; None
    where it was not run to its end, and ``note`` says why."""
    if contest is None:
        return {"winner": None, "beats_pick": False, "fresh": None, "candidates": [], "note": note}
    found = contest.to_dict()
    winner = None if contest.winner is None else places[contest.winner]
    entrants = [
        {"candidate": place, **entrant}
        for place, entrant in zip(places, found["candidates"], strict=True)
    ]
    return {
        "winner": winner,
        "beats_pick": contest.beats_pick,
        "fresh": found["fresh"],
        "candidates": entrants,
        "note": note,
    }


class ResultFile:
    """Rows and what stands beside them, rewritten atomically every few seconds."""

    def __init__(self, path: Path, beside: dict[str, Any]) -> None:
        self._path = path
        self._beside = beside
        self._rows: list[str] = []
        self._failed = 0
        self._written = float("-inf")

    @property
    def failed(self) -> int:
        """Rows recorded as failed so far."""
        return self._failed

    def note(self, **facts: Any) -> None:
        """Add facts beside the rows."""
        self._beside.update(facts)

    def add(self, record: dict[str, Any]) -> None:
        """Record a row; the file follows within FLUSH_EVERY_S seconds of the next one."""
        self._rows.append(json.dumps(record, allow_nan=False))
        self._failed += record["status"] == "failed"
        if time.monotonic() - self._written >= FLUSH_EVERY_S:
            self.write(complete=False)

    def write(self, complete: bool) -> None:
        """Write everything; ``complete`` says whether the plan has been gone through."""
        beside = self._beside | {
            "complete": complete,
            "measured": len(self._rows),
            "failed": self._failed,
        }
        head = json.dumps(beside, indent=1, allow_nan=False)[:-2]
        text = f'{head},\n "rows": [\n' + ",\n".join(self._rows) + "\n ]\n}\n"
        replace_whole(self._path, text.encode())
        self._written = time.monotonic()
