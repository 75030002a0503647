"""The picture of a trace."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from app.timeline import (
    DRAWN,
    EPILOGUE_COLOUR,
    LEFT,
    LOAD_COLOUR,
    MATH_COLOUR,
    RIGHT,
    UNSEEN_COLOUR,
    WIDTH,
    timeline_svg,
    trace_words,
)
from tests.app.traces import trace

NAMESPACE = "{http://www.w3.org/2000/svg}"


def bars(svg: str, colour: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(svg)
    return [r.attrib for r in root.iter(f"{NAMESPACE}rect") if r.attrib.get("fill") == colour]


def test_every_load_product_and_epilogue_of_both_sides_has_its_bar() -> None:
    found = trace(units=2)
    svg = timeline_svg(found, "a title")
    assert found["timeline"]["shown"] == 48 < DRAWN
    assert len(bars(svg, MATH_COLOUR)) == 2 * 48
    assert len(bars(svg, EPILOGUE_COLOUR)) == 2 * 2
    # Four measured loads were seen to arrive, and all of the model's.
    assert len(bars(svg, LOAD_COLOUR)) == 4 + 48
    assert len(bars(svg, UNSEEN_COLOUR)) == 44


def test_bars_lie_in_time_and_within_the_picture() -> None:
    found = trace(units=2)
    svg = timeline_svg(found, "a title")
    measured = found["timeline"]["measured"]
    span = max(measured["epilogue_end_us"])
    first, last = bars(svg, MATH_COLOUR)[0], bars(svg, EPILOGUE_COLOUR)[1]
    across = WIDTH - LEFT - RIGHT
    assert float(first["x"]) == pytest.approx(
        LEFT + across * measured["math_start_us"][0] / span, abs=0.1
    )
    assert float(last["x"]) + float(last["width"]) == pytest.approx(WIDTH - RIGHT, abs=0.6)
    for colour in (LOAD_COLOUR, MATH_COLOUR, EPILOGUE_COLOUR):
        for bar in bars(svg, colour):
            assert float(bar["x"]) >= LEFT
            assert float(bar["x"]) + float(bar["width"]) <= WIDTH - RIGHT + 0.6


def test_a_long_timeline_is_drawn_up_to_a_limit_without_what_it_cuts_in_two() -> None:
    svg = timeline_svg(trace(units=8), "a title")
    assert len(bars(svg, MATH_COLOUR)) == 2 * DRAWN
    assert len(bars(svg, EPILOGUE_COLOUR)) == 2 * 2


def test_a_title_is_text_whatever_it_holds() -> None:
    svg = timeline_svg(trace(), "<script>alert(1)</script> & more")
    root = ElementTree.fromstring(svg)
    assert "<script" not in svg
    texts = [text.text for text in root.iter(f"{NAMESPACE}text")]
    assert "<script>alert(1)</script> & more" in texts


def test_a_trace_of_nothing_is_a_picture_without_bars() -> None:
    found: dict[str, Any] = trace()
    empty = {name: [] for name in found["timeline"]["measured"]}
    nothing = {**found, "timeline": {"shown": 0, "measured": empty, "modelled": empty}}
    assert bars(timeline_svg(nothing, "a title"), MATH_COLOUR) == []


def test_a_trace_in_words_has_both_waits_and_what_tracing_costs() -> None:
    found = trace()
    words = trace_words(found)
    waits = re.findall(r"(\d+\.\d\d)", words)
    assert waits[0] == f"{found['wait']['measured_us']:.2f}"
    assert waits[1] == f"{found['wait']['modelled_us']:.2f}"
    assert "+1.0%" in words
