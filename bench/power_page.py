"""Power and energy held for seconds: how far the model is off, and whether answers hold, in words
for docs/results.md."""

from __future__ import annotations

from typing import Any

from solver.device import load_profile

TITLE = "## Power and energy"

Record = dict[str, Any]


def power_part(errors: Record | None, held: Record | None) -> str:
    """The section: errors of ``bench.power_fit``, and the questions of ``kernels.power --answers``
    with what was measured of each."""
    return "\n\n".join([TITLE, _errors(errors), _held(held)])


def _errors(record: Record | None) -> str:
    if record is None:
        return "`bench.power_fit`: not run."
    head = (
        "Rows held for a second and more, by NVML's energy counter ([how](energy.md)); errors in % "
        "of what was measured.\n\n"
        "| rows | | power: mean | p95 | max | energy: mean | p95 | max |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    lines = [
        f"| {words} | {part['rows']} | {_three(part['power'])} | {_three(part['energy'])} |"
        for name, words in (("fitted", "fitted"), ("held_out", "held out"))
        if (part := record[name])["rows"]
    ]
    return "\n".join([head, *lines])


def _three(error: dict[str, float]) -> str:
    return " | ".join(f"{error[name]:.1%}" for name in ("mean_ape", "p95_ape", "max_ape"))


def _held(record: Record | None) -> str:
    if record is None:
        return "`kernels.power --answers`: not run."
    rows = [row for row in record["rows"] if row.get("measured")]
    weighted, capped = (
        sum(row[name]["verdict"] == "holds" for row in rows) for name in ("weighted", "capped")
    )
    of_now = record["plan_profile_sha256"] == load_profile(record["profile"]).sha256
    since = "" if of_now else " They are answers of an earlier profile."
    head = (
        f"Of {len(rows)} questions {weighted} weighted answers (1 per µs and 10 per mJ, held for "
        f"seconds, against the pick's) hold, and {capped} under a cap of power.{since}\n\n"
        "| m | n | k | weighted: its sum over the pick's | low | high | "
        "| cap, W | measured, W | low | high | |\n"
        f"|{'---|' * 12}"
    )
    return "\n".join([head, *map(_question, rows)])


def _question(row: Record) -> str:
    ratio, power = row["weighted"]["score_ratio_to_pick"], row["capped"]
    return (
        f"| {row['m']} | {row['n']} | {row['k']} "
        f"| {ratio['ratio']:.3f} | {ratio['low']:.3f} | {ratio['high']:.3f} "
        f"| {row['weighted']['verdict']} | {row['cap_w']} "
        f"| {power['power_w']:.0f} | {power['power_low_w']:.0f} | {power['power_high_w']:.0f} "
        f"| {power['verdict']} |"
    )
