"""Keys for tests of a service: made in its database, as `warpwright keys` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.keys import ApiKey, Scope
from app.services import Services
from app.store.keys import KeyStore
from tests.app.conftest import service


def services_of(client: TestClient) -> Services:
    """The services of a client's application."""
    app = client.app
    assert isinstance(app, FastAPI)
    services: Services = app.state.services
    return services


def new_key(client: TestClient, *scopes: Scope, **limits: Any) -> tuple[ApiKey, dict[str, str]]:
    """A fresh key of a service and the headers that send it."""
    key, text = KeyStore(services_of(client).database).create("test", frozenset(scopes), **limits)
    return key, {"authorization": f"Bearer {text}"}


def expired_key(client: TestClient, *scopes: Scope) -> dict[str, str]:
    """The headers of a key whose time is over."""
    return new_key(client, *scopes, lifetime=timedelta(seconds=-1))[1]


def revoked_key(client: TestClient, *scopes: Scope) -> dict[str, str]:
    """The headers of a key that was revoked."""
    key, headers = new_key(client, *scopes)
    KeyStore(services_of(client).database).revoke(key.id)
    return headers


@contextmanager
def keyed_service(**settings: Any) -> Iterator[TestClient]:
    """A service that needs keys, ready at once: its solver is cold."""
    with service(initialise=dict, require_keys="always", **settings) as client:
        yield client
