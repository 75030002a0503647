"""A calibrated profile as a file: what it says of itself, and how it comes into its folder."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solver.calibration.fit import Fit
from solver.calibration.published import paper_constants
from solver.calibration.rows import FAMILY
from solver.device import PROFILES_VARIABLE, shipped_text
from solver.errors import InvalidInput
from solver.families import paper
from solver.model_version import MODEL_VERSION

DETERMINED = 0.5
"""The part of a constant's uncertainty that the rows must take for it to be called measured."""


def calibrated_text(
    name: str,
    fit: Fit,
    limits: Mapping[str, int],
    calibration: Mapping[str, Any],
    where: str,
) -> str:
    """The JSON text of device ``name``'s profile with a fit's constants.

    ``limits`` are those read off the device; ``where`` says in words what was measured on what;
    ``calibration`` becomes the profile's member of that name, the model's version and every
    constant's estimate beside it. The published model's constants follow.
    """
    raw = json.loads(shipped_text(name))
    family = raw["models"][FAMILY]
    for constant, now in fit.device.models[FAMILY].items():
        family[constant] = now.to_dict()
    for constant, estimate in fit.estimates.items():
        told = estimate.determined >= DETERMINED
        words = f"calibrated, {where}: 95 % from {estimate.low:.4g} to {estimate.high:.4g}"
        family[constant] |= {
            "value": estimate.value,
            "provenance": "measured" if told else "derived",
            "source": words + ("" if told else "; the rows hardly decide it"),
        }
    raw["models"][paper.NAME] = paper_constants(family)
    for limit, value in limits.items():
        if raw["limits"][limit]["value"] != value:
            source = f"read off the device, {where}"
            raw["limits"][limit] |= {"value": value, "provenance": "measured", "source": source}
    raw["must_measure"] = [
        path
        for path in raw["must_measure"]
        if path.partition(".")[0] == FAMILY
        and family[path.partition(".")[2]]["provenance"] != "measured"
    ]
    raw["title"] += f", calibrated {calibration['date'][:10]}"
    estimates = {constant: estimate.to_dict() for constant, estimate in fit.estimates.items()}
    raw["calibration"] = {
        "model_version": MODEL_VERSION,
        **calibration,
        "estimates": estimates,
    }
    return json.dumps(raw, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def store_profile(path: Path, text: str) -> None:
    """Put a profile's text at ``path``, whole or not at all; its folder is made.

    Raises InvalidInput (field ``profile``) where that can't be.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as f:
            try:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
                os.chmod(f.name, 0o644)
                os.replace(f.name, path)
            except BaseException:
                os.unlink(f.name)
                raise
    except OSError as error:
        raise InvalidInput("profile", f"{path} can't be written: {error}") from error


def check_folder(folder: Path, field: str = PROFILES_VARIABLE) -> None:
    """Make a folder for profiles and see that a file can be put there, before anything is measured.

    Raises InvalidInput for ``field``, which named the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidInput(field, f"{folder} can't be written: {error}") from error
