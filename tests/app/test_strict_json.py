"""JSON as the command line reads it, and as a request's body is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from app.strict_json import Refused, load, refusal_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, "b", null, true]}', {"a": [1, 2.5, "b", None, True]}),
        ("9" * 60, 10**60 - 1),
        ("1e3", 1000.0),
        (b'"\xc3\xa9"', "é"),
        (" 1 ", 1),
    ],
)
def test_json_is_read(text: str | bytes, value: Any) -> None:
    assert load(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("1 2", "Extra data"),
        ("'a'", "Expecting value"),
        ("NaN", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ('{"a": 1, "a": 2}', "'a' must not appear twice"),
        ('[{"b": {"a": 1, "a": 1}}]', "'a' must not appear twice"),
        ("1" * 61, "an integer may have 60"),
        ('{"\\udc00": 1}', "half a character"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff", "can't decode"),
    ],
)
def test_what_readers_disagree_on_is_refused(text: str | bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        load(text)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b'{"m": Infinity}'])
def test_a_body_that_the_route_names_itself_is_left_to_it(body: bytes) -> None:
    assert refusal_of(body) is None
