"""Members of a JSON document: what they must be, and how they are shown in a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

SHOWN_MAX = 80
SHOWN_BITS_MAX = 128


def shown(value: Any) -> str:
    """A value in few words; safe for integers too long to print and lists too deep to."""
    if type(value) is dict:
        return f"an object of {len(value)} members"
    if type(value) is list:
        return f"a list of {len(value)} items"
    if type(value) is int and value.bit_length() > SHOWN_BITS_MAX:
        return f"an integer of {value.bit_length()} bits"
    if type(value) is str:
        return repr(value if len(value) <= SHOWN_MAX else value[:SHOWN_MAX] + "...")
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)[:SHOWN_MAX]


def inside(path: str, name: Any) -> str:
    """The path of a member of ``path``; the document's own path is empty."""
    member = name if type(name) is str and len(name) <= SHOWN_MAX else shown(name)
    return f"{path}.{member}" if path else member


def object_faults(
    path: str, value: Any, required: Iterable[str], optional: Iterable[str] = ()
) -> Iterator[str]:
    """Why ``value`` is no object of exactly these members."""
    if type(value) is not dict:
        yield f"{path} must be an object, got {shown(value)}"
        return
    required = tuple(required)
    for name in required:
        if name not in value:
            yield f"{inside(path, name)} is missing"
    known = {*required, *optional}
    for name in value:
        if name not in known:
            yield f"{inside(path, name)} is unknown"


def choice_faults(path: str, value: Any, choices: Iterable[str]) -> Iterator[str]:
    """Why ``value`` is none of the texts that may stand here."""
    choices = tuple(choices)
    if type(value) is not str or value not in choices:
        yield f"{path} must be one of {', '.join(choices)}, got {shown(value)}"


def integer_faults(path: str, value: Any, least: int, most: int) -> Iterator[str]:
    """Why ``value`` is no integer from ``least`` to ``most``; a boolean is none."""
    if type(value) is not int or not least <= value <= most:
        yield f"{path} must be an integer from {least} to {most}, got {shown(value)}"


def differences(path: str, expected: Any, got: Any) -> Iterator[str]:
    """Each place where a JSON value is not the expected one, in value or in type."""
    if type(expected) is dict:
        yield from object_faults(path, got, expected)
        if type(got) is dict:
            for name in (name for name in expected if name in got):
                yield from differences(inside(path, name), expected[name], got[name])
    elif type(expected) is list:
        if type(got) is not list:
            yield f"{path} must be a list, got {shown(got)}"
        elif len(got) != len(expected):
            yield f"{path} must have {len(expected)} items, got {len(got)}"
        else:
            for i, (one, other) in enumerate(zip(expected, got, strict=True)):
                yield from differences(f"{path}[{i}]", one, other)
    elif type(got) is not type(expected) or got != expected or str(got) != str(expected):
        # Also by their digits, so that -0.0 is not 0.0.
        yield f"{path} must be {shown(expected)}, got {shown(got)}"
