"""What the norm_activation grid says of dividing warps: for docs/results.md and the README.

Every figure is of ``app.fused`` over the recorded grid, with the model and the advice as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.errors import EnvironmentLacks
from app.fused import fused
from bench.fused_plots import COPIES, plot_gains, plot_sweep
from solver.errors import Unsupported
from solver.families.norm_activation import KINDS
from solver.families.norm_activation_rivals import RIVAL_WORDS
from solver.fused import SIGNS, TIE, VERDICTS

TITLE = "## Dividing the warps of norm_activation"
IMAGES = {
    "gain of divided warps, measured and by the model": "fused_gains.png",
    "time over like warps' by producers : consumers, measured and by the model": "fused_sweep.png",
}
NOT_BY_MEMORY = (
    "As many warps as fit; the copy is that of the measured ceilings, of larger arrays. Rows of "
    "bf16 are not bound by memory alone, by the model: unpacking, statistics, scale and shift of "
    "twice as many elements take their warps about as long as loading does."
)
WARPS = {None: "all that fit", 16: "16 on an SM", 8: "8 on an SM", 4: "4 on an SM"}

Record = Mapping[str, Any]


def read_fused(folder: Path, device: str) -> tuple[Record | None, str]:
    """The figures over a folder's grid, or None and why there are none."""
    try:
        return fused(device, folder), ""
    except EnvironmentLacks:
        return None, "no grid of norm_activation has been measured"
    except Unsupported:
        return None, f"no constant of norm_activation has been fitted for {device}"


def draw_fused(record: Record | None, images: Path) -> dict[str, str]:
    """Draw what there is; file names by what a reader is told they show."""
    if record is None:
        return {}
    gains, sweep = IMAGES.values()
    plot_gains(record["by_problem"], images / gains)
    plot_sweep(record["ratio_sweep"], WARPS, images / sweep)
    return dict(IMAGES)


def fused_line(record: Record | None, why: str, docs: str) -> str:
    """Whether specialising wins, how good advice is and how far the model errs, in a few sentences;
    ``docs`` is where the pages lie."""
    if record is None:
        return f"Dividing the warps of norm_activation: not shown, {why} ([how]({docs}norm.md))."
    natural = [row for row in record["by_problem"] if row["warps_per_sm"] is None]
    gains = sorted(row["gain"] for row in natural if row["gain"] is not None)
    winners = "; ".join(_named(row) for row in natural if (row["gain"] or 0.0) > 1 + TIE)
    won = record["specialised_wins_natural"]
    where = "never" if not won else f"in {won}"
    middle = f"{gains[0]:.2f} to {gains[-1]:.2f} times as fast" if gains else "not measured"
    starved = record["specialised_wins"] - won
    unseen = record["advice_right_heldout"]
    return (
        f"**Dividing warps into producers and consumers** (LayerNorm and a polynomial, "
        f"[norm_activation]({docs}norm.md), {record['problems']} problems): at natural occupancy "
        f"it beats the best kernel of like warps {where} of {len(natural)} problems by more than "
        f"2 % ({middle}{winners and f': {winners}'}); where 4, 8 or 16 warps fit on an SM, in "
        f"{starved} of {record['problems'] - len(natural)}. `warpwright advise`, without "
        f"races of the problem itself (the model and those of other degrees remain), gives a "
        f"verdict on {_percent(record['coverage'])} of "
        f"{record['decided']} decided problems and is right on "
        f"{_percent(record['advice_right'])} of those "
        f"({_percent(record['coverage_heldout'])} and {_percent(unseen)} of "
        f"{record['decided_heldout']} that nothing was fitted to; of all decided, no verdict being "
        f"a wrong one, on {_percent(record['advice_right_all'])}); held against strong kernels "
        f"without a ring on {_percent(record['against']['strong']['advice_right'])}, against plain "
        f"ones on {_percent(record['against']['plain']['advice_right'])}; predicted times "
        f"are {_percent(record['mean_ape_heldout'])} off on held-out rows, and the model's pick "
        f"takes {record['regret_mean_heldout'] - 1:.1%} more than the fastest there."
    )


def fused_part(record: Record | None, why: str, shown: Sequence[str] = ()) -> str:
    """The section of docs/results.md, ``shown`` pictures included."""
    if record is None:
        return f"{TITLE}\n\n`warpwright bench fused`: not shown, {why}."
    facts = record["measured"]
    about = (
        f"`warpwright bench fused` over `norm_grid.json`: {facts['device']}, {facts['date'][:10]}, "
        f"{record['rows']:,} rows of {record['problems']} problems ({record['problems_heldout']} "
        f"held out of every fit), {record['failed_rows']} rows failed. A gain is the time of the "
        "rival over that of the fastest specialised kernel; within 2 % of 1 it is a tie and "
        "decides nothing. Advice is asked for without the races of the problem itself; it leaves "
        "undecided what its residuals don't tell. By the sign alone: had it said yes wherever it "
        "expects a gain above 1, and no elsewhere."
    )
    blocks = [TITLE, about, fused_line(record, why, ""), advice_table(record), model_table(record)]
    blocks += [*shown, problem_table(record), bandwidth_table(record)]
    blocks += [sweep_table(record["ratio_sweep"], _roles, "producers : consumers")]
    blocks += [sweep_table(record["depth_sweep"], _depth, "depth, one copying thread")]
    blocks.append(claim_table(record))
    return "\n\n".join(block for block in blocks if block)


