"""How far the model is from the ground truth: tables and plots for the README and docs/results.md.

Shown once ``accuracy.json`` is there, what ``warpwright bench accuracy --json`` prints: it looks at
rows that are held out, so that it is made when the model is frozen, and not by whoever remakes the
page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.accuracy import scored_groups
from app.recorded import GROUND_TRUTH, read_recorded
from bench.plots import plot_errors_by_class, plot_regret, plot_truth
from bench.records import read_record
from solver.accuracy import HELD_OUT, MODEL
from solver.device import load_profile
from solver.raced import TOP_COUNT

NAME = "accuracy.json"
NOT_YET = (
    "Prediction error and regret over the ground truth are not shown: {why} ([how they are "
    "made]({docs}accuracy.md))."
)
PUBLISHED = {"mean": 0.045, "max": 0.215}
"""Errors that arXiv 2506.11209 gives: 2,048 configurations, M, N and K up to 1,024, RTX A6000."""
PUBLISHED_ROWS = 2048

TITLES = {"paper": "the paper's protocol, warm", "llm": "LLM suite and further shapes, cold"}
CLASSES = {"by_m": "m {}", "by_kind": "{}", "by_split": "held out by {}"}
KIND_WORDS = {
    "plain": "aligned, tn, even pitch",
    "odd_pitch": "odd pitch",
    "unaligned": "unaligned",
    "layout": "other layouts",
    "output": "other type of C",
}
IMAGES = {
    "predicted against measured, rows that nothing was fitted to": "truth.png",
    "error by class": "error_by_class.png",
    "regret over k": "regret_over_k.png",
}
RACED = ("nvmmh", "triton")
PEER_WORDS = {
    "nvmmh": "nvMatmulHeuristics",
    "published": "published model",
    "roofline": "roofline",
    "triton": "Triton",
}

Record = dict[str, Any]


def read_accuracy(folder: Path, device: str) -> tuple[Record | None, str]:
    """The recorded answer, or None and why there is none to show.

    SystemExit for one of other constants than the profile's: the figures are of another model.
    """
    if not (folder / GROUND_TRUTH).is_file():
        return None, "no ground truth has been measured"
    record: Record | None = read_record(folder / NAME)
    if record is None:
        return None, "no frozen model has been held against what is held out"
    if record.get("profile_sha256") != load_profile(device).sha256:
        raise SystemExit(f"{NAME} is of another model: make it again (docs/accuracy.md)")
    return record, ""


def not_yet(why: str, docs: str) -> str:
    """The sentence that stands where figures would; ``docs`` leads to the folder of docs."""
    return NOT_YET.format(why=why, docs=docs)


def classes_of(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every class of rows that is shown, with its words: both parts whole, then the cold ones."""
    for name, title in TITLES.items():
        yield title, record[name]
    for group, words in CLASSES.items():
        for name, figures in record["llm"].get(group, {}).items():
            yield words.format(KIND_WORDS.get(name, name)), figures


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def error_table(record: Mapping[str, Any]) -> str:
    """One line a class: the model's errors, and each peer's mean, in brackets times a constant."""
    said = {name for part in TITLES for name in record[part].get("peers", {})}
    peers = [name for name in PEER_WORDS if name in said]
    names = "".join(f" {PEER_WORDS[name]}: mean (times a constant) |" for name in peers)
    lines = [
        f"| prediction error of held-out rows | rows | mean | p95 | max |{names}",
        f"|{'---|' * (5 + len(peers))}",
    ]
    for words, figures in classes_of(record):
        errors = [_percent(figures[key]) for key in ("mean_ape", "p95_ape", "max_ape")]
        for name in peers:
            theirs = figures.get("peers", {}).get(name)
            errors.append(
                "-"
                if theirs is None
                else f"{_percent(theirs['mean_ape'])} ({_percent(theirs['scaled']['mean_ape'])})"
            )
        lines.append(f"| {words} | {figures['rows']:,} | {' | '.join(errors)} |")
        quiet = figures.get("quiet")
        if quiet is not None:
            errors = [_percent(quiet[key]) for key in ("mean_ape", "p95_ape", "max_ape")]
            cells = " | ".join([*errors, *[""] * len(peers)])
            lines.append(f"| of these, rows that are not noisy | {quiet['rows']:,} | {cells} |")
    cells = " | ".join(
        [_percent(PUBLISHED["mean"]), "-", _percent(PUBLISHED["max"]), *["-"] * len(peers)]
    )
    lines.append(f"| published, another GPU and kernel | {PUBLISHED_ROWS:,} | {cells} |")
    return "\n".join(lines)


