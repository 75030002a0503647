"""A device with constants of power, made up: none were measured when these tests were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from solver.calibration.power_start import power_start
from solver.device import DeviceProfile, load_profile, shipped_text
from solver.families.sm90_gemm_power import TABLE
from solver.model_version import MODEL_VERSION

LIMIT_W = 700.0


def powered(name: str = "h200") -> DeviceProfile:
    """The profile with round figures for constants of power, whatever it has."""
    return power_start(load_profile(name), LIMIT_W, "made up").device


def powered_raw(name: str = "h200") -> dict[str, Any]:
    """The same as a profile's JSON values."""
    raw: dict[str, Any] = json.loads(shipped_text(name))
    table = powered(name).models[TABLE]
    raw["models"][TABLE] = {key: constant.to_dict() for key, constant in table.items()}
    raw["calibration"] = {"model_version": MODEL_VERSION}
    return raw


def write_powered(folder: Path, name: str = "h200") -> None:
    """Put it into a folder, where WARPWRIGHT_PROFILES may point."""
    (folder / f"{name}.json").write_text(json.dumps(powered_raw(name)), "utf-8")
