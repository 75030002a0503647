"""The text of ``docs/profiles.md``: every constant of every profile and where it comes from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from solver.device import PROVENANCES, Constant, DeviceProfile, device_names, parse_profile

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "profiles.md"
FOLDER = ROOT / "solver" / "profiles"

INTRODUCTION = """\
# Device profiles

Made by `python -m bench.derive_profiles` from `solver/profiles/*.json`; a test fails when this
page and the profiles differ. What the constants mean is in [the model](model.md).

Provenance: *measured* on such a device by us; *published* by a paper, a programming guide or an
instruction set; *datasheet*, the vendor's figure for the part; *derived* from one of these by
the rule in the source column. A constant under "must be measured" makes an answer only as good
as the guess it is.
"""


def page() -> str:
    """The whole page; read from files, so that profiles just rewritten are seen."""
    profiles = [
        parse_profile((FOLDER / f"{name}.json").read_text("utf-8")) for name in device_names()
    ]
    return "\n".join([INTRODUCTION, *_overview(profiles), *(_section(p) for p in profiles)])


def _overview(profiles: list[DeviceProfile]) -> list[str]:
    lines = [
        f"| profile | device | arch | families | {' | '.join(PROVENANCES)} | must be measured |",
        f"|---|---|---|---|{'--:|' * len(PROVENANCES)}--:|",
    ]
    for p in profiles:
        count = Counter(c.provenance for table in _tables(p).values() for c in table.values())
        counts = " | ".join(str(count[name]) for name in PROVENANCES)
        families = ", ".join(p.families) or "none: `model: paper` only"
        lines.append(
            f"| [{p.name}](#{p.name}) | {p.title} | {p.arch} | {families} | {counts} "
            f"| {len(p.must_measure)} |"
        )
    return [*lines, ""]


def _section(profile: DeviceProfile) -> str:
    lines = [f"## {profile.name}", "", f"{profile.title}; {profile.wavefront} threads a warp."]
    if profile.must_measure:
        names = ", ".join(f"`{name}`" for name in profile.must_measure)
        lines.append(f"Must be measured: {names}.")
    for title, table in _tables(profile).items():
        lines += ["", f"| {title} | value | unit | provenance | source |", "|---|--:|---|---|---|"]
        lines += [
            f"| `{name}` | {_number(c.value)} | {c.unit} | {c.provenance} | {c.source} |"
            for name, c in table.items()
        ]
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _tables(profile: DeviceProfile) -> dict[str, Mapping[str, Constant]]:
    return {"limit": profile.limits} | {f"{name} model": t for name, t in profile.models.items()}
