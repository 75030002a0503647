"""Device profiles: limits and constants, each with its unit and where it comes from.

They ship with the package. A file of the same name in the folder that WARPWRIGHT_PROFILES names, as
a calibration leaves one, stands in for the one that ships.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from solver.errors import UnknownDevice, Unsupported, UnusableProfile
from solver.model_version import MODEL_VERSION

PROFILES_VARIABLE = "WARPWRIGHT_PROFILES"
FIXED = ("vendor", "arch", "wavefront", "families")
"""What a calibration leaves as it is."""
FIXED_LIMITS = (
    *("threads_per_block", "threads_per_sm", "registers_per_thread", "registers_per_sm"),
    *("smem_per_block_bytes", "smem_per_sm_bytes", "max_cluster"),
)
"""Limits of the architecture, by which kernels are legal: those of what ships, in every part."""
MEASURED_APART: Mapping[str, Mapping[str, str]] = {
    "sm90_gemm_power": {
        "power_limit_w": "W",
        "power_static_w": "W",
        "power_sm_w": "W/SM",
        "power_tensor_w": "W",
        "power_load_w": "W",
        "power_l2_w": "W",
        "power_memory_w": "W",
        "power_voltage_exponent": "1",
        "power_margin": "1",
    }
}
"""Tables of constants, with their units, that a profile has whole or has not, whatever ships: no
calibration makes them."""
AT_MOST_ONE = ("release_lag_fraction", "power_margin")
"""Constants that are a part of something, which is whole at most."""
NOT_PARSED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What a file that is no profile raises."""
Version = tuple[int, int, int]
"""A file's inode, size in bytes and time of change in ns."""
PROVENANCES = ("measured", "published", "datasheet", "derived")


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, its unit, its provenance (one of PROVENANCES) and its source in words."""

    value: float
    unit: str
    provenance: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """The constant as JSON-ready values."""
        return {
            "value": self.value,
            "unit": self.unit,
            "provenance": self.provenance,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProfile:
    """What the solver knows of one GPU.

    ``limits`` hold the hardware's bounds, ``models`` one table of constants for each
    kernel family (or ``paper``) that can be priced on it. ``families`` names those that
    run on it, and ``must_measure`` the constants (``model.name``) without whose
    measurement an answer means little. ``calibration`` is what a calibration says of itself
    (``solver.calibration.profile``), None in a profile that ships.
    """

    name: str
    title: str
    vendor: str
    arch: str
    wavefront: int
    families: tuple[str, ...]
    limits: Mapping[str, Constant]
    models: Mapping[str, Mapping[str, Constant]]
    must_measure: tuple[str, ...]
    sha256: str
    calibration: Mapping[str, Any] | None = None

    def limit(self, name: str) -> int:
        """An integer limit, e.g. ``sms`` or ``smem_per_block_bytes``."""
        return int(self.limits[name].value)

    def model(self, name: str) -> Mapping[str, Constant]:
        """The constants of one model; Unsupported names those this profile has."""
        if name not in self.models:
            raise Unsupported(
                "model", f"{self.name} has no {name} constants; it has {', '.join(self.models)}"
            )
        return self.models[name]

    def constant(self, model: str, name: str) -> float:
        """The value of one model constant."""
        return self.model(model)[name].value

    def without(self, *models: str) -> DeviceProfile:
        """The profile without some models: what they say of rows is then not worked out."""
        kept = {name: table for name, table in self.models.items() if name not in models}
        return replace(self, models=MappingProxyType(kept))


def parse_profile(text: str) -> DeviceProfile:
    """A profile from its JSON text."""
    raw = json.loads(text)

    def table(entries: dict[str, dict[str, Any]]) -> Mapping[str, Constant]:
        parsed = {name: Constant(**entry) for name, entry in entries.items()}
        for name, constant in parsed.items():
            if constant.provenance not in PROVENANCES:
                raise ValueError(f"{raw['name']}: {name} has provenance {constant.provenance!r}")
        return MappingProxyType(parsed)

    return DeviceProfile(
        name=raw["name"],
        title=raw["title"],
        vendor=raw["vendor"],
        arch=raw["arch"],
        wavefront=raw["wavefront"],
        families=tuple(raw["families"]),
        limits=table(raw["limits"]),
        models=MappingProxyType({name: table(t) for name, t in raw["models"].items()}),
        must_measure=tuple(raw.get("must_measure", ())),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        calibration=raw.get("calibration"),
    )


@cache
def device_names() -> tuple[str, ...]:
    """Names of the profiles that ship, sorted."""
    files = resources.files("solver").joinpath("profiles").iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


def families_of(name: str) -> tuple[str, ...]:
    """The kernel families that run on a device: what ships says so, and no file that stands in."""
    return _shipped(_known(name)).families


def profiles_folder() -> Path | None:
    """Where profiles stand in for those that ship; None where WARPWRIGHT_PROFILES is not set."""
    value = os.environ.get(PROFILES_VARIABLE)
    return Path(value) if value else None


def profiles_revision() -> tuple[Version | None, ...]:
    """Another one when a file that stands in was put there, taken out or written over."""
    folder = profiles_folder()
    if folder is None:
        return ()
    try:
        return tuple(_version(f"{folder}/{name}.json") for name in device_names())
    except OSError:
        return ()  # what is wrong with it, ``load_profile`` says


def load_profile(name: str) -> DeviceProfile:
    """The profile called ``name``; UnknownDevice lists those there are.

    Raises UnusableProfile where the file that stands in for it can't.
    """
    folder = profiles_folder()
    path = None if folder is None else folder / f"{_known(name)}.json"
    try:
        version = None if path is None else _version(path)
    except OSError as error:
        raise UnusableProfile(PROFILES_VARIABLE, f"{path} can't be read: {error}") from error
    if path is None or version is None:
        return _shipped(_known(name))
    return _stand_in(name, path, version)


def check_profiles() -> None:
    """Raise UnusableProfile where any file that stands in can't."""
    for name in device_names():
        load_profile(name)


