"""Which scope each route needs: declared beside it, listed here, complete or the service does not
start."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi.routing import iter_route_contexts
from starlette._utils import get_route_path
from starlette.routing import BaseRoute
from starlette.types import Scope as Connection

from app.keys import Scope

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

PUBLIC: None = None
"""The scope of a route that anyone may ask, with a key or without one."""

_DECLARATION = "_needed_scope"


def needs(scope: Scope | None) -> Callable[[Endpoint], Endpoint]:
    """Declares the scope that a route's endpoint needs. Every endpoint must have it declared."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARATION, scope)
        return endpoint

    return declare


@dataclass(frozen=True, slots=True)
class Entry:
    """A route, the scope it needs, whether it takes a body, and the statuses it declares."""

    path: str
    pattern: re.Pattern[str]
    methods: frozenset[str]
    scope: Scope | None
    has_body: bool = False
    statuses: frozenset[int] = frozenset()


class AccessTable:
    """Every route of an application with its scope.

    Raises TypeError for a route whose endpoint declares none, so that a new one can't be
    forgotten. ``opened`` are paths that need no key here whatever their endpoints declare.
    """

    def __init__(self, routes: Sequence[BaseRoute], opened: Sequence[str] = ()) -> None:
        self.entries = tuple(_entry(route, opened) for route in iter_route_contexts(routes))

    def find(self, connection: Connection) -> Entry | None:
        """The entry of the route that the router will take for a request; None for no route."""
        path = get_route_path(connection)
        for entry in self.entries:
            if connection["method"] in entry.methods and entry.pattern.match(path):
                return entry
        return None

    def scope_of(self, method: str, path: str) -> Scope | None:
        """The scope that an operation of the OpenAPI document needs."""
        return next(e.scope for e in self.entries if e.path == path and method in e.methods)


def methods_of(route: Any) -> frozenset[str]:
    """The methods that a route takes: with GET it takes HEAD (``app.api.head``)."""
    methods = frozenset(route.methods or ())
    return methods | {"HEAD"} if "GET" in methods else methods


def _entry(route: Any, opened: Sequence[str]) -> Entry:
    if not hasattr(route.endpoint, _DECLARATION):
        raise TypeError(
            f"{route.path} says not which scope it needs: @needs(...) on its endpoint does"
        )
    scope = PUBLIC if route.path in opened else getattr(route.endpoint, _DECLARATION)
    return Entry(
        route.path,
        route.path_regex,
        methods_of(route),
        scope,
        has_body=route.body_field is not None,
        statuses=frozenset({route.status_code or 200, *map(int, route.responses)}),
    )
