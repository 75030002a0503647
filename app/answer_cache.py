"""Answers' bytes, kept up to a size, so that a question costs nothing the third time.

An answer is kept packed, to an eighth of its size, until it is asked for again: most never are.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from solver.question import NormQuestion, Question

QUERIES_EACH = 8
"""Query strings that one answer is found by at once; further spellings are read each time."""

QUERY_BYTES = 2048
"""The longest query string that is remembered."""

OVERHEAD_BYTES = 512
"""What an entry takes besides its texts: measured, objects and their places in two tables."""

QUERY_OVERHEAD_BYTES = OVERHEAD_BYTES // 4
"""What a further query string of an entry takes besides its text."""

WHOLE = "optimal"
SAMPLE_BYTES = 2**15
"""Of the first answer, what others are packed against: they say most things alike, and zlib looks
no further back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A body as it is sent, how its proof stands, and its entity tag."""

    body: bytes
    status: str
    etag: bytes = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.body).hexdigest()[:32]
        object.__setattr__(self, "etag", f'"{digest}"'.encode())

    @property
    def whole(self) -> bool:
        """Whether a proof was asked for and ended: such an answer is the same on any day."""
        return self.status == WHOLE


def canonical(question: Question | NormQuestion) -> str:
    """A text that two questions share if and only if their whole answers are the same bytes.

    The device is resolved and defaults are filled in; when the answer is due is no part of it.
    Not the question itself: -0.0 equals 0.0 and is written otherwise.
    """
    return repr(replace(question, time_limit_ms=None))


@dataclass(slots=True)
class _Entry:
    """An answer as it is sent, or, before it was asked for again, its body ``packed``."""

    packed: bytes
    size: int
    answer: Answer | None = None
    queries: list[bytes] = field(default_factory=list)


class AnswerCache:
    """The answers used last, together at most ``limit`` bytes; 0 keeps none.

    For the event loop's thread alone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._by_query: dict[bytes, str] = {}
        self._sample = b""
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Answer | None:
        """The answer to a canonical question."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        if entry.answer is None:
            entry.answer = Answer(self._unpack(entry.packed), WHOLE)
            self._grow(entry, len(entry.answer.body) - len(entry.packed))
            entry.packed = b""
        return entry.answer

    def by_query(self, query: bytes) -> Answer | None:
        """The answer that this very query string got before."""
        key = self._by_query.get(query)
        return None if key is None else self.get(key)

    def put(self, key: str, answer: Answer) -> None:
        """Keep a whole answer; ValueError for another, which must not be given twice."""
        if not answer.whole:
            raise ValueError(f"an answer whose proof is {answer.status} must not be kept")
        beside = len(key) + OVERHEAD_BYTES
        if key in self._entries or len(answer.body) + beside > self._limit:
            return
        packed = self._pack(answer.body)
        entry = self._entries[key] = _Entry(packed, 0)
        self._grow(entry, len(packed) + beside)

    def remember(self, query: bytes, key: str) -> None:
        """Find the answer to ``key``, where it is kept, by this query string too."""
        entry = self._entries.get(key)
        if (
            entry is None
            or query in self._by_query
            or len(query) > QUERY_BYTES
            or len(entry.queries) >= QUERIES_EACH
        ):
            return
        entry.queries.append(query)
        self._by_query[query] = key
        self._grow(entry, len(query) + QUERY_OVERHEAD_BYTES)

    def forget_queries(self) -> None:
        """Have every query string read again: what it stands for may be another answer by now.
        The answers themselves stay."""
        self._by_query.clear()
        for entry in self._entries.values():
            size = sum(len(query) + QUERY_OVERHEAD_BYTES for query in entry.queries)
            entry.queries.clear()
            entry.size -= size
            self.size -= size

    def clear(self) -> None:
        """Forget every answer: a device's profile was replaced."""
        self._entries.clear()
        self._by_query.clear()
        self.size = 0

    def _pack(self, body: bytes) -> bytes:
        self._sample = self._sample or body[:SAMPLE_BYTES]
        packer = zlib.compressobj(zdict=self._sample)
        return packer.compress(body) + packer.flush()

    def _unpack(self, packed: bytes) -> bytes:
        return zlib.decompressobj(zdict=self._sample).decompress(packed)

    def _grow(self, entry: _Entry, size: int) -> None:
        entry.size += size
        self.size += size
        while self.size > self._limit:
            _, oldest = self._entries.popitem(last=False)
            self.size -= oldest.size
            for query in oldest.queries:
                del self._by_query[query]
