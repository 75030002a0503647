"""Bring what profiles derive from the measured H200 up to date with it.

    python -m bench.derive_profiles

Run it after every change of ``solver/profiles/h200.json`` (``bench.fit --write``). Parts with
the H200's SM take its fitted constants, its memory path scaled by the datasheet; every Hopper
part's constants of the published model follow from those of the kernel family. A test holds
the profiles that ship to these rules. Ends by remaking ``docs/profiles.md``.
"""

from __future__ import annotations

import json
from typing import Any

from bench.profiles_page import FOLDER, PAGE, page
from solver.calibration.published import paper_constants, rounded
from solver.families import paper, sm90_gemm

FAMILY = sm90_gemm.NAME
REFERENCE = "h200"

OF_THE_PART = ("clock_ghz", "mma_macs_per_cycle")
"""Constants a profile states itself: from its datasheet or the instruction set."""

OF_THE_POWER = (
    "clock_power_tflops",
    "clock_memory_tflops",
    "clock_l2_tflops",
    "clock_settle_us",
)
"""Constants that the whole part's power and its limit decide."""

Profile = dict[str, Any]


def derive(profile: Profile, reference: Profile) -> Profile:
    """A copy of a Hopper profile (as JSON values) whose derived constants obey the rules; one that
    was calibrated keeps the family's."""
    models = dict(profile["models"])
    if profile["name"] != reference["name"] and "calibration" not in profile:
        models[FAMILY] = _family_constants(profile, reference)
    models[paper.NAME] = paper_constants(models[FAMILY])
    return {**profile, "models": models}


def _family_constants(profile: Profile, reference: Profile) -> dict[str, Any]:
    measured = reference["models"][FAMILY]
    sms = profile["limits"]["sms"]["value"] / reference["limits"]["sms"]["value"]
    bandwidth = profile["limits"]["memory_bytes_per_us"]["value"]
    sheet = reference["limits"]["memory_bytes_per_us"]["value"]
    reached = measured["hbm_bytes_per_us"]["value"] / sheet
    of_its_power = "the H200's; a power limit other than its 700 W is not accounted for"
    scaled = {
        "l2_bytes_per_us": (sms, "the H200's, by the number of SMs"),
        "hbm_bytes_per_us": (
            bandwidth / sheet,
            f"the datasheet's bandwidth times {reached:.3f}, what the H200 reaches of its own",
        ),
        "mma_overhead": (1, "the H200's, but at least 1: no part beats its datasheet's rate"),
        **dict.fromkeys(OF_THE_POWER, (1, of_its_power)),
    }
    constants = {}
    for name, constant in measured.items():
        if name in OF_THE_PART:
            constants[name] = profile["models"][FAMILY][name]
            continue
        known = "measured there" if constant["provenance"] == "measured" else constant["source"]
        value = constant["value"]
        if name == "mma_overhead":
            value = max(1, value)  # less stands for a clock above the H200's clock_ghz
        factor, source = scaled.get(name, (1, f"same SM as the H200's: {known}"))
        constants[name] = {
            "value": rounded(value * factor),
            "unit": constant["unit"],
            "provenance": "derived",
            "source": source,
        }
    return constants


def read(name: str) -> Profile:
    """One profile's JSON values."""
    values: Profile = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return values


def main() -> None:
    """Rewrite the Hopper profiles and the page."""
    reference = read(REFERENCE)
    for path in sorted(FOLDER.glob("*.json")):
        profile = read(path.stem)
        if FAMILY in profile["families"]:
            text = json.dumps(derive(profile, reference), indent=2, ensure_ascii=False)
            path.write_text(text + "\n", "utf-8")
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
