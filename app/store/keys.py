"""API keys in the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, insert, or_, select, update

from app.errors import NotFound
from app.keys import ApiKey, Scope, digest_of, new_id, new_secret, written
from app.schemas.faults import shown
from app.store.database import Database
from app.store.tables import api_keys
from solver.errors import InvalidInput

ACTIVE_MAX = 10_000
"""Keys that may be valid at a time: a service holds all of them in memory."""

ENDED_KNOWN = timedelta(days=1)
"""How long an expired or revoked key is told from one that never was."""


class KeyStore:
    """Makes, lists and revokes keys, next to a service that runs or without one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        name: str,
        scopes: frozenset[Scope],
        *,
        lifetime: timedelta | None = None,
        requests_per_minute: int | None = None,
        gpu_seconds_per_day: float | None = None,
    ) -> tuple[ApiKey, str]:
        """A fresh key, and the text that its owner gets: it can't be had again."""
        now, secret = datetime.now(UTC), new_secret()
        key = ApiKey(
            id=new_id(),
            name=name,
            digest=digest_of(secret),
            scopes=scopes,
            requests_per_minute=requests_per_minute,
            gpu_seconds_per_day=gpu_seconds_per_day,
            created_at=now,
            expires_at=None if lifetime is None else now + lifetime,
            revoked_at=None,
        )
        with self._database.write() as connection:
            active = connection.execute(
                select(func.count()).select_from(api_keys).where(*_alive_after(now))
            ).scalar_one()
            if active >= ACTIVE_MAX:
                raise InvalidInput(
                    "name", f"there may be at most {ACTIVE_MAX} valid keys; revoke some first"
                )
            connection.execute(
                insert(api_keys).values(
                    id=key.id,
                    name=key.name,
                    digest=key.digest,
                    scopes=sorted(key.scopes),
                    requests_per_minute=key.requests_per_minute,
                    gpu_seconds_per_day=key.gpu_seconds_per_day,
                    created_at=key.created_at,
                    expires_at=key.expires_at,
                    revoked_at=None,
                )
            )
        return key, written(key.id, secret)

    def list(self) -> list[ApiKey]:
        """Every key there ever was, the oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at))
            return [_key(row) for row in rows]

    def known(self) -> dict[str, ApiKey]:
        """By id, the keys that are valid and those that were until a day ago."""
        recently = datetime.now(UTC) - ENDED_KNOWN
        with self._database.read() as connection:
            rows = connection.execute(select(api_keys).where(*_alive_after(recently)))
            return {row.id: _key(row) for row in rows}

    def revoke(self, key_id: str) -> ApiKey:
        """End a key for good; one that has been revoked stays as it is. NotFound for no key."""
        with self._database.write() as connection:
            connection.execute(
                update(api_keys)
                .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
                .values(revoked_at=datetime.now(UTC))
            )
            row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no key {shown(key_id)}; `warpwright keys list` has them")
        return _key(row)


def _alive_after(moment: datetime) -> tuple[Any, Any]:
    """Conditions: neither revoked nor expired at a moment."""
    return (
        or_(api_keys.c.revoked_at.is_(None), api_keys.c.revoked_at > moment),
        or_(api_keys.c.expires_at.is_(None), api_keys.c.expires_at > moment),
    )


def _key(row: Row[Any]) -> ApiKey:
    members = dict(row._mapping)
    return ApiKey(**{**members, "scopes": frozenset(Scope(scope) for scope in members["scopes"])})
