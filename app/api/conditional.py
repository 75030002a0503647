"""What a caller may keep (RFC 9111), and not sending again what it has (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_TAG = rb'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")'
_LIST = re.compile(rb"[\s,]*" + _TAG + rb"(?:\s*,[\s,]*" + _TAG + rb")*[\s,]*")
_TAGS = re.compile(_TAG)


@cache
def caching(max_age_s: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that say who may keep an answer, and for how long without asking.

    Never a cache that callers share: it would stand in front of the keys. One that serves several
    keys of one caller tells them apart by what they authenticate with.
    """
    age = b"max-age=%d" % max_age_s if max_age_s else b"no-cache"
    return (b"cache-control", b"private, " + age), (b"vary", b"authorization")


def has_current(headers: Iterable[tuple[bytes, bytes]], etag: bytes) -> bool:
    """Whether a request's ``If-None-Match`` names ``etag`` (13.1.2: ``*``, or a list compared
    weakly). One that is malformed is as good as none.
    """
    lines = [value for name, value in headers if name == b"if-none-match"]
    if not lines:
        return False
    field = b",".join(lines).strip()
    if field == b"*":
        return True
    return _LIST.fullmatch(field) is not None and etag in _TAGS.findall(field)
