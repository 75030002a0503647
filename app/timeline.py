"""A trace as a picture and in words: the GPU's own timeline above the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

DRAWN = 64
"""K-iterations that are drawn, at most."""
LOAD_ROWS = 8
"""Rows over which loads that overlap are spread."""
WIDTH, LEFT, RIGHT = 960, 90, 16  # pixels
TOP, ROW, MATH, GAP = 46, 6, 18, 26
LOAD_COLOUR, UNSEEN_COLOUR = "#2563eb", "#bfdbfe"
MATH_COLOUR, EPILOGUE_COLOUR = "#d97706", "#059669"
SIDES = {"measured": "measured", "modelled": "predicted"}

Columns = dict[str, Any]


def trace_words(trace: dict[str, Any]) -> str:
    """What a trace says, in a line."""
    wait, tracing = trace["wait"], trace["disturbance"]
    start = trace["phases"]["math_start"]["mean_error_us"]
    return (
        f"MATH waits {wait['measured_us']:.2f} µs in CTA {trace['cta']}, predicted "
        f"{wait['modelled_us']:.2f}; MATH starts are off by {start or 0.0:.2f} µs in the mean; "
        f"tracing takes {tracing['ratio'] - 1:+.1%}"
    )


def timeline_svg(trace: dict[str, Any], title: str) -> str:
    """The first DRAWN k-iterations of a trace's critical CTA as SVG, in µs from its first load.

    A blue bar is a load from its issue to its arrival, pale where nobody was waiting for it and
    its arrival was not seen; an orange one a product; a green one an epilogue.
    """
    sides = {name: _cut(trace["timeline"][name]) for name in SIDES}
    span_us = max(max(_ends(columns), default=0.0) for columns in sides.values()) or 1.0
    height_of_side = LOAD_ROWS * ROW + MATH + GAP
    height = TOP + len(sides) * height_of_side + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
        f'<text x="{LEFT}" y="34" fill="#555">{escape(trace_words(trace))}</text>',
    ]
    for place, (name, columns) in enumerate(sides.items()):
        top = TOP + place * height_of_side
        parts.append(f'<text x="8" y="{top + 12}">{SIDES[name]}</text>')
        for label, y in (("loads", top + 28), ("MATH", top + LOAD_ROWS * ROW + 13)):
            parts.append(f'<text x="8" y="{y}" fill="#555">{label}</text>')
        parts += _bars(columns, top, span_us)
    parts += _axis(height - 20, span_us)
    return "\n".join([*parts, "</svg>", ""])


def _cut(columns: Columns) -> Columns:
    """The first DRAWN k-iterations, with the epilogues between them."""
    cut = {name: values[:DRAWN] for name, values in columns.items()}
    units = cut["unit"][-1] + 1 if cut["unit"] else 0
    ended = units if len(columns["unit"]) <= DRAWN else units - 1
    cut["epilogue_end_us"] = columns["epilogue_end_us"][: max(0, ended)]
    return cut


def _ends(columns: Columns) -> list[float]:
    return [*columns["math_end_us"], *columns["epilogue_end_us"]]


def _bars(columns: Columns, top: int, span_us: float) -> Iterator[str]:
    math_top = top + LOAD_ROWS * ROW
    last_end: dict[int, float] = {}
    for i, unit in enumerate(columns["unit"]):
        issue, arrived = columns["load_issue_us"][i], columns["load_end_us"][i]
        start, end = columns["math_start_us"][i], columns["math_end_us"][i]
        colour = UNSEEN_COLOUR if arrived is None else LOAD_COLOUR
        until = start if arrived is None else arrived
        yield _bar(issue, until, top + i % LOAD_ROWS * ROW, ROW - 1, colour, span_us)
        yield _bar(start, end, math_top, MATH - 2, MATH_COLOUR, span_us)
        last_end[unit] = end
    for unit, ready in enumerate(columns["epilogue_end_us"]):
        if unit in last_end:
            yield _bar(last_end[unit], ready, math_top, MATH - 2, EPILOGUE_COLOUR, span_us)


def _x(time_us: float, span_us: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * time_us / span_us


def _bar(from_us: float, to_us: float, y: int, height: int, colour: str, span_us: float) -> str:
    """A bar, a gap's breadth narrower than its time, so that neighbours are seen to be two."""
    x, end = _x(from_us, span_us), _x(max(from_us, to_us), span_us)
    width = max(0.5, end - x - 0.4)
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def _axis(y: int, span_us: float) -> Iterator[str]:
    """A line with a tick at every round number of µs, 4 to 10 of them."""
    steps = (digit * 10.0**power for power in range(7, -5, -1) for digit in (5, 2, 1))
    step = next(step for step in steps if span_us / step >= 4)
    yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#555"/>'
    for tick in range(int(span_us / step) + 1):
        x = _x(tick * step, span_us)
        yield f'<path d="M{x:.1f} {y}v4" stroke="#555"/>'
        yield f'<text x="{x:.1f}" y="{y + 15}" text-anchor="middle">{tick * step:g}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{y - 4}" text-anchor="end">µs from the first load</text>'
