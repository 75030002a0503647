"""Where a lock differs from what is found now, and of which change that comes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.picks.lock import Entry
from app.schemas.locks import LockedPick, LockFile
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import sm90_gemm_legality as legality
from solver.limits import shortened
from solver.recheck.members import differences
from solver.report import config_words

DIGITS = 12  # of a hash, in words
SHOWN = 6  # values that differ, in words
ASKED = ("problem", "cache", "objective", "constraints")
FOUND = ("config", "predicted", "proof")
SAME_PICK = "the same pick and times"


class Kind(StrEnum):
    """What became of a pick."""

    SAME = "same"
    STALE = "stale"  # the same pick and times; what it came of has changed
    PRICED = "priced"  # the same pick, with other predicted times or another question
    OTHER = "other"
    NEW = "new"
    GONE = "gone"
    EDITED = "edited"  # nothing has changed that could have changed the pick
    ILLEGAL = "illegal"


@dataclass(frozen=True, slots=True)
class Change:
    """One pick of the lock against the one found now: ``causes`` and all of it in words.

    ``old`` and ``new`` are a configuration and its predicted µs, None where there is none.
    """

    name: str
    kind: Kind
    causes: tuple[str, ...]
    words: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "causes": list(self.causes),
            "words": self.words,
            "old": self.old,
            "new": self.new,
        }


def origin_causes(lock: LockFile, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of what all picks come of has changed since the lock, in words."""
    causes = []
    if lock.model_version != now["model_version"]:
        causes.append(f"model version {lock.model_version} → {now['model_version']}")
    if lock.device != now["device"]:
        causes.append(f"device {lock.device} → {now['device']}")
    elif lock.profile_sha256 != now["profile_sha256"]:
        causes.append(f"profile of {lock.device} {_hashes(lock, now, 'profile_sha256')}")
    for name, words in (
        ("kernel_source_hash", "kernel sources"),
        ("copy_source_hash", "kernel sources of copies"),
    ):
        if getattr(lock, name) != now[name]:
            causes.append(f"{words} {_hashes(lock, now, name)}")
    if lock.nvrtc != now["nvrtc"]:
        causes.append(f"register table of NVRTC {lock.nvrtc} → {now['nvrtc']}")
    return tuple(causes)


def _hashes(lock: LockFile, now: Mapping[str, Any], name: str) -> str:
    return f"{getattr(lock, name)[:DIGITS]} → {now[name][:DIGITS]}"


def changes(
    lock: LockFile, now: Mapping[str, Any], entries: Sequence[Entry | None], names: Sequence[str]
) -> list[Change]:
    """For each of ``names`` what became of it, then those that the lock has beyond them.

    ``entries`` are the picks found now, None where there is none. A pick is known by its name; one
    whose name is new takes the lock's of the same place, if the file no longer names that.
    """
    origin = origin_causes(lock, now)
    by_name = {pick.name: pick for pick in lock.picks}
    pairs: list[LockedPick | None] = [by_name.get(name) for name in names]
    for place, (pair, old) in enumerate(zip(pairs, lock.picks, strict=False)):
        if pair is None and old.name not in names:
            pairs[place] = old
    found = [
        _change(name, old, new, origin, str(now["device"]))
        for name, old, new in zip(names, pairs, entries, strict=True)
    ]
    taken = {pair.name for pair in pairs if pair is not None}
    gone = [pick for pick in lock.picks if pick.name not in taken]
    words = "the picks file no longer has it"
    return found + [Change(pick.name, Kind.GONE, (), words, _old(pick), None) for pick in gone]


def _change(
    name: str, old: LockedPick | None, new: Entry | None, origin: tuple[str, ...], device: str
) -> Change:
    if old is None:
        return Change(name, Kind.NEW, (), "the lock does not have it", None, _new(new))
    kept = old.model_dump()
    illegal = _illegal(old, device)
    if new is None:
        words = illegal or "there is no pick now, the lock has one"
        return Change(name, Kind.OTHER, origin, words, _old(old), None)
    asked = _asked_causes(name, kept, new)
    causes = (*asked, *origin)
    ends = (_old(old), _new(new))
    if illegal is not None:
        return Change(name, Kind.ILLEGAL, causes, _since(illegal, causes), *ends)
    differing = [part for part in (*ASKED, *FOUND) if kept[part] != new[part]]
    if not differing and not asked:
        return Change(name, Kind.SAME, (), "as the lock has it", *ends)
    if not causes:
        return Change(name, Kind.EDITED, (), _edited(kept, new, differing), *ends)
    if kept["config"] != new["config"]:
        words = f"another pick: {_words(ends[0])} → {_words(ends[1])}"
        return Change(name, Kind.OTHER, causes, _since(words, causes), *ends)
    words = "another question, of which the pick and times are the same" if asked else SAME_PICK
    if kept["predicted"] != new["predicted"]:
        was, is_ = kept["predicted"]["time_us"], new["predicted"]["time_us"]
        words = f"the same pick, predicted {was:.2f} → {is_:.2f} µs"
    kind = Kind.STALE if kept["predicted"] == new["predicted"] and not asked else Kind.PRICED
    return Change(name, kind, causes, _since(words, causes), *ends)


def _since(words: str, causes: Sequence[str]) -> str:
    return f"{words}; since: {'; '.join(causes)}" if causes else words


def _asked_causes(name: str, old: Mapping[str, Any], new: Entry) -> tuple[str, ...]:
    """What was asked then and is not now."""
    causes = [] if old["name"] == name else [f"name {old['name']!r} → {name!r}"]
    then, now = old["problem"], new["problem"]
    fields = [f"{field} {then[field]} → {now[field]}" for field in now if then[field] != now[field]]
    causes += [f"problem: {', '.join(fields)}"] if fields else []
    for part in ASKED[1:]:
        if old[part] != new[part]:
            causes.append(f"{part} {_json(old[part])} → {_json(new[part])}")
    return tuple(causes)


def _illegal(pick: LockedPick, device: str) -> str | None:
    """Why the lock's configuration can't be launched for its own problem; None where it can."""
    try:
        legality.check(pick.config.config(), pick.problem.problem(), load_profile(device))
    except IllegalConfig as error:
        return f"the lock's configuration is illegal: config.{error.field}: {error.message}"
    except InvalidInput as error:
        return f"the lock's problem is none: problem.{error.field}: {error.message}"
    return None


def _edited(old: Mapping[str, Any], new: Entry, differing: Sequence[str]) -> str:
    faults = [fault for part in differing for fault in differences(part, new[part], old[part])]
    listed = "; ".join(faults[:SHOWN])
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return (
        f"the lock was changed, and nothing that its values come of: {listed}{more}"
        if faults
        else "the lock was changed, and nothing that its values come of"
    )


def _old(pick: LockedPick) -> dict[str, Any]:
    return {"config": pick.config.model_dump(), "time_us": pick.predicted.time_us}


def _new(new: Entry | None) -> dict[str, Any] | None:
    return (
        None if new is None else {"config": new["config"], "time_us": new["predicted"]["time_us"]}
    )


def _words(end: Mapping[str, Any] | None) -> str:
    return "none" if end is None else f"{config_words(end['config'])} at {end['time_us']:.2f} µs"


def _json(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text)