def advice_table(record: Record) -> str:
    """Advice by the sign of the measured gain, against each rival."""
    lines = []
    for rival, words in RIVAL_WORDS.items():
        figures = record["against"][rival]
        words += " (the headline)" if rival == record["headline"] else ""
        for name, part in (("all", figures), ("held out", figures["heldout"])):
            said = [part["confusion"][v] for v in VERDICTS]
            cells = [
                words,
                name,
                _percent(part["advice_right"]),
                f"{part['decided'] - part['undecided']} of {part['decided']}",
                _percent(part["right_when_yes"]),
                _percent(part["right_when_no"]),
                *(" / ".join(str(row[sign]) for row in said) for sign in SIGNS),
                _percent(part["advice_right_all"]),
                _percent(part["sign_right"]),
            ]
            lines.append(cells)
    return _table(
        (
            *("advice against", "problems", "right", "has a verdict for", "right where won"),
            *("right where lost", "won: yes / no / undecided", "lost: yes / no / undecided"),
            *("tied: yes / no / undecided", "right, undecided as wrong", "by the sign alone"),
        ),
        lines,
    )


def model_table(record: Record) -> str:
    """Errors of predicted times and regrets of picks."""
    lines = []
    for name, end in (("all problems", ""), ("held out", "_heldout")):
        errors = [_percent(record[f"{each}{end}"]) for each in ("mean_ape", "p95_ape", "max_ape")]
        regrets = [_ratio(record[f"{each}{end}"]) for each in ("regret_mean", "regret_worst")]
        lines.append([name, f"{record[f'rows{end}']:,}", *errors, *regrets])
    return _table(
        ("predicted times", "rows", "error, mean", "p95", "max", "regret, mean", "worst"), lines
    )


def problem_table(record: Record) -> str:
    """Each problem: the fastest of each kind as measured, and the gain beside the model's."""
    lines = []
    for row in record["by_problem"]:
        times = ["-" if row[f"{kind}_us"] is None else f"{row[f'{kind}_us']:.1f}" for kind in KINDS]
        lines.append(
            [
                _named(row),
                WARPS[row["warps_per_sm"]],
                *times,
                _ratio(row["gain"]),
                _ratio(row["gain_predicted"]),
                row["advice"],
                "yes" if row["held_out"] else "",
            ]
        )
    heads = [f"{kind} µs" for kind in KINDS]
    return _table(("problem", "warps", *heads, "gain", "by the model", "advice", "held out"), lines)


def _named(row: Record) -> str:
    return f"{row['dtype']}, width {row['width']}, degree {row['degree']}"


def bandwidth_table(record: Record) -> str:
    """Strong kernels against what a copy moves, where memory alone bounds them."""
    if not record["bandwidth"]:
        return ""
    table = _table(
        ("arithmetic half of a copy's time at most", "strong µs", "of a copy's rate", "fastest"),
        [
            [
                _named(row),
                f"{row['strong_us']:.1f}",
                _percent(row["strong_of_copy"]),
                _percent(row["best_of_copy"]),
            ]
            for row in record["bandwidth"]
        ],
    )
    return f"{table}\n\n{NOT_BY_MEMORY}"


def sweep_table(lines: Sequence[Record], name_of: Any, title: str) -> str:
    """Time over that of the fastest of like warps: measured, and by the model in brackets."""
    by_name: dict[str, dict[int | None, str]] = {}
    for line in lines:
        cell = f"{line['measured']:.2f} ({line['modelled']:.2f})"
        by_name.setdefault(name_of(line), {})[line["warps_per_sm"]] = cell
    rows = [[name, *(cells.get(w, "-") for w in WARPS)] for name, cells in by_name.items()]
    return _table((f"{title}: time over like warps', measured (modelled)", *WARPS.values()), rows)


def _roles(line: Record) -> str:
    return f"{line['producers']}:{line['consumers']}, {COPIES[line['copies']]}"


def _depth(line: Record) -> str:
    return f"1:{line['consumers']}, {line['depth']} slots of 16 KiB"


def claim_table(record: Record) -> str:
    """The published claim and its neighbours, point by point."""
    return _table(
        ("what is said", "over", "held", "ratio of times: median", "least", "most", "why"),
        [
            [
                line["claim"],
                line["over"],
                f"{line['held']} of {line['problems']}",
                *(_ratio(line[name]) for name in ("median", "least", "most")),
                line["why"],
            ]
            for line in record["claims"]
        ],
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(heads)} |"
        yield f"|{'---|' * len(heads)}"
        for row in rows:
            yield f"| {' | '.join(row)} |"

    return "\n".join(lines())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
