"""JSON in, stricter than Python's reader: what readers disagree on is refused, not guessed.

And JSON out, in one form.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from app.schemas.faults import shown

DIGITS_MAX = 60
"""Digits of an integer: far beyond every limit, and short enough to be shown."""

MEMBERS_MAX = 1000
"""Members of one object: many times what any has, and few enough that all of them can be named as
unknown in a moment."""


class Refused(ValueError):
    """What is wrong, in words for the caller."""


def load(text: str | bytes) -> Any:
    """The value of a JSON text. Raises Refused, for ``NaN`` and infinities too."""
    return _refusing(text, parse_constant=_constant)


def parse(body: bytes) -> Any:
    """The value of a request's body, as ``load``; but ``NaN`` and infinities are taken, so that a
    route can name the field that has one.
    """
    return _refusing(body)


def dump(value: Any) -> bytes:
    """The one text of a value that is sent: no spaces, UTF-8, no ``NaN``."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _refusing(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    try:
        return json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=parse_constant,
        )
    except Refused:
        raise
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except ValueError as error:
        raise Refused(str(error)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MEMBERS_MAX:
        raise Refused(
            f"an object has too many members: it may have {MEMBERS_MAX}, got {len(pairs)}"
        )
    for key, _ in pairs:
        if any("\ud800" <= character <= "\udfff" for character in key):
            raise Refused(f"the key {shown(key)} must be text, it holds half a character")
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused(f"the key {shown(key)} must not appear twice in one object")
            seen.add(key)
    return values


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise Refused(
            f"a number has too many digits: an integer may have {DIGITS_MAX}, got {shown(text)}"
        )
    return int(text)


def _number(text: str) -> float:
    # What json does by itself, but as a step of Python's: a thread that parses numbers by the
    # hundred thousand would else keep every other one waiting (see app.api.bodies).
    return float(text)


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is no number in JSON")
