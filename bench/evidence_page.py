"""What the GPU evidence of the kernel says, in words for docs/results.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bench.norm_branches import SCOPES
from bench.sanitize_hazards import Hazard
from bench.sanitize_races import EXCUSED_OUTCOME, UNTOLD
from bench.sanitize_suite import ALL, label
from kernels.norm.compile import source_hash as norm_hash
from kernels.sources import ARCH
from kernels.table import table_keys
from solver.families import norm_activation, sm90_gemm

SCRIPTS = {
    "pairs": "pairs",
    "soak": "soak",
    "large": "large",
    "sanitizer": "sanitize",
    "hangs": "hangs",
}
NAMES = tuple(SCRIPTS)
WHERE_MADE = ("long_k", "sanitizer_norm")  # shown where there is a record of it
SANITIZERS = ("sanitizer", "sanitizer_norm")


def read_evidence(folder: Path) -> dict[str, dict[str, Any]]:
    """The recorded results of the evidence scripts that were run, by name."""
    paths = {name: folder / f"{name}.json" for name in (*NAMES, *WHERE_MADE)}
    return {n: json.loads(path.read_text("utf-8")) for n, path in paths.items() if path.is_file()}


def evidence_part(evidence: dict[str, dict[str, Any]], protocol: dict[str, Any] | None) -> str:
    """The section: what was launched and checked, what was found, what was not run, and what
    ``bench protocol`` says.

    Raises SystemExit where a record is of other kernel sources than the others or was cut short;
    the sanitizers' alone may be older, and then count for nothing.
    """
    title = "## The kernel, checked"
    launched = [name for name in NAMES if name in evidence and name != "sanitizer"]
    if not launched:
        return f"{title}\n\nNot run: {', '.join(f'`bench.gpu_{n}`' for n in SCRIPTS.values())}."
    first = evidence[launched[0]]
    sources = first["source_hash"]
    for name, record in evidence.items():
        if name not in SANITIZERS and record["source_hash"] != sources:
            raise SystemExit(f"{name}.json is of other kernel sources than {launched[0]}.json")
        if not record.get("complete", True):
            raise SystemExit(f"{name}.json was cut short")
    copies = {
        record["copy_hash"]
        for name, record in evidence.items()
        if name not in SANITIZERS and "copy_hash" in record
    }
    if len(copies) > 1:
        raise SystemExit("the records are of different kernels/cuda/copy.cu")
    lines = [
        f"- `bench.gpu_{SCRIPTS[name]}`: "
        + (words(evidence[name]) if name in evidence else "not run.")
        for name, words in _WORDS.items()
    ]
    if "long_k" in evidence:
        lines.append(long_k_line(evidence["long_k"]))
    parts = [
        title,
        f"Sources {sources[:12]}, NVRTC {first['nvrtc']}, {first['date'][:10]}.",
        "\n".join(lines),
    ]
    parts.append(_protocol(protocol, sm90_gemm.NAME, sources))
    parts.append(_protocol(protocol, norm_activation.NAME, norm_hash(ARCH)))
    if "sanitizer" in evidence:
        parts.append(_sanitizer(evidence["sanitizer"], sources, copies))
    else:
        parts.append("compute-sanitizer: not run.")
    if "sanitizer_norm" in evidence:
        parts.append(_norm_sanitizer(evidence["sanitizer_norm"]))
    return "\n\n".join(parts)


def _pairs(record: dict[str, Any]) -> str:
    errors = ", ".join(f"{error:.2g} ({out})" for out, error in record["rel_error_max"].items())
    return (
        f"{record['checked']} seeded pairs of problem and "
        f"configuration, {record['kernels']} kernels, {record['failed']} failed; every "
        f"output exact over {record['exact_draws']} draws that cover every k, again "
        f"with alpha and beta; largest relative errors on random inputs {errors}; "
        f"{record['meetings_met']} of {record['meetings_wanted']} combinations "
        "of branches met."
    )


def _soak(record: dict[str, Any]) -> str:
    return (
        f"{record['launches']:,} launches of "
        f"{record['configurations']} configurations, {record['failed']} gave another checksum."
    )


def _large(record: dict[str, Any]) -> str:
    return (
        f"{record['problems']} problems of more than 2³¹ "
        f"elements, or an extent next to it, {record['failed']} wrong."
    )


def _hangs(record: dict[str, Any]) -> str:
    plants = record["plants"].values()
    return (
        f"{sum(row['right'] for row in plants)} of "
        f"{len(plants)} hangs planted in the CUDA reported with the right barrier, "
        "stage and warps."
    )


_WORDS = {"pairs": _pairs, "soak": _soak, "large": _large, "hangs": _hangs}


def long_k_line(record: dict[str, Any]) -> str:
    """What ``bench.gpu_long_k`` found, a list's item."""

    def figures(row: dict[str, Any]) -> str:
        ours, theirs = row.get("rel_error"), (row.get("cublas") or {}).get("rel_error")
        words = [
            f"{name} {error:.2g}" for name, error in (("ours", ours), ("cuBLAS", theirs)) if error
        ]
        return f"k = {row['k']:,}, split_k {row['split_k']}: {', '.join(words) or 'no result'}"

    return (
        "- `bench.gpu_long_k`: relative errors of an fp32 output against float64: "
        f"{'; '.join(map(figures, record['rows']))}; {record['failed']} failed."
    )


def _protocol(record: dict[str, Any] | None, family: str, sources: str) -> str:
    """What ``bench protocol`` says of one family."""
    of_family = (record or {}).get(family)
    if of_family is None:
        return f"`bench protocol --family {family}`: not run."
    if of_family["source_hash"] != sources:
        return (
            f"`bench protocol --family {family}`: not run on these sources; its record is of "
            f"{of_family['source_hash'][:12]}."
        )
    return _SAYS[family](of_family)


