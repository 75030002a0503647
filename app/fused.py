"""The figures of ``warpwright bench fused``: the recorded norm_activation grid held against advice
and model as they are now. The arithmetic is in ``solver.fused`` and its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.recorded import read_ceilings, read_norm_grid
from solver.device import load_profile
from solver.fused import figures, outcomes, problem_figures
from solver.fused_claims import bandwidth, claims
from solver.fused_sweep import depth_sweep, ratio_sweep
from solver.model_version import MODEL_VERSION
from solver.norm_record import races_of

Progress = Callable[[int, int], None]
FACTS = ("device", "driver", "nvrtc", "commit", "source_hash", "date", "complete")


def fused(
    device: str,
    folder: Path | None = None,
    *,
    fitted: bool = False,
    progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """The whole answer. ``fitted``: over problems that constants may be fitted to alone; nothing
    that is held out is looked at.

    Raises EnvironmentLacks where there is no record, Unsupported for a device without the model's
    constants. ``progress`` is told (races done, all).
    """
    profile = load_profile(device)
    record = read_norm_grid(device, folder)
    races = races_of(record, profile)
    if fitted:
        races = [race for race in races if not race.held_out]
    found = outcomes(races, profile, progress)
    return {
        "device": device,
        "model_version": MODEL_VERSION,
        "profile_sha256": profile.sha256,
        "measured": {name: record.get(name) for name in FACTS},
        "failed_rows": sum(row["status"] != "passed" for row in record["rows"]),
        "rows_looked_at": "fitted" if fitted else "all",
        **figures(found),
        "bandwidth": bandwidth(found, profile, read_ceilings(device, folder)),
        "ratio_sweep": ratio_sweep(found),
        "depth_sweep": depth_sweep(found),
        "claims": claims(found),
        "by_problem": [problem_figures(outcome) for outcome in found],
    }
