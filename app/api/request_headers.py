"""Headers of a request that mean something to a route, checked."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Request

from app.schemas.faults import shown
from solver.errors import InvalidInput

IDEMPOTENCY_KEY = "Idempotency-Key"
LAST_EVENT_ID = "Last-Event-ID"

_KEY = re.compile(r"[!-~]{1,255}")
_NUMBER = re.compile(r"[0-9]{1,9}")


def _idempotency_key(request: Request) -> str | None:
    """The caller's name for this request; None where it gave none."""
    return _single(request, IDEMPOTENCY_KEY, _KEY, "1 to 255 visible ASCII characters, no space")


def _last_event(request: Request) -> int:
    """The number of the last event that the caller has, 0 where it has none."""
    value = _single(request, LAST_EVENT_ID, _NUMBER, "an event's id: up to 9 digits")
    return 0 if value is None else int(value)


IdempotencyKeyDep = Annotated[str | None, Depends(_idempotency_key)]
LastEventDep = Annotated[int, Depends(_last_event)]


def header_parameter(name: str, description: str, pattern: str | None = None) -> dict[str, object]:
    """The OpenAPI document's parameter for a header that a route reads."""
    schema = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    parameter = {"name": name, "in": "header", "required": False, "schema": schema}
    return parameter | {"description": description}


IDEMPOTENCY_PARAMETER = header_parameter(
    IDEMPOTENCY_KEY,
    "your own name for this request: sent again with the same body, it gets the same job",
    "^[!-~]{1,255}$",
)


def _single(request: Request, name: str, pattern: re.Pattern[str], limit: str) -> str | None:
    values = request.headers.getlist(name)
    if not values:
        return None
    if len(values) > 1:
        raise InvalidInput(name, f"must be given once, got {len(values)} of them")
    if not pattern.fullmatch(values[0]):
        raise InvalidInput(name, f"must be {limit}, got {shown(values[0])}")
    return values[0]
