"""Device profiles: limits and constants, each with its unit and where it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from solver.errors import UnknownDevice, Unsupported

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
    measurement an answer means little.
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
    )


def device_names() -> tuple[str, ...]:
    """Names of the profiles that ship, sorted."""
    files = resources.files("solver").joinpath("profiles").iterdir()
    return tuple(sorted(f.name.removesuffix(".json") for f in files if f.name.endswith(".json")))


@cache
def load_profile(name: str) -> DeviceProfile:
    """The profile called ``name``; UnknownDevice lists those there are."""
    if name not in device_names():
        raise UnknownDevice("device", f"must be one of {', '.join(device_names())}, got {name!r}")
    return parse_profile(
        resources.files("solver").joinpath("profiles", f"{name}.json").read_text("utf-8")
    )
