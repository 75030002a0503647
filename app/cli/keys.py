"""keys: who may ask the service, on its database, whether it runs or not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from app.cli.arguments import add_json, bounded, number
from app.cli.session import OK, Session
from app.errors import EnvironmentLacks, NotFound
from app.keys import ApiKey, Scope
from app.schemas.faults import shown
from solver.errors import InvalidInput
from solver.limits import check_number

if TYPE_CHECKING:
    from app.store.keys import KeyStore

NAME_MAX = 100
DAYS_MAX = 3650
RATE_MAX = 1_000_000
GPU_SECONDS_MAX = 1000 * 86_400
"""A day of each of the GPUs that WARPWRIGHT_GPUS can name."""
WHERE = (
    "Works on the service's database, whether the service runs or not: WARPWRIGHT_DATABASE, by "
    "default a file in the user's state folder. Standard error names it."
)
LIMITS = ("requests_per_minute", "gpu_seconds_per_day", "expires_at")


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    keys = commands.add_parser("keys", help="make, list and revoke the service's API keys")
    actions = keys.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser(
        "create", help="make a key; it is shown this once", epilog=f"{WHERE} It is made if absent."
    )
    create.add_argument(
        "name",
        metavar="NAME",
        help=f"whose it is, or what for: 1 to {NAME_MAX} printable characters, which lists show",
    )
    create.add_argument(
        "--scope",
        action="append",
        required=True,
        metavar="|".join(Scope),
        help="what the key allows: optimize, questions to the solver; verify, launches on the GPU; "
        "admin, both, calibrations, the audit and /metrics; required, and several may be given",
    )
    create.add_argument(
        "--expires",
        type=bounded("expires", 1, DAYS_MAX),
        metavar="DAYS",
        help=f"after how many days it ends, 1 to {DAYS_MAX} (default: never)",
    )
    create.add_argument(
        "--requests-per-minute",
        type=bounded("requests_per_minute", 1, RATE_MAX),
        metavar="N",
        help=f"how many requests it may make, 1 to {RATE_MAX}: N at once, then one every 60/N "
        "seconds (default: without limit)",
    )
    create.add_argument(
        "--gpu-seconds-per-day",
        type=number("gpu_seconds_per_day", 0, GPU_SECONDS_MAX),
        metavar="S",
        help="GPU time that its jobs may take, on all GPUs together, 0 to "
        f"{GPU_SECONDS_MAX}: one is refused once those that have ended on this UTC day took S; "
        "0 allows none (default: without limit)",
    )
    create.set_defaults(run=run_create)
    list_ = actions.add_parser(
        "list", help="every key there ever was, without secrets", epilog=WHERE
    )
    list_.set_defaults(run=run_list)
    revoke = actions.add_parser("revoke", help="end a key for good, within seconds", epilog=WHERE)
    revoke.add_argument("id", metavar="ID", help="as `keys list` has it: the key's middle part")
    revoke.set_defaults(run=run_revoke)
    for action in (create, list_, revoke):
        add_json(action)


def run_create(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright keys create NAME``."""
    name = arguments.name.strip()
    if not name or len(name) > NAME_MAX or not name.isprintable():
        raise InvalidInput("name", f"must have 1 to {NAME_MAX} printable characters")
    quota = arguments.gpu_seconds_per_day
    if quota is not None:
        check_number("gpu_seconds_per_day", quota, 0, GPU_SECONDS_MAX)
    with _store(session, make=True) as store:
        key, text = store.create(
            name,
            frozenset(_scope(word) for word in arguments.scope),
            lifetime=None if arguments.expires is None else timedelta(days=arguments.expires),
            requests_per_minute=arguments.requests_per_minute,
            gpu_seconds_per_day=quota,
        )
    session.emit({"key": text, **_line(key)}, lambda console: _show_new(console, key, text))
    return OK


def run_list(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright keys list``."""
    with _store(session) as store:
        lines = [_line(key) for key in store.list()]

    def show(console: Console) -> None:
        if not lines:
            console.print("no key yet: warpwright keys create NAME --scope optimize")
            return
        for line in lines:
            console.print(escape(_words(line)), soft_wrap=True)

    session.emit({"keys": lines}, show)
    return OK


def run_revoke(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright keys revoke ID``."""
    with _store(session) as store:
        try:
            key = store.revoke(arguments.id)
        except NotFound as error:
            raise InvalidInput("id", str(error)) from None
    words = escape(_words(_line(key)))
    session.emit(_line(key), lambda console: console.print(words))
    return OK


@contextmanager
def _store(session: Session, *, make: bool = False) -> Iterator[KeyStore]:
    """The keys of the service's database, which is made where it is absent and ``make`` says so.

    Standard error says which it is: another than the service's would be worked on as readily.
    """
    # Here, not above: SQLAlchemy would hold up every other command.
    from app.settings import load_settings
    from app.store.database import Database
    from app.store.keys import KeyStore

    database = Database(load_settings().database)
    if database.absent and not make:
        raise EnvironmentLacks(
            f"there is no database {database.shown}; WARPWRIGHT_DATABASE names the service's"
        )
    session.say(f"database: {escape(database.shown)}")
    database.open()
    try:
        yield KeyStore(database)
    finally:
        database.close()


def _scope(word: str) -> Scope:
    try:
        return Scope(word)
    except ValueError:
        raise InvalidInput(
            "scope", f"must be one of {', '.join(Scope)}, got {shown(word)}"
        ) from None


def _line(key: ApiKey) -> dict[str, Any]:
    """A key as JSON: no secret, no digest."""
    return {
        "id": key.id,
        "name": key.name,
        "state": _state(key),
        "scopes": sorted(key.scopes),
        "requests_per_minute": key.requests_per_minute,
        "gpu_seconds_per_day": key.gpu_seconds_per_day,
        "created_at": _moment(key.created_at),
        "expires_at": _moment(key.expires_at),
        "revoked_at": _moment(key.revoked_at),
    }


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    expired = key.expires_at is not None and key.expires_at <= datetime.now(UTC)
    return "expired" if expired else "valid"


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")


def _words(line: dict[str, Any]) -> str:
    """A key on one line, for a person: what it is, then what limits it."""
    limits = (f"{name}={line[name]}" for name in LIMITS if line[name] is not None)
    return "  ".join([line["id"], line["state"], "+".join(line["scopes"]), line["name"], *limits])


def _show_new(console: Console, key: ApiKey, text: str) -> None:
    console.print(f"created {escape(_words(_line(key)))}", soft_wrap=True)
    console.print(f"The key, shown this once:\n{text}", soft_wrap=True)
