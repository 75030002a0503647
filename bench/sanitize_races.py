"""What the pairs are that racecheck reports of a family's kernels, and which of them it can't
judge.

    python -m bench.sanitize_races RECORD.json

tells the lines of every reported pair (needs nvdisasm, no GPU), and judges the record anew; as
``bench.gpu_sanitize`` does itself where there is nvdisasm.

A pair is told by what its two accesses do (ROLES). Where clean launches of a scope have pairs, a
planted race there counts as seen only if its own pair is reported, and none of theirs is the same.
A pair of a clean launch is a race, unless it is one that the tool reports of a kernel that is
right, too: EXCUSED has each with what orders it, and the probe (``bench/hand_over.cu``, or the
kernel itself with a flag that tells) that the same tool must have reported beside it, in launches
that came to their end. What is excused in a scope is not checked by racecheck there, whatever it
reports.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from bench.files import write
from bench.sanitize_hazards import Hazard
from bench.sanitize_lines import Frame, frames_of, shown, text_at
from bench.sanitize_suite import ALL
from bench.tools import find_tool
from kernels import nvrtc
from kernels.sources import ARCH

TOOL = "racecheck"
EXCUSED_OUTCOME, UNTOLD = "excused", "untold"

ROLES = (
    ("fill", "norm_stream.cuh", "ring.fill("),
    ("initialise", "norm_stream.cuh", "ring.initialise()"),
    ("leave", "norm_stream.cuh", "bulk_store(to, slot"),
    ("result", "norm_stream.cuh", "store_shared(slot + place * 16"),
    ("read", "norm_stream.cuh", "load_shared("),
    ("sum put", "norm_math.cuh", "parts[warp] = x"),
    ("sum taken", "norm_math.cuh", "x += parts[i]"),
    ("flag put", "sm90_gemm_epilogue.cuh", "ptx::store_shared(memory.flag()"),
    ("flag taken", "sm90_gemm_epilogue.cuh", "ptx::load_shared_u32(memory.flag())"),
    ("staged", "sm90_gemm_epilogue.cuh", "stage<true>(acc, staging"),
    ("staged", "sm90_gemm_epilogue.cuh", "stage<false>(acc, staging"),
    ("brought in", "sm90_gemm_epilogue.cuh", "copy_elements<Piece, false>(args"),
    ("copied out", "sm90_gemm_epilogue.cuh", "copy_elements<Piece, true>(args"),
    ("plain", "sm90_gemm.cuh", "plain[threadIdx.x]"),
)
"""What an access does, by the text of a line that it is in or was inlined at.

fill    puts a chunk into its slot: the copy, or a producer's store
read    of a slot, by a consumer; ``result``: writes there what is stored in bulk, by ``leave``
sum     a warp's part of its team's
flag    of split-K: whether this CTA was the last of its tile
staged  a piece of C put into its staging buffer, ``brought in`` before where it is read, and
        ``copied out`` after
plain   planted there
"""

Pair = frozenset[str]
SLOT_READ, SLOT_WRITTEN = Pair({"fill", "read"}), Pair({"fill", "result"})
SUMS, STORED = Pair({"sum put", "sum taken"}), Pair({"result", "leave"})
FLAG = Pair({"flag put", "flag taken"})
BROUGHT_IN, COPIED_OUT = Pair({"brought in", "staged"}), Pair({"staged", "copied out"})
PLAIN = Pair({"plain"})
NO_PAIR = Pair()


@dataclass(frozen=True, slots=True)
class Excuse:
    """Pairs that a tool can't judge in some scopes, where it has reported ``probe``."""

    pairs: tuple[Pair, ...]
    scopes: tuple[str, ...]
    probe: str
    ordered: str
    proved: str


EXCUSED = (
    Excuse(
        (SLOT_READ, SLOT_WRITTEN),
        ("bulk", "async", "vector"),
        "one_arrives",
        "__syncwarp of the lanes that used the slot, one lane's mbarrier.arrive (release), "
        "try_wait (acquire) by who uses it next; causality order is transitive",
        "bench protocol: every hand-over in every order, and kernels.norm.warp_order: whoever "
        "arrives has met the lanes it arrives for",
    ),
    Excuse(
        (SLOT_READ,),
        ("named",),
        "named",
        "bar.arrive by every lane that used the slot synchronises with bar.sync by who uses it "
        "next, at one named barrier of exactly these warps",
        "bench protocol: ids, counts and phases of named barriers, in every order",
    ),
    Excuse(
        (FLAG,),
        (ALL,),
        "flag_tells",
        "bar.sync of all MATH warps before the flag is written, and once more before it is read; "
        "it is written again only after the next of the former",
        "kernels.ring_check: that order, of every compiled kernel",
    ),
)


def excused(hazard: Hazard, scope: str, probes: Mapping[str, Any]) -> bool:
    """Whether a pair of a scope is one that the tool can't judge, as a probe has shown."""
    return any(
        scope in excuse.scopes
        and Pair(hazard.roles) in excuse.pairs
        and _shown(probes.get(excuse.probe, {}))
        for excuse in EXCUSED
        if hazard.known
    )


