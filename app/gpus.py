"""The GPUs that jobs run on: which there are, and which answer now."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kernels.errors import GpuAbsent
from kernels.host import HostGpu, visible_gpus, why_absent

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How long what the driver said is believed: probes and an idle queue ask again and again."""

Found = TypeVar("Found")


class Gpus:
    """One place for each GPU that is used, numbered from 0, for as long as the service lives.

    ``chosen`` are their numbers among the visible ones in CUDA's order; none: all of them. They are
    of one model, the first one's, since one profile answers for all: others are left out, and the
    log says so. There is a place where there is no GPU too, for one that comes.

    Any thread may call.
    """

    def __init__(self, chosen: Sequence[int] = ()) -> None:
        self._looked: tuple[float, tuple[HostGpu | None, ...]] | None = None
        self._lock = threading.Lock()
        visible = self._look()
        wanted = list(chosen) or list(range(max(1, len(visible))))
        known = [(number, gpu) for number in wanted if (gpu := _at(visible, number)) is not None]
        for number in wanted[: len(wanted) if visible else 0]:
            if _at(visible, number) is None:
                log.warning("GPU %d is not there: its place waits for it", number)
        model = known[0][1].name if known else None
        for number, gpu in known:
            if gpu.name != model:
                log.warning("GPU %d, %s, is left out: the first one is %s", number, gpu.name, model)
                wanted.remove(number)
        self._numbers = wanted
        self._model = model
        uuids = {number: gpu.uuid for number, gpu in known}
        self._uuids: list[str | None] = [uuids.get(number) for number in wanted]
        self.first = known[0][1] if known else None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def several(self) -> bool:
        """Whether each worker must be told which GPU is its own: all but the first of those that
        are there or may come."""
        return len(self._look()) > 1 or self._numbers != [0]

    def find(self, place: int) -> HostGpu | None:
        """The GPU of a place, None where the driver does not report it now. One that was not there
        at the start is taken once it is."""
        visible = self._look()
        with self._lock:
            uuid = self._uuids[place]
            if uuid is not None:
                return next((gpu for gpu in visible if gpu and gpu.uuid == uuid), None)
            gpu = _at(visible, self._numbers[place])
            if gpu is None or gpu.uuid in self._uuids:
                return None
            if self._model not in (None, gpu.name):
                return None
            self._uuids[place], self._model = gpu.uuid, gpu.name
        if self.first is None:
            log.warning(
                "GPU %d, %s, was not there at the start: jobs run on it from now on; questions "
                "that name no device are for it, and what it measures is remembered, from the "
                "next start",
                self._numbers[place],
                gpu.name,
            )
        return gpu

    def uuid(self, place: int) -> str | None:
        """The UUID of a place's GPU, None where it is not there now."""
        gpu = self.find(place)
        return None if gpu is None else gpu.uuid

    def seen(self, place: int) -> bool:
        """Whether the GPU of a place was ever there."""
        return self._uuids[place] is not None

    def require(self, require: Callable[[str | None], Found]) -> Found:
        """What ``require`` says of a GPU that is there now, the first one's; without any, of
        None. Raises GpuAbsent where there are others alone, on which no job runs."""
        there = (self.find(place) for place in range(len(self)))
        gpu = next((gpu for gpu in there if gpu is not None), None)
        if gpu is None and any(self._look()):
            raise GpuAbsent(self.why_absent())
        return require(None if gpu is None else gpu.uuid)

    def why_absent(self) -> str:
        """What is missing where no GPU that jobs run on is there."""
        if not any(self._look()):
            return why_absent()
        numbers = ", ".join(map(str, self._numbers))
        return (
            f"no GPU that jobs run on: GPU {numbers} of the visible ones, counted from 0, is not "
            "there; others are (WARPWRIGHT_GPUS chooses)"
        )

    def _look(self) -> tuple[HostGpu | None, ...]:
        with self._lock:
            if self._looked is None or time.monotonic() - self._looked[0] > LOOK_S:
                self._looked = (time.monotonic(), visible_gpus())
            return self._looked[1]


def _at(visible: Sequence[HostGpu | None], number: int) -> HostGpu | None:
    """The GPU of a number among the visible ones, None where it is not there."""
    return visible[number] if number < len(visible) else None
