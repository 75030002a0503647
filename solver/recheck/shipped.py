"""The data a certificate refers to: device profiles and the register table, as they ship, or the
profile that a calibration left in WARPWRIGHT_PROFILES for one of these."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

REGISTER_TABLE = "sm90_gemm_registers.json"


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One device: its limits and each model's constants, by name, and its text's SHA-256."""

    wavefront: int
    families: tuple[str, ...]
    limits: Mapping[str, int]
    models: Mapping[str, Mapping[str, float]]
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class Registers:
    """Launch registers per thread by kernel name, and which compiler and source gave them."""

    nvrtc: str
    source_hash: str
    by_kernel: Mapping[str, int]


def profile_names() -> tuple[str, ...]:
    """Names of the devices that ship a profile, sorted."""
    names = (file.name for file in resources.files("solver").joinpath("profiles").iterdir())
    return tuple(sorted(name[: -len(".json")] for name in names if name.endswith(".json")))


def read_profile(name: str) -> Profile:
    """The profile of one of ``profile_names()``."""
    folder = os.environ.get("WARPWRIGHT_PROFILES")
    calibrated = Path(folder, f"{name}.json") if folder else None
    if calibrated is not None and calibrated.exists():
        return _parsed(calibrated.read_text("utf-8"))
    path = resources.files("solver").joinpath("profiles", f"{name}.json")
    return _parsed(path.read_text("utf-8"))


@cache
def _parsed(text: str) -> Profile:
    raw = json.loads(text)
    return Profile(
        wavefront=raw["wavefront"],
        families=tuple(raw["families"]),
        limits={key: int(entry["value"]) for key, entry in raw["limits"].items()},
        models={
            model: {key: entry["value"] for key, entry in constants.items()}
            for model, constants in raw["models"].items()
        },
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


@cache
def read_registers() -> Registers:
    """The register table of the Hopper family."""
    path = resources.files("solver").joinpath("families", REGISTER_TABLE)
    raw = json.loads(path.read_text("utf-8"))
    return Registers(raw["nvrtc"], raw["source_hash"], raw["registers"])