def regret_table(record: Mapping[str, Any]) -> str:
    """What the races found, and what the rows of the ground truth alone say."""
    regret = record["regret"]
    raced: list[tuple[str, Any, Any, Any]] = [
        ("the pick", regret["shapes"] - regret["unmeasured"], regret["geomean"], regret["worst"]),
        (
            "the pick, held-out shapes",
            regret["held_out"]["shapes"] - regret["held_out"]["unmeasured"],
            regret["held_out"]["geomean"],
            regret["held_out"]["worst"],
        ),
        (
            "best of the model's first five",
            regret["shapes"] - regret["unmeasured"],
            regret["top5_geomean"],
            regret["top5_worst"],
        ),
        # A record made before there were verifications of several has no such figures.
        (
            f"best of the five, each of a further tile, that top_k {TOP_COUNT} races",
            regret.get("contest_shapes") or "not run",
            regret.get("contest_geomean"),
            regret.get("contest_worst"),
        ),
        (
            f"answers after verifying each with top_k {TOP_COUNT}",
            regret.get("learnt_shapes") or "not run",
            regret.get("learnt_geomean"),
            regret.get("learnt_worst"),
        ),
    ]
    for name in RACED:
        peer = regret["peers"][name]
        raced.append((f"{PEER_WORDS[name]}'s pick", peer["shapes"], peer["geomean"], peer["worst"]))
        raced.append(
            ("  the pick on these", peer["shapes"], peer["pick_geomean"], peer["pick_worst"])
        )
    lines = [
        "| regret, raced | shapes | geomean | worst |",
        "|---|---|---|---|",
        *(
            f"| {words.strip()} | {shapes} | {_ratio(mean)} | {_ratio(worst)} |"
            for words, shapes, mean, worst in raced
        ),
    ]
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def noise_line(record: Mapping[str, Any]) -> str:
    """How far apart two measurements of a row are."""
    words = []
    for name, title in TITLES.items():
        noise = record[name].get("noise") or {"rows": 0}
        if noise["rows"]:
            words.append(
                f"{title}: {noise['rows']:,} rows, {noise['median']:.1%} in the median, "
                f"{noise['p95']:.1%} at p95"
            )
    return f"Two measurements of one row are apart: {'; '.join(words)}." if words else ""


def accuracy_line(record: Record | None, why: str, docs: str) -> str:
    """Errors, regret and peers in a paragraph, or the sentence that says why there are none."""
    if record is None:
        return not_yet(why, docs)
    words = []
    for name, title in TITLES.items():
        part = record[name]
        peers = [
            f"{PEER_WORDS[peer]} {_percent(part['peers'][peer]['mean_ape'])}"
            for peer in PEER_WORDS
            if peer in part.get("peers", {})
        ]
        errors = [_percent(part[key]) for key in ("mean_ape", "p95_ape", "max_ape")]
        words.append(
            f"{title}, {part['rows']:,} rows: {errors[0]} in the mean, {errors[1]} at p95, "
            f"{errors[2]} at most ({', '.join(peers)})"
        )
    regret = record["regret"]
    raced = regret["shapes"] - regret["unmeasured"]
    lines = [f"Predictions of rows that nothing was fitted to: {'; '.join(words)}."]
    if raced:
        peers = [
            f"{PEER_WORDS[peer]}'s {_ratio(regret['peers'][peer]['geomean'])}"
            for peer in RACED
            if regret["peers"][peer]["geomean"] is not None
        ]
        lines.append(
            f"Raced against the best that is known of {raced} shapes, the pick takes "
            f"{_ratio(regret['geomean'])} of its time in the geometric mean, "
            f"{_ratio(regret['worst'])} at worst (picks of {', '.join(peers)})."
        )
        if regret.get("learnt_shapes"):
            lines.append(
                f"What is answered once each has been verified with `top_k` {TOP_COUNT} takes "
                f"{_ratio(regret['learnt_geomean'])} and {_ratio(regret['learnt_worst'])} "
                f"([learning]({docs}learning.md))."
            )
    return f"**The model.** {' '.join(lines)} By class: [accuracy]({docs}accuracy.md)."


def accuracy_parts(record: Record | None, why: str, docs: str) -> list[str]:
    """What is shown of errors and regrets, or the sentence that says why nothing is."""
    if record is None:
        return [not_yet(why, docs)]
    noise = noise_line(record)
    return [error_table(record), *([noise] if noise else []), regret_table(record)]


def draw_accuracy(record: Record | None, folder: Path, device: str, images: Path) -> dict[str, str]:
    """The plots, by words and file name; none without a record."""
    if record is None:
        return {}
    scored = scored_groups(read_recorded(device, folder), load_profile(device))
    parts = {}
    for title, cold in ((TITLES["paper"], False), (TITLES["llm"], True)):
        chosen = [s for s in scored if s.group.cold == cold]
        rows = [s.rows(HELD_OUT) for s in chosen]
        if any(mask.any() for mask in rows):
            pairs = list(zip(chosen, rows, strict=True))
            parts[title] = (
                np.concatenate([s.predicted[MODEL][mask] for s, mask in pairs]),
                np.concatenate([s.group.measured_us[mask] for s, mask in pairs]),
            )
    names = list(IMAGES.values())
    images.mkdir(parents=True, exist_ok=True)
    plot_truth(parts, images / names[0])
    classes = {words: figures for words, figures in classes_of(record) if figures["rows"]}
    published = {f"published {key}": value for key, value in PUBLISHED.items()}
    plot_errors_by_class(classes, published, images / names[1])
    regret = record["regret"]
    of_first = {
        PEER_WORDS.get(name, name): figures["of_first"]
        for name, figures in regret["over_measured"].items()
    }
    held = regret["held_out"]
    raced = {
        words: (count, held[key])
        for words, count, key in (
            ("the pick, raced", 1, "geomean"),
            ("best of five, raced", 5, "top5_geomean"),
        )
        if held[key] is not None
    }
    plot_regret(of_first, raced, images / names[2])
    return dict(IMAGES)
