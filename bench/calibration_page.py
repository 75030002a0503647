"""The tables of docs/calibration.md and docs/new-gpu.md, from the records of calibrations.

    python -m bench.calibration_page

A test holds the pages to the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.calibration_replay import NAME
from bench.records import RESULTS, read_record
from kernels.files import replace_whole
from solver.calibration.prior import KIND
from solver.calibration.rows import FAMILY
from solver.device import load_profile
from solver.model_version import MODEL_VERSION

DOCS = Path("docs")
PAGES = ("calibration.md", "new-gpu.md")
ON_GPU = "calibration.json"
"""The record of ``bench.gpu_calibrate``."""
SCRATCH = "datasheet and ceilings"
ALONE = "alone fitted"
VERBS = {
    "stored": "was stored",
    "judged": "was judged",
    "refused": "was refused",
    "failed": "failed",
}
"""What became of a calibration."""

Record = Mapping[str, Any]


def _errors(runs: Sequence[Record], part: str) -> list[float]:
    return [run["held_out"][part]["mean_ape"] for run in runs]


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.1%} to {max(values):.1%}"


def _starts(record: Record, names: Sequence[str]) -> str:
    lines = [
        "| start | before: paper | LLM and further | calibrated: paper | LLM and further |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        start = record["starts"][name]
        before = [f"{start['before']['held_out'][p]['mean_ape']:.1%}" for p in ("paper", "llm")]
        after = [_span(_errors(start["calibrations"], part)) for part in ("paper", "llm")]
        lines.append(f"| {name} | {' | '.join((*before, *after))} |")
    best = [f"{record['committed']['held_out'][p]['mean_ape']:.1%}" for p in ("paper", "llm")]
    lines.append(f"| the committed profile | | | {' | '.join(best)} |")
    return "\n".join(lines)


def stale_line(record: Record) -> str | None:
    """That calibrations were replayed with another model or profile; None where they were not."""
    committed = load_profile(record["device"])
    if record["profile_sha256"] == committed.sha256 and record["model_version"] == MODEL_VERSION:
        return None
    return (
        f"**Not replayed yet with this profile of model {MODEL_VERSION}**: calibrations and errors "
        f"are of model {record['model_version']} and the profile of {record['device']} "
        f"`{record['profile_sha256']:.12}`; a value or an interval that stands beside a committed "
        f"value is held against `{committed.sha256:.12}`."
    )


def starts_table(record: Record) -> str:
    """Errors before and after, by where calibrations began."""
    return _starts(record, [name for name in record["starts"] if ALONE not in name])


def kinds_table(record: Record) -> str:
    """The same with one kind of constants fitted alone."""
    alone = [name for name in record["starts"] if ALONE in name]
    return _starts(record, ["datasheet", *alone])


def determined_table(record: Record) -> str:
    """What rows decide of each constant, those that they decide most first."""
    committed = load_profile(record["device"])
    runs = record["starts"][SCRATCH]["calibrations"]
    rows = []
    for name in runs[0]["constants"]:
        estimates = [run["constants"][name] for run in runs]
        determined = sum(e["determined"] for e in estimates) / len(estimates)
        truth = committed.constant(FAMILY, name)
        ratio = sum(e["value"] / truth for e in estimates) / len(estimates)
        inside = sum(e["low"] <= truth <= e["high"] for e in estimates)
        rows.append((determined, name, ratio, f"{inside} of {len(estimates)}"))
    lines = [
        "| constant | kind | determined | over the committed value | interval has that |",
        "|---|---|--:|--:|--:|",
        *(
            f"| `{name}` | {KIND[name]} | {determined:.2f} | {ratio:.2f} | {inside} |"
            for determined, name, ratio, inside in sorted(rows, key=lambda row: (-row[0], row[1]))
        ),
    ]
    among = [
        estimate["low"] <= committed.constant(FAMILY, name) <= estimate["high"]
        for run in runs
        for name, estimate in run["constants"].items()
    ]
    lines.append(f"\nOf all intervals {sum(among) / len(among):.0%} have the committed value.")
    return "\n".join(lines)


def _drift_words(drift: Record) -> str:
    """What timings tell, and of how many problems."""
    found = "drift" if drift["found"] else "no drift"
    return (
        f"{found}: {drift['off']} of {drift['problems']} are off by more than {drift['band']:.0%}, "
        f"the median ratio is {drift['ratio']:.2f}"
    )


def on_gpu_words(record: Record) -> str:
    """What a GPU was seen to do (``bench.gpu_calibrate``)."""
    scratch, cured = record["from_scratch"], record["cured"]
    lines = [
        f"{record['device']}, driver {record['driver']}, NVRTC {record['nvrtc']}, "
        f"{record['date'][:10]}. Mean errors; ground truth: rows that may be fitted to.\n",
        "| calibration | s | rows | fresh rows: before | after | the committed profile | "
        "ground truth, paper: after | committed | LLM and further: after | committed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, run in (("from the datasheet", scratch), ("of a planted profile", cured)):
        figures = [run["error_present"], run["error"], run["error_committed"]]
        for part in ("paper", "llm"):
            for told in (run["ground_truth"], record["committed"]):
                figures.append(told["fitted"][part]["mean_ape"])
        cells = " | ".join(f"{figure:.1%}" for figure in figures)
        lines.append(f"| {name} | {run['seconds']:.0f} | {run['rows']} | {cells} |")
    then, now = cured["drift_before"], cured["drift"]
    planted = ", ".join(f"`{name}` x{factor}" for name, factor in record["planted"].items())
    lines += [
        f"\nPlanted were {planted}. Picks, verified, tell of {_drift_words(then)}. By the "
        f"calibrated profile the same timings tell of {_drift_words(now)}.",
    ]
    for name, run in (
        ("Beside a neighbour", record["shared"]),
        ("With one that came while rows were measured", record["shared_later"]),
    ):
        reason = f" (`{run['reason']}`)" if run.get("reason") else ""  # one that failed has none
        lines.append(f"{name} a calibration {VERBS[run['status']]}{reason}: {run['details']}.")
    return "\n".join(lines)


TABLES = {"starts": starts_table, "kinds": kinds_table, "determined": determined_table}


def filled(text: str, record: Record, on_gpu: Record) -> str:
    """A page with its tables made anew."""
    stale = stale_line(record)
    head = "" if stale is None else f"{stale}\n\n"
    made = {name: head + table(record) for name, table in TABLES.items()}
    made["gpu"] = on_gpu_words(on_gpu)
    for name, table in made.items():
        begin, end = f"<!-- {name}: made by python -m bench.calibration_page -->", "<!-- end -->"
        pattern = re.compile(rf"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        body = f"{begin}\n\n{table}\n\n{end}"
        text = pattern.sub(lambda _, body=body: body, text)  # type: ignore[misc]
    return text


def main() -> None:
    """Remake the pages."""
    record, on_gpu = (read_record(RESULTS / "h200" / name) for name in (NAME, ON_GPU))
    for name in PAGES:
        path = DOCS / name
        replace_whole(path, filled(path.read_text("utf-8"), record, on_gpu).encode())


if __name__ == "__main__":
    main()
