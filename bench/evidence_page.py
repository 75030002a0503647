"""What the GPU evidence of the kernel says, in words for docs/results.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAMES = ("pairs", "soak", "large", "sanitizer", "hangs")
WHERE_MADE = ("long_k",)  # shown where there is a record of it


def read_evidence(folder: Path) -> dict[str, dict[str, Any]]:
    """The recorded results of the evidence scripts, by name; of WHERE_MADE those there are."""
    names = (*NAMES, *(name for name in WHERE_MADE if (folder / f"{name}.json").exists()))
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}


def evidence_part(evidence: dict[str, dict[str, Any]], protocol: dict[str, Any]) -> str:
    """The section: what was launched and checked, what was found, and what ``bench protocol``
    says.

    Raises SystemExit where a record is of other kernel sources or was cut short; the
    sanitizers' alone may be older, and then counts for nothing.
    """
    sources = evidence["pairs"]["source_hash"]
    for name, record in evidence.items():
        if name != "sanitizer" and record["source_hash"] != sources:
            raise SystemExit(f"{name}.json is of other kernel sources than pairs.json")
        if not record.get("complete", True):
            raise SystemExit(f"{name}.json was cut short")
    if len({record["copy_hash"] for record in evidence.values() if "copy_hash" in record}) > 1:
        raise SystemExit("the records are of different kernels/cuda/copy.cu")
    pairs, soak, large = evidence["pairs"], evidence["soak"], evidence["large"]
    hangs = evidence["hangs"]["plants"]
    errors = ", ".join(f"{error:.2g} ({out})" for out, error in pairs["rel_error_max"].items())
    return "\n\n".join(
        [
            "## The kernel, checked",
            f"Sources {pairs['source_hash'][:12]}, NVRTC {pairs['nvrtc']}, {pairs['date'][:10]}.",
            "\n".join(
                [
                    f"- `bench.gpu_pairs`: {pairs['checked']} seeded pairs of problem and "
                    f"configuration, {pairs['kernels']} kernels, {pairs['failed']} failed; every "
                    f"output exact over {pairs['exact_draws']} draws that cover every k, again "
                    "with alpha and beta; largest relative errors on random inputs "
                    f"{errors}; {pairs['meetings_met']} of {pairs['meetings_wanted']} combinations "
                    "of branches met.",
                    f"- `bench.gpu_soak`: {soak['launches']:,} launches of "
                    f"{soak['configurations']} configurations, {soak['failed']} gave another "
                    "checksum.",
                    f"- `bench.gpu_large`: {large['problems']} problems of more than 2³¹ "
                    f"elements, or an extent next to it, {large['failed']} "
                    "wrong.",
                    f"- `bench.gpu_hangs`: {sum(row['right'] for row in hangs.values())} of "
                    f"{len(hangs)} hangs planted in the CUDA reported with the right barrier, "
                    "stage and warps.",
                    *([long_k_line(evidence["long_k"])] if "long_k" in evidence else []),
                ]
            ),
            _protocol(protocol, sources),
            _sanitizer(evidence["sanitizer"], sources),
        ]
    )


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


def _protocol(record: dict[str, Any], sources: str) -> str:
    if record["source_hash"] != sources:
        return (
            "`bench protocol`: not run on these sources; its record is of "
            f"{record['source_hash'][:12]}."
        )
    read = f"{record['launches']:,} small launches read off the kernels' PTX"
    return (
        f"`bench protocol` over {record['keys']} compile keys ({record['no_room']} of them have no "
        f"ring that fits the device): {read}, {len(record['mismatches'])} unlike the description; "
        f"{record['rings']} rings and {record['epilogues']} epilogues searched in every order of a "
        f"few iterations ({record['states']:,} states) and proved for all by {record['lemmas']} "
        f"lemmas, {len(record['faults'])} faults."
    )


def _sanitizer(record: dict[str, Any], sources: str) -> str:
    if record["source_hash"] != sources:
        return (
            "compute-sanitizer: not run on these sources; the record in "
            f"`bench/results/h200/sanitizer.json` is of {record['source_hash'][:12]}."
        )
    lines = [
        f"compute-sanitizer over {record.get('launches', 0)} launches that take every branch; a "
        "tool counts for the kinds of fault that it reported when planted.",
        "",
        "| tool | clean launches | planted faults reported | missed | not judged: no end in time |",
        "|---|---|---|---|---|",
    ]
    for tool, result in record.get("clean", {}).items():
        plants = {n: p for n, p in record["plants"].items() if p["tool"] == tool}
        seen = [p["what"] for p in plants.values() if p["found"]]
        missed = [p["what"] for p in plants.values() if p["outcome"] == "clean"]
        broken = [p["what"] for p in plants.values() if p["outcome"] == "broken"]
        outcome = result["outcome"] if isinstance(result, dict) else result
        lines.append(
            f"| {tool} | {outcome} | {'; '.join(seen) or '-'} | {'; '.join(missed) or '-'} | "
            f"{'; '.join(broken) or '-'} |"
        )
    return "\n".join(lines)
