"""What racecheck reports: pairs of accesses to shared memory that it finds no order between."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.sanitize_suite import ANNOUNCED

_FIRST = re.compile(r"Race reported between (\w+) access at \S+?\+0x([0-9a-f]+)")
_OTHER = re.compile(r"and (\w+) access at \S+?\+0x([0-9a-f]+)")
_COUNT = re.compile(r"\[(\d+) hazards?\]")
_SHOWN = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed")


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two accesses, each ``Write 3aa0``: its kind and where in the kernel, in bytes; of so many
    bytes (``count``) of all blocks; in the launch that was announced last, empty for a plant's.

    ``lines``, ``roles`` are told afterwards (``bench.sanitize_races``): where in the sources either
    is, innermost first, and what it does there. One without accesses stands for so many that the
    tool did not show.
    """

    launch: str
    first: str
    second: str
    count: int
    lines: tuple[str, str] = ("", "")
    roles: tuple[str, str] = ("", "")

    @property
    def known(self) -> bool:
        """Whether it is told what either access does."""
        return all(self.roles)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where in the kernel either access is; none where they were not shown."""
        return tuple(int(at.split()[1], 16) for at in (self.first, self.second) if at)

    def to_dict(self) -> dict[str, Any]:
        """As a record has it."""
        told = {"lines": list(self.lines), "roles": list(self.roles)} if any(self.lines) else {}
        return {
            "launch": self.launch,
            "first": self.first,
            "second": self.second,
            "count": self.count,
            **told,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Hazard:
        """Of a record."""
        lines, roles = (tuple(raw.get(name, ("", ""))) for name in ("lines", "roles"))
        return cls(raw["launch"], raw["first"], raw["second"], raw["count"], lines, roles)


def hazards(lines: Iterable[str]) -> tuple[Hazard, ...]:
    """Every pair of a run's output, and one for those that it counts and does not show; nothing of
    another tool's."""
    lines = list(lines)
    if not any("Race reported" in line or "RACECHECK" in line for line in lines):
        return ()
    found: list[Hazard] = []
    launch = first = ""
    for line in lines:
        if line.startswith(ANNOUNCED):
            launch = line.strip().removeprefix(ANNOUNCED)
        if start := _FIRST.search(line):
            first = f"{start[1]} {start[2]}"
        elif first and (other := _OTHER.search(line)):
            count = _COUNT.search(line)
            found.append(
                Hazard(launch, first, f"{other[1]} {other[2]}", int(count[1]) if count else 0)
            )
        elif (shown := _SHOWN.search(line)) and int(shown[1]) > len(found):
            found.append(Hazard("", "", "", int(shown[1]) - len(found)))
        elif "not printed" in line:
            found.append(Hazard("", "", "", 0))
    return tuple(found)
