"""Memory that launches of one stream share: partial tiles, counters, aligned copies."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import cupy as cp

from kernels.launch import address
from kernels.launch_plan import LaunchPlan

_NAMES = ("partials", "counters", "a_copy", "b_copy")


@dataclass(frozen=True, slots=True)
class ScratchPlaces:
    """Addresses of one plan's scratch, 0 for what it does not need."""

    partials_address: int
    counters_address: int
    a_copy_address: int
    b_copy_address: int


class StreamScratch:
    """Scratch of a device's stream. It grows and is given back as a whole: launches that are
    under way, or in a captured graph, still use what was there before.

    ``lock`` is held while two launches are enqueued that belong together.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._sizes = dict.fromkeys(_NAMES, 0)
        self._buffers: dict[str, Any] = {}
        self._outgrown: list[Any] = []
        self.lock = threading.Lock()

    def fits(self, plan: LaunchPlan) -> bool:
        """Whether a plan's scratch is there already."""
        return all(size <= self._sizes[name] for name, size in _sizes(plan).items())

    def places(self, plan: LaunchPlan) -> ScratchPlaces:
        """A plan's scratch, allocated where it is larger than any before."""
        sizes = _sizes(plan)
        with self.lock:
            for name, size in sizes.items():
                if size > self._sizes[name]:
                    self._grow(name, size)
        return ScratchPlaces(
            *(address(self._buffers[name]) if sizes[name] else 0 for name in _NAMES)
        )

    def _grow(self, name: str, size: int) -> None:
        # At least twice as large, so that all that was outgrown is no more than what is in use.
        size = max(size, 2 * self._sizes[name])
        with self._stream:
            # Counters are zero before a launch, and each launch leaves them so.
            buffer = cp.zeros(size, cp.uint8) if name == "counters" else cp.empty(size, cp.uint8)
        if name in self._buffers:
            self._outgrown.append(self._buffers[name])
        self._buffers[name], self._sizes[name] = buffer, size


def _sizes(plan: LaunchPlan) -> dict[str, int]:
    sizes = (plan.workspace_bytes, plan.counter_bytes, plan.a.copy_bytes, plan.b.copy_bytes)
    return dict(zip(_NAMES, sizes, strict=True))
