"""Logs, the server's included: one line an event, as JSON or for a person, with the request's id.

Everything goes through standard logging to standard error; ``extra`` members become members of
the line.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from opentelemetry import trace

from app.settings import Settings

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request that is being answered; threads that work for it see it too."""

STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)
"""Members that every record has; uvicorn's ``color_message`` is its message again."""


ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def configure(settings: Settings) -> None:
    """Send every log to standard error in the settings' form, from their level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.logs_as_json else TextFormatter())
    handler.addFilter(add_context)
    root = logging.getLogger()
    root.handlers = [handler]
    level = getattr(logging, settings.log_level.upper())
    root.setLevel(level)
    if level > logging.DEBUG:  # it tells at each start how it reaches a database
        logging.getLogger("alembic").setLevel(max(level, logging.WARNING))


class JsonFormatter(logging.Formatter):
    """JSON lines: ``time``, ``level``, ``logger``, ``message``, the event's own members, an
    ``exception`` where there is one and, while one is answered, ``request_id`` (and ``trace_id``,
    where it is traced). A library's would take several times as long, for every request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **members(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return ENCODER.encode(line)


class TextFormatter(logging.Formatter):
    """``level logger: message name=value ...`` for a person."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname:7} {name}: {message}", "%H:%M:%S", "{")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        return super().formatMessage(record) + "".join(
            f" {name}={value}" for name, value in members(record).items() if value is not None
        )


def members(record: logging.LogRecord) -> dict[str, Any]:
    """What an event brought along itself, by ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD}


def add_context(record: logging.LogRecord) -> bool:
    """A filter that drops nothing: adds which request, and which trace, a record belongs to."""
    request_id = REQUEST_ID.get()
    if request_id is not None:
        record.request_id = request_id
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        record.trace_id = trace.format_trace_id(span.trace_id)
    return True
