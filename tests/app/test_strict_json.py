"""JSON as the command line reads it, and as a request's body is looked at."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from app.strict_json import MEMBERS_MAX, Refused, load, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, "b", null, true]}', {"a": [1, 2.5, "b", None, True]}),
        ("9" * 60, 10**60 - 1),
        ("1e3", 1000.0),
        ("[-0.0, 1.7976931348623157e308, 5e-324]", [-0.0, 1.7976931348623157e308, 5e-324]),
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


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a":1,"a":1}'])
def test_a_body_is_held_to_the_same(body: bytes) -> None:
    with pytest.raises(Refused) as told:
        load(body)
    with pytest.raises(Refused, match=re.escape(str(told.value))):
        parse(body)


def test_a_body_may_have_numbers_that_a_route_names_by_their_field() -> None:
    assert parse(b'{"m": Infinity}') == {"m": math.inf}


def test_an_object_has_no_more_members_than_can_be_named() -> None:
    def members(count: int) -> str:
        return json.dumps({f"x{i}": i for i in range(count)})

    assert len(load(members(MEMBERS_MAX))) == MEMBERS_MAX
    with pytest.raises(Refused, match="it may have 1000, got 1001"):
        load(f"[{members(MEMBERS_MAX + 1)}]")
