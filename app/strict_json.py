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


class Refused(ValueError):
    """What is wrong, in words for the caller."""


def load(text: str | bytes) -> Any:
    """The value of a JSON text. Raises Refused, for ``NaN`` and infinities too."""
    try:
        return _load(text, parse_constant=_constant)
    except Refused:
        raise
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except ValueError as error:
        raise Refused(str(error)) from None


def refusal_of(body: bytes) -> str | None:
    """Why a request's body is refused, or None.

    What is no JSON at all is left to the route; so are ``NaN`` and infinities, which it then
    names by their field.
    """
    try:
        _load(body)
    except Refused as refused:
        return str(refused)
    except (ValueError, RecursionError):
        return None
    return None


def dump(value: Any) -> bytes:
    """The one text of a value that is sent: no spaces, UTF-8, no ``NaN``."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _load(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    return json.loads(
        text, object_pairs_hook=_object, parse_int=_integer, parse_constant=parse_constant
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is no number in JSON")
