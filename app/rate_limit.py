"""Requests per minute: a token bucket on a clock that nobody can set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

WINDOW_S = 60
POLICY = "requests"


class Bucket:
    """Holds a minute's requests, refills evenly, and refuses once it is empty."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._held = float(per_minute)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take one request; False where there is none."""
        self._fill()
        if self._held < 1:
            return False
        self._held -= 1
        return True

    def charge(self, requests: int) -> None:
        """Take what a request turned out to be worth beyond the one it was let in with. The
        bucket may owe: the requests after it wait."""
        self._fill()
        self._held -= requests

    @property
    def retry_after_s(self) -> int:
        """Whole seconds until there is a request again."""
        return self._until(1)

    def headers(self) -> Mapping[str, str]:
        """What draft-ietf-httpapi-ratelimit-headers-10 has a server say: the policy (a quota
        in a window of seconds), what remains, and when the quota is whole again."""
        remaining = max(0, math.floor(self._held))
        return {
            "RateLimit-Policy": f'"{POLICY}";q={self._per_minute};w={WINDOW_S}',
            "RateLimit": f'"{POLICY}";r={remaining};t={self._until(self._per_minute)}',
        }

    def _until(self, wanted: float) -> int:
        missing = max(0.0, wanted - self._held)
        return math.ceil(missing * WINDOW_S / self._per_minute)

    def _fill(self) -> None:
        now = self._clock()
        grown = (now - self._filled_at) * self._per_minute / WINDOW_S
        self._held = min(float(self._per_minute), self._held + grown)
        self._filled_at = now
