"""What Python's JSON reader lets pass or fails on, and a request's body must not hold."""

from __future__ import annotations

import json
from typing import Any

from app.schemas.faults import shown

DIGITS_MAX = 60
"""Digits of an integer in a body: far beyond every limit, and short enough to be shown."""


class _Refused(Exception):
    """What is wrong, in words for the caller."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, _ in pairs:
        if any("\ud800" <= character <= "\udfff" for character in key):
            raise _Refused(f"the key {shown(key)} must be text, it holds half a character")
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the key {shown(key)} must not appear twice in one object")
            seen.add(key)
    return values


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise _Refused(
            f"a number has too many digits: an integer may have {DIGITS_MAX}, got {shown(text)}"
        )
    return int(text)


def refusal_of(body: bytes) -> str | None:
    """Why a body is refused, or None; one that is no JSON at all is left to the route."""
    try:
        json.loads(body, object_pairs_hook=_object, parse_int=_integer)
    except _Refused as refused:
        return str(refused)
    except (ValueError, RecursionError):
        return None
    return None
