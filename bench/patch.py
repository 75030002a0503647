"""A fault planted in a kernel: text of one header that is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patch:
    """Text of a header that is replaced; it must be there exactly once."""

    header: str
    before: str
    after: str

    def applied(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers with the patch in its own. Raises LookupError where the source has moved
        on."""
        if headers[self.header].count(self.before) != 1:
            raise LookupError(f"{self.header} does not hold once: {self.before}")
        return {**headers, self.header: headers[self.header].replace(self.before, self.after)}