def _shown(probe: Mapping[str, Any]) -> bool:
    """Whether a probe was reported and came to its end: one that was read out of order does not.
    Records of before 2026-12 don't say of a probe whether it ended."""
    return probe.get("outcome") == "found" and probe.get("ended") is not False


Unit = tuple[str, str, Mapping[str, str]]
"""A kernel: its name, its translation unit, the headers it is made from."""


def placed(hazard: Hazard, unit: Unit, arch: str) -> Hazard:
    """A pair with its lines and roles; as it is without nvdisasm, or where it was not shown."""
    name, source, headers = unit
    found = frames_of(name, source, headers, arch, hazard.offsets)
    if found is None or not hazard.offsets:
        return hazard
    first, second = (found[at] for at in hazard.offsets)
    return replace(
        hazard,
        lines=(shown(first, name), shown(second, name)),
        roles=(_role(first, headers), _role(second, headers)),
    )


def _role(frames: Sequence[Frame], headers: Mapping[str, str]) -> str:
    for role, file, text in ROLES:
        if any(frame[0] == file and text in text_at(headers, frame) for frame in frames):
            return role
    return ""


class Kernels(Protocol):
    """What a record's kernels are, and what each planted race is between."""

    def of_plant(self, name: str) -> Unit: ...
    def of_launch(self, scope: str, announced: str) -> Unit: ...
    def pair_of(self, plant: str) -> Pair: ...


def judged_here(record: Mapping[str, Any], sources: str, kernels: Kernels) -> dict[str, Any]:
    """``judged``. Raises SystemExit for a record whose kernels can't be made here: of others than
    the ``sources``, or of another NVRTC."""
    for name, here in (("source_hash", sources), ("nvrtc", nvrtc.version())):
        if record[name] != here:
            raise SystemExit(f"the record's {name} is {record[name]}, not {here}")
    return judged(record, kernels, ARCH)


def judged(record: Mapping[str, Any], kernels: Kernels, arch: str) -> dict[str, Any]:
    """A record whose reported pairs are told, and with them what planted races and clean launches
    come to."""
    probes, plants, clean = record.get("probes", {}), dict(record["plants"]), dict(record["clean"])
    for shown_as, result in clean.items():
        tool, _, scope = shown_as.partition(", ")
        scope = scope or ALL
        if tool != TOOL or not isinstance(result, dict):
            continue
        pairs = [
            placed(hazard, kernels.of_launch(scope, hazard.launch), arch)
            if hazard.offsets
            else hazard
            for hazard in map(Hazard.from_dict, result.get("hazards", ()))
        ]
        own = {
            plant for plant, was in plants.items() if (was["tool"], was["scope"]) == (tool, scope)
        }
        plants |= {plant: _plant(plant, plants[plant], pairs, kernels, arch) for plant in own}
        clean[shown_as] = _clean(result, pairs, sorted(p for p in own if plants[p]["found"]))
        if pairs:
            alone = all(excused(hazard, scope, probes) for hazard in pairs)
            clean[shown_as]["outcome"] = EXCUSED_OUTCOME if alone else "found"
        if clean[shown_as]["outcome"] == "clean" and not clean[shown_as]["counts_for"]:
            clean[shown_as] = "not run: the tool missed every plant"
    return {**record, "plants": plants, "clean": clean}


def _plant(
    name: str, was: Mapping[str, Any], of_clean: Sequence[Hazard], kernels: Kernels, arch: str
) -> dict[str, Any]:
    """A planted race: ``found`` where clean launches have no pair at all, or this one's pair is
    reported and none of theirs is, or may be, the same."""
    unit = kernels.of_plant(name)
    own = [
        placed(hazard, unit, arch) if hazard.offsets else hazard
        for hazard in map(Hazard.from_dict, was.get("hazards", ()))
    ]
    if not own:
        return dict(was)
    pair, told = kernels.pair_of(name), {Pair(hazard.roles) for hazard in own}
    others = {Pair(hazard.roles) for hazard in of_clean}
    certain = all(hazard.known for hazard in of_clean)
    saw = not of_clean or (certain and pair in told - others)
    return {
        **was,
        "outcome": "found" if saw else UNTOLD,
        "found": saw,
        "hazards": [hazard.to_dict() for hazard in own],
    }


def _clean(result: Mapping[str, Any], pairs: Sequence[Hazard], seen: list[str]) -> dict[str, Any]:
    told = {"hazards": [hazard.to_dict() for hazard in pairs]} if pairs else {}
    return {**result, "counts_for": seen, **told}


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a record anew and write it back; 0. Raises SystemExit without nvdisasm."""
    from bench.gpu_sanitize import SUITES

    parser = argparse.ArgumentParser(prog="python -m bench.sanitize_races", description=__doc__)
    parser.add_argument("record", type=Path)
    path = parser.parse_args(arguments).record
    if find_tool("nvdisasm") is None:
        raise SystemExit("nvdisasm is not on PATH: pip install nvidia-cuda-nvdisasm")
    record = json.loads(path.read_text("utf-8"))
    write(path, SUITES[record["family"]].judge(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
