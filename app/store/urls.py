"""Which databases there are, as URLs: read, defaulted, and shown without their secrets."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote_plus

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from solver.errors import InvalidInput

POSTGRESQL_FORM = "postgresql://user:password@host/name"
MASK = "***"


def state_folder() -> Path:
    """``warpwright`` in the XDG state folder of this user."""
    base = os.environ.get("XDG_STATE_HOME")
    # The XDG specification has relative paths ignored.
    folder = Path(base) if base and Path(base).is_absolute() else Path("~/.local/state")
    return Path(os.path.expanduser(folder)) / "warpwright"


def default_url() -> str:
    """SQLite's file in the user's state folder."""
    return f"sqlite:///{state_folder() / 'warpwright.db'}"


def database_url(value: str) -> URL:
    """The URL of a setting, a file's path made absolute; InvalidInput for another database than
    the two.

    ``sqlite:////folder/file.db``, ``postgresql://user:password@host/name``.
    """
    forms = f"as {default_url()} or {POSTGRESQL_FORM}"
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise InvalidInput("database", f"must be a URL, {forms}") from None
    kind = url.get_backend_name()
    if kind == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise InvalidInput("database", f"must be sqlite or postgresql, got {kind}; {forms}")
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InvalidInput(
            "database",
            f"must be a file's path, as {default_url()}: what is kept must outlive the service",
        )
    return url.set(database=str(Path(url.database).absolute()))


def shown_url(url: URL) -> str:
    """A URL as messages and logs may carry it: no password, neither the user's nor an option's."""
    options = {
        name: MASK if "password" in name.lower() else value for name, value in url.query.items()
    }
    text = url.set(query=options).render_as_string(hide_password=True)
    return text.replace(quote_plus(MASK), MASK)