def _gemm_protocol(record: dict[str, Any]) -> str:
    read = f"{record['launches']:,} small launches read off the kernels' PTX"
    return (
        f"`bench protocol` over {_keys(record['keys'])} ({record['no_room']} of them have no "
        f"ring that fits the device): {read}, {len(record['mismatches'])} unlike the description; "
        f"{record['rings']} rings and {record['epilogues']} epilogues searched in every order of a "
        f"few iterations ({record['states']:,} states) and proved for all by {record['lemmas']} "
        f"lemmas, {len(record['faults'])} faults."
    )


def _norm_protocol(record: dict[str, Any]) -> str:
    return (
        f"`bench protocol` over {record['keys']:,} forms of norm_activation's kernels "
        f"({record['meet_nobody']} of them have no barrier): {record['launches']:,} small launches "
        f"read off the kernels' PTX, {len(record['mismatches'])} unlike the description; "
        f"{record['blocks']} kinds of block proved for any number of chunks by {record['lemmas']} "
        f"lemmas, {record['instances']} small ones searched in every order ({record['states']:,} "
        f"states), {len(record['faults'])} faults."
    )


_SAYS = {sm90_gemm.NAME: _gemm_protocol, norm_activation.NAME: _norm_protocol}


def _keys(count: int) -> str:
    every = len(table_keys())
    return (
        f"{count} compile keys"
        if count == every
        else f"a sample of {count} of {every} compile keys"
    )


def _sanitizer(record: dict[str, Any], sources: str, copies: Collection[str]) -> str:
    of_copies = record.get("copy_hash", "")
    if record["source_hash"] != sources or (copies and of_copies not in copies):
        others = record["source_hash"][:12]
        if of_copies:
            others += f", of the copies' {of_copies[:12]}"
        return (
            "compute-sanitizer: not run on these sources; the record in "
            f"`bench/results/h200/sanitizer.json` is of {others}."
        )
    lines = [
        f"compute-sanitizer over {record.get('launches', 0)} launches that take every branch; a "
        "tool counts for the kinds of fault that it reported when planted.",
        "",
        *_sanitizer_table(record),
    ]
    return "\n".join(lines)


def _norm_sanitizer(record: dict[str, Any]) -> str:
    others = record["source_hash"]
    if others != norm_hash(ARCH):
        return (
            "compute-sanitizer over norm_activation's kernels: not run on these sources; the "
            f"record in `bench/results/h200/sanitizer_norm.json` is of {others[:12]}."
        )
    scopes = "; ".join(f"{name}: {words}" for name, words in SCOPES.items())
    lines = [
        f"compute-sanitizer over {record.get('launches', 0)} launches of norm_activation's kernels "
        "that take every branch; a tool counts, for each way of handing chunks over by itself, for "
        f"the kinds of fault that it reported when planted ({scopes}).",
        "",
        *_sanitizer_table(record),
        "",
        _probes(record),
    ]
    return "\n".join(lines)


def _sanitizer_table(record: dict[str, Any]) -> list[str]:
    lines = [
        "| tool | clean launches | planted faults reported | missed, or not told apart | "
        "not judged: no end in time |",
        "|---|---|---|---|---|",
    ]
    for name, result in record.get("clean", {}).items():
        own = [
            plant
            for plant in record["plants"].values()
            if label(plant["tool"], plant.get("scope", ALL)) == name
        ]
        told = [
            "; ".join(plant["what"] for plant in own if plant["outcome"] in outcomes) or "-"
            for outcomes in (("found",), ("clean", UNTOLD), ("broken",))
        ]
        clean = _clean_words(result) if isinstance(result, dict) else result
        lines.append(f"| {name} | {clean} | {' | '.join(told)} |")
    return lines


def _clean_words(result: dict[str, Any]) -> str:
    """A tool's outcome, and between what it reports races where it does."""
    pairs = [Hazard.from_dict(raw) for raw in result.get("hazards", ())]
    if not pairs:
        return str(result["outcome"])
    shown = Counter(" and ".join(sorted(hazard.roles)) for hazard in pairs if hazard.known)
    words = [f"{between} ({count})" if count > 1 else between for between, count in shown.items()]
    unknown = sum(max(1, hazard.count) for hazard in pairs if not hazard.offsets)
    words += [f"{unknown} pairs of which nothing was kept"] if unknown else []
    words += ["others"] if any(hazard.offsets and not hazard.known for hazard in pairs) else []
    what = "not judged" if result["outcome"] == EXCUSED_OUTCOME else "races reported"
    return f"{what}: {', '.join(words)}"


def _probes(record: dict[str, Any]) -> str:
    """What racecheck says of right kernels, and what of norm_activation's it can't judge for it."""
    if not record.get("probes"):
        told = "none was run"
    else:
        told = "; ".join(
            f"{probe['what']}: {_OF_PROBES[probe['outcome']]}"
            for probe in record["probes"].values()
        )
    return (
        f"Right kernels under racecheck (`bench/hand_over.cu`): {told}. A pair that it reports "
        "between what fills a slot and who used it before or uses it next is not judged where the "
        "kernel that hands over the same way is reported too, and a race where it is not; a "
        "planted race counts only where its own pair is reported, and in no clean launch "
        "([what was found](norm.md#what-racecheck-reports))."
    )


_OF_PROBES = {"found": "reported", "clean": "silent", "broken": "did not run"}
