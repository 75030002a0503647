"""Traces: FastAPI's own, sent by OpenTelemetry where that is installed and told where to."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from typing import Any

from fastapi.telemetry import TelemetryConfig

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
UNTRACED = ("/healthz", "/readyz", "/metrics")


def telemetry(environ: Mapping[str, str] | None = None) -> TelemetryConfig:
    """What to trace: a span for every request but probes, where an endpoint is set and the extra
    ``otel`` is installed; a warning where only the former is so.

    Counts are Prometheus' and logs are standard error's: neither is sent twice.
    """
    environ = os.environ if environ is None else environ
    wanted = any(environ.get(name) for name in ENDPOINTS)
    possible = wanted and _installed()
    if wanted and not possible:
        log.warning(
            "%s is set and no traces are sent: what they need comes with the extra `otel`, "
            "pip install 'warpwright[otel]'",
            next(name for name in ENDPOINTS if environ.get(name)),
        )
    return TelemetryConfig(
        tracing=possible,
        auto_configure=possible,
        metrics=False,
        logs=False,
        operation_spans=False,
        exclude=_untraced,
    )


def _installed() -> bool:
    try:
        return importlib.util.find_spec(EXPORTER) is not None
    except ModuleNotFoundError:  # not even the package above it
        return False


def _untraced(scope: Any) -> bool:
    return scope.get("path") in UNTRACED
