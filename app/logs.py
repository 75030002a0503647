"""Logs, the server's included: one line an event, as JSON or for a person, with the request's id.

Everything goes through standard logging to standard error; ``extra`` members become members of
the line.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar

from opentelemetry import trace
from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from app.settings import Settings

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request that is being answered; threads that work for it see it too."""

NOT_SHOWN = frozenset({*RESERVED_ATTRS, "taskName", "color_message"})


def configure(settings: Settings) -> None:
    """Send every log to standard error in the settings' form, from their level on."""
    as_json = settings.log_format == "json" or (
        settings.log_format == "auto" and not sys.stderr.isatty()
    )
    handler = logging.StreamHandler()
    handler.setFormatter(json_formatter() if as_json else TextFormatter())
    handler.addFilter(add_context)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())


def json_formatter() -> logging.Formatter:
    """JSON lines: ``time``, ``level``, ``logger``, ``message``, the event's own members and,
    while one is answered, ``request_id`` (and ``trace_id``, where it is traced)."""
    return JsonFormatter(
        "{levelname}{name}{message}",
        style="{",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
        reserved_attrs=NOT_SHOWN,
        timestamp="time",
        json_ensure_ascii=False,
    )


class TextFormatter(logging.Formatter):
    """``level logger: message name=value ...`` for a person."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname:7} {name}: {message}", "%H:%M:%S", "{")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without its traceback."""
        members = "".join(
            f" {name}={value}"
            for name, value in vars(record).items()
            if name not in NOT_SHOWN and value is not None
        )
        return super().formatMessage(record) + members


def add_context(record: logging.LogRecord) -> bool:
    """A filter that drops nothing: adds which request, and which trace, a record belongs to."""
    request_id = REQUEST_ID.get()
    if request_id is not None:
        record.request_id = request_id
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        record.trace_id = trace.format_trace_id(span.trace_id)
    return True