def shipped_text(name: str) -> str:
    """The JSON text of the profile of that name that ships."""
    return resources.files("solver").joinpath("profiles", f"{name}.json").read_text("utf-8")


def _known(name: str) -> str:
    if name not in device_names():
        raise UnknownDevice("device", f"must be one of {', '.join(device_names())}, got {name!r}")
    return name


def _version(path: Path | str) -> Version | None:
    """What changes with a file; None where there is none."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


@cache
def _shipped(name: str) -> DeviceProfile:
    return parse_profile(shipped_text(name))


@cache
def _stand_in(name: str, path: Path, _of: Version) -> DeviceProfile:
    try:
        profile = parse_profile(path.read_text("utf-8"))
        why = why_unfit(profile, name)
    except NOT_PARSED as error:
        raise UnusableProfile(PROFILES_VARIABLE, f"{path} is no profile: {error!r}") from error
    if why is not None:
        raise UnusableProfile(PROFILES_VARIABLE, f"{path} can't stand in for {name}: {why}")
    return profile


def why_unfit(profile: DeviceProfile, name: str) -> str | None:
    """Why a profile can't stand in for the one called ``name`` that ships; None where it can."""
    shipped = _shipped(name)
    if profile.name != shipped.name:
        return f"it is of {profile.name}"
    version = (profile.calibration or {}).get("model_version")
    if not isinstance(version, str):
        return f"its calibration.model_version must be {MODEL_VERSION!r}, is {version!r}"
    if version != MODEL_VERSION:
        return (
            f"its constants are of model {version}, this is model {MODEL_VERSION}: "
            "take it out and calibrate"
        )
    if any(getattr(profile, name) != getattr(shipped, name) for name in FIXED):
        return f"it has other {', '.join(FIXED)}"
    if _units(profile) != _units(shipped):
        return "it has other limits or constants, or in other units"
    for model, units in MEASURED_APART.items():
        found = {n: c.unit for n, c in profile.models.get(model, {}).items()}
        if model in profile.models and found != units:
            wrong = sorted({n for n, _ in found.items() ^ units.items()})
            return (
                f"{model} has other constants or units: {', '.join(wrong)}; take the table out and "
                "fit power again (docs/energy.md)"
            )
    if not isinstance(profile.title, str) or set(profile.must_measure) - set(shipped.must_measure):
        return "its title is no text, or it must have more measured"
    for limit_name, limit in profile.limits.items():
        kind = type(shipped.limits[limit_name].value)
        if type(limit.value) is not kind or not _is_finite(limit.value):
            return f"{limit_name} must be a finite {kind.__name__} above 0, is {limit.value!r}"
        fixed = shipped.limits[limit_name].value
        if limit_name in FIXED_LIMITS and limit.value != fixed:
            return f"{limit_name} must be {fixed}, as in the profile that ships, is {limit.value}"
    for model, table in profile.models.items():
        for constant_name, constant in table.items():
            path = f"{model}.{constant_name}"
            none = constant.value == 0 and constant_name in shipped.models.get(model, {})
            none = none and shipped.constant(model, constant_name) == 0
            if not none and not _is_finite(constant.value):
                return f"{path} must be a finite number above 0, is {constant.value!r}"
            if constant_name in AT_MOST_ONE and constant.value > 1:
                return f"{path} must be at most 1, is {constant.value!r}"
    return None


def _units(profile: DeviceProfile) -> dict[str, dict[str, str]]:
    tables = {"limits": profile.limits, **profile.models}
    for name in MEASURED_APART:
        tables.pop(name, None)
    return {table: {name: c.unit for name, c in t.items()} for table, t in tables.items()}


def _is_finite(value: object) -> bool:
    """Whether a value is a number above 0 that a model can be priced with."""
    return type(value) in (int, float) and 0 < value <= sys.float_info.max  # type: ignore[operator]
