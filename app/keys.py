"""API keys: what one looks like, what it allows, and how it is known again.

A key is ``ww_<id>_<secret>``. The id is public: logs, lists and the audit carry it. Of the secret
the database has a SHA-256 digest alone. A slow hash (bcrypt, Argon2) would add nothing: it makes
guessing dear, and a secret of 256 random bits can't be guessed at any price, while every request
would pay for it and strangers could make the service pay.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.rate_limit import Bucket
from app.store import ANONYMOUS

ID_BYTES = 6
SECRET_BYTES = 32
KEY = re.compile(rf"ww_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")
KEY_LENGTH = len("ww_") + 2 * ID_BYTES + len("_") + 2 * SECRET_BYTES
KEY_WORDS = (
    f"ww_, {2 * ID_BYTES} digits of 0-9a-f, _ and {2 * SECRET_BYTES} more digits, "
    f"{KEY_LENGTH} characters in all"
)
"""What a whole key looks like, the same for every one."""


class Scope(StrEnum):
    """What a key allows."""

    OPTIMIZE = "optimize"
    VERIFY = "verify"
    ADMIN = "admin"
    """Everything, the other two included."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as the database has it: everything but its secret. A limit of None is none."""

    id: str
    name: str
    digest: str
    scopes: frozenset[Scope]
    requests_per_minute: int | None
    gpu_seconds_per_day: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_opened_by(self, secret: str) -> bool:
        """Whether ``secret`` is this key's; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.digest, digest_of(secret))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a key that was let in, or on loopback no key at all."""

    key_id: str
    scopes: frozenset[Scope]
    gpu_seconds_per_day: float | None = None
    bucket: Bucket | None = None

    def may(self, scope: Scope) -> bool:
        """Whether this caller has a scope; ``admin`` has every one."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def owner(self) -> str | None:
        """Whose jobs this caller may see: those of its own key; None stands for everyone's."""
        return None if Scope.ADMIN in self.scopes else self.key_id

    def charge(self, requests: int) -> None:
        """Count a request as ``requests`` more, where the key has a limit of them."""
        if self.bucket is not None:
            self.bucket.charge(requests)


LOOPBACK = Caller(ANONYMOUS, frozenset({Scope.ADMIN}))
"""Whoever asks without a key where none is needed: this machine's user may do everything."""

NOBODY = Caller(ANONYMOUS, frozenset())
"""Whoever asks without a key elsewhere: the open routes alone."""


def new_id() -> str:
    """A fresh key's id."""
    return secrets.token_hex(ID_BYTES)


def new_secret() -> str:
    """A fresh key's secret."""
    return secrets.token_hex(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What the database keeps of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def written(key_id: str, secret: str) -> str:
    """The key as its owner gets it, once."""
    return f"ww_{key_id}_{secret}"


def read(text: str) -> tuple[str, str] | None:
    """(id, secret) of a key, or None for what can't be one."""
    match = KEY.fullmatch(text)
    return None if match is None else (match[1], match[2])
