"""/, the page for people, and the files that it is made of."""

from __future__ import annotations

import hashlib
from functools import cache

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.access import PUBLIC, needs
from app.api.ask_page import POLICY, page, web_file
from app.api.conditional import caching, has_current
from app.api.responses import EncodedResponse, Header
from app.settings import Settings

router = APIRouter(include_in_schema=False)

STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The files that are sent as they are, with their types."""


@router.get("/")
@needs(PUBLIC)
async def root(request: Request) -> Response:
    """The page."""
    settings: Settings = request.app.state.settings
    body, headers = _page(settings.keys_required)
    return _answer(request, body, headers)


@router.get("/static/page.css")
@router.get("/static/page.js")
@router.get("/static/icon.svg")
@needs(PUBLIC)
async def static(request: Request) -> Response:
    """One of the page's files."""
    body, headers = _file(request.scope["path"].rpartition("/")[2])
    return _answer(request, body, headers)


@cache
def _page(keys_required: bool) -> tuple[bytes, tuple[Header, ...]]:
    body = page(keys_required).encode()
    policy = (b"content-security-policy", POLICY.encode())
    return body, (*_headers(body, "text/html"), policy)


@cache
def _file(name: str) -> tuple[bytes, tuple[Header, ...]]:
    body = web_file(name)
    return body, _headers(body, STATIC[name])


def _headers(body: bytes, media_type: str) -> tuple[Header, ...]:
    """A file's type, and its digest, by which a browser that has it is sent it no more."""
    etag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    return (
        (b"content-type", f"{media_type}; charset=utf-8".encode()),
        (b"etag", etag),
        *caching(0),
    )


def _answer(request: Request, body: bytes, headers: tuple[Header, ...]) -> Response:
    """The file, or 304 where the caller has it."""
    if has_current(request.scope["headers"], dict(headers)[b"etag"]):
        return EncodedResponse(b"", headers, status=304)
    return EncodedResponse(body, (*headers, (b"content-length", b"%d" % len(body))))
