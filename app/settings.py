"""Settings of the service, read from ``WARPWRIGHT_*`` once and checked at start."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from app.schemas.faults import limit_words, shown
from app.store.urls import database_url, default_url, shown_url
from kernels.cache import default_folder
from solver.device import profiles_folder
from solver.errors import InvalidInput

PREFIX = "WARPWRIGHT_"
CLIENTS = ("API_KEY",)
"""Names of what commands that call a service read, and no service does."""

HOST_NAME = re.compile("[a-z0-9._-]+")

ELSEWHERE: Mapping[str, Callable[[], Any]] = {
    "CACHE": default_folder,
    "PROFILES": lambda: profiles_folder() or "none",
}
"""Variables under the prefix that other layers read, and what each comes to: the kernel cache's
folder, and that of calibrated profiles."""


class Settings(BaseModel):
    """Every setting has a default; the environment and then the command line override it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    workers: int = Field(
        default_factory=lambda: max(1, min(4, os.cpu_count() or 1)),
        ge=1,
        le=256,
        description="solver processes",
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="names a request's Host may carry besides loopback's, comma-separated"
    )
    questions_waiting: int = Field(64, ge=1, le=100_000, description="questions that may wait")
    solve_deadline_s: float = Field(60.0, gt=0, le=3600, description="longest time of one answer")
    verify_deadline_s: float = Field(
        120.0, gt=0, le=3600, description="longest time of one verification"
    )
    verifications_waiting: int = Field(
        64, ge=1, le=100_000, description="jobs that may wait for the GPU"
    )
    verifications_kept: int = Field(
        1000, ge=1, le=1_000_000, description="finished jobs that stay readable"
    )
    gpus: tuple[int, ...] = Field(
        (),
        description="GPUs that jobs run on, comma-separated numbers among the visible ones; "
        "all where it is empty",
    )
    launches_kept: int = Field(
        1_000_000,
        ge=1000,
        le=10**9,
        description="lines of the audit that are kept; those of the last two days are in any case",
    )
    measurements_kept: int = Field(
        100_000,
        ge=100,
        le=10**9,
        description="measurements that are kept; those that answers rest on are in any case",
    )
    event_streams: int = Field(
        32, ge=1, le=10_000, description="clients that may follow a job's events at once"
    )
    database: str = Field(
        default_factory=default_url,
        description="where jobs, keys and launches are kept: SQLite's or PostgreSQL's URL",
    )
    stop_deadline_s: float = Field(
        20.0, ge=0, le=3600, description="how long a running job may go on once the service stops"
    )
    body_bytes: int = Field(65_536, ge=1024, le=2**30, description="largest request body")
    batch_body_bytes: int = Field(
        2**20, ge=1024, le=2**30, description="largest request body of a batch"
    )
    advise_body_bytes: int = Field(
        2**20, ge=1024, le=2**30, description="largest request body of /v1/advise"
    )
    answer_cache_bytes: int = Field(
        2**26, ge=0, le=2**40, description="memory for answers that are kept; 0 keeps none"
    )
    answer_max_age_s: int = Field(
        300,
        ge=0,
        le=31_536_000,
        description="how long a caller may use an answer without asking again",
    )
    body_deadline_s: float = Field(
        10.0, gt=0, le=3600, description="longest time for a request's body to arrive"
    )
    head_deadline_s: float = Field(
        10.0, gt=0, le=3600, description="longest time for a request's line and headers to arrive"
    )
    write_deadline_s: float = Field(
        60.0, gt=0, le=3600, description="how long a caller may leave unread what is sent to it"
    )
    connections: int = Field(
        512, ge=1, le=1_000_000, description="open connections; further ones get 503"
    )
    require_keys: Literal["auto", "always"] = Field(
        "auto", description="auto: unless bound to loopback; always: there too, as behind a proxy"
    )
    metrics_open: bool = Field(
        False, description="whether /metrics answers without a key where keys are required"
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        "info", description="the least of what is logged"
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto: text on a terminal, else JSON, a line each"
    )
    access_log: bool = Field(True, description="whether each request gets a line in the log")

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _hosts(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = tuple(part.strip("[]").lower() for part in _parts(value))
        if not all(HOST_NAME.fullmatch(part) or _is_address(part) for part in parts):
            raise PydanticCustomError(
                "allowed_hosts",
                "must be names or addresses with commas, without scheme, port or *, as "
                "gpu.example,10.0.0.7",
            )
        return parts

    @field_validator("gpus", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = _parts(value)
        if not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
            raise PydanticCustomError(
                "gpus", "must be whole numbers between 0 and 999 with commas, as 0,1"
            )
        if len(set(map(int, parts))) < len(parts):
            raise PydanticCustomError("gpus", "must name no GPU twice")
        return tuple(map(int, parts))

    @field_validator("require_keys", "log_level", "log_format", mode="before")
    @classmethod
    def _fold(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @field_validator("database")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            database_url(value)
        except InvalidInput as error:
            raise PydanticCustomError("database", "{reason}", {"reason": error.message}) from None
        return value

    def to_dict(self) -> dict[str, Any]:
        """What holds, as JSON-ready values, other layers' variables included; the database's
        password is hidden."""
        database = shown_url(database_url(self.database))
        elsewhere = {name.lower(): str(value()) for name, value in ELSEWHERE.items()}
        return {**self.model_dump(mode="json"), "database": database, **elsewhere}

    def resolved(self) -> dict[str, str]:
        """What each ``auto`` comes to, by the setting's name."""
        return {
            "require_keys": "needed" if self.keys_required else "not needed",
            "log_format": "json" if self.logs_as_json else "text",
        }

    @property
    def logs_as_json(self) -> bool:
        """Whether a line of the log is JSON, which says so of this process's standard error."""
        return self.log_format == "json" or (self.log_format == "auto" and not sys.stderr.isatty())

    @property
    def keys_required(self) -> bool:
        """Whether a request needs a key."""
        return self.require_keys == "always" or not self.loopback

    @property
    def loopback(self) -> bool:
        """Whether the service listens to this machine alone."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _parts(value: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, with ``overrides`` (None: not given) on top.

    Raises InvalidInput naming the variable (or the override) whose value breaks a limit.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {
        name: environ[PREFIX + name.upper()]
        for name in Settings.model_fields
        if PREFIX + name.upper() in environ
    }
    values |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        message: str = first["msg"]
        if first["type"] != field:  # not one of our own
            message = f"must be {limit_words(Settings.model_json_schema()['properties'][field])}"
        if field != "database":  # may hold a password
            message += f", got {shown(first['input'])}"
        raise InvalidInput(
            field if overrides.get(field) is not None else PREFIX + field.upper(), message
        ) from None


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Variables of the prefix that nothing reads: likely misspelt, worth a warning.

    They are no error: Kubernetes sets WARPWRIGHT_SERVICE_HOST and the like by itself.
    """
    environ = os.environ if environ is None else environ
    known = {PREFIX + name.upper() for name in (*Settings.model_fields, *ELSEWHERE, *CLIENTS)}
    return tuple(sorted(n for n in environ if n.startswith(PREFIX) and n not in known))
