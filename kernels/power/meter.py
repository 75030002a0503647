"""A hold: launches without a pause, and the power between two steps of the energy counter.

The counter steps some ten to fifty times a second. Its first step once the load has settled and a
step a hold later are each seen within a poll, so that what is between them is exact to some 0.3 %.
Nothing here knows CUDA or NVML.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Protocol

from kernels.errors import PowerUnread
from kernels.host import ClockReading


@dataclass(frozen=True, slots=True)
class HoldProtocol:
    """How a configuration is held.

    settle_s    of its launches before anything is counted: clock and power follow the load
    hold_s      between the counter's two steps at the least
    poll_s      between two looks at the counter
    clock_s     between two looks at the clock
    stuck_s     without a step after which the counter is taken to stand still
    idle_s      for which the idle device is watched, as long as settle_s after its last launch
    """

    settle_s: float = 0.4
    hold_s: float = 1.1
    poll_s: float = 0.002
    clock_s: float = 0.05
    stuck_s: float = 2.0
    idle_s: float = 2.0

    def to_dict(self) -> dict[str, Any]:
        """The protocol under its own field names."""
        return asdict(self)


HOLD = HoldProtocol()


class Load(Protocol):
    """What keeps the device busy: a queue of launches that never runs dry."""

    def top_up(self) -> None:
        """Enqueue as much as is missing; returns at once."""

    def begin(self) -> None:
        """Count launches and their time from what is enqueued next."""

    def launch_us(self) -> float:
        """Wait for all; time per launch since ``begin``."""


class Idle:
    """No load at all."""

    def top_up(self) -> None:
        """Nothing to enqueue."""

    begin = top_up

    def launch_us(self) -> float:
        """No launch takes no time."""
        return 0.0


class Meter(Protocol):
    """What the driver tells of the device."""

    def energy_mj(self) -> int:
        """Millijoules since the driver was loaded."""

    def read(self) -> ClockReading:
        """Clock, power and throttle reasons now."""


@dataclass(frozen=True, slots=True)
class Held:
    """A hold's figures: mean power by the energy counter, time and energy per launch, the SM clock
    and the driver's own mean of power, and why it held the clock back, over ``span_s``."""

    power_w: float
    launch_us: float
    energy_j: float
    sm_clock_mhz: float | None
    driver_power_w: float | None
    throttle: tuple[str, ...]
    span_s: float

    def to_dict(self) -> dict[str, Any]:
        """The figures under their own names."""
        return {**asdict(self), "throttle": list(self.throttle)}


def hold(
    load: Load,
    meter: Meter,
    protocol: HoldProtocol = HOLD,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Held:
    """Keep a load up until the energy counter has told of ``hold_s`` of it.

    Raises PowerUnread where the device has no such counter, or it stands still.
    """
    begun = now()
    while now() - begun < protocol.settle_s:
        load.top_up()
        sleep(protocol.poll_s)
    load.begin()
    readings: list[ClockReading] = []
    looked = float("-inf")
    last, stepped = meter.energy_mj(), now()
    first: tuple[float, int] | None = None
    while True:
        load.top_up()
        sleep(protocol.poll_s)
        energy, at = meter.energy_mj(), now()
        if energy != last:
            last, stepped = energy, at
            if first is None:
                first = at, energy
            elif at - first[0] >= protocol.hold_s:
                break
        elif at - stepped > protocol.stuck_s:
            raise PowerUnread(f"the energy counter has not moved for {protocol.stuck_s:g} s")
        if at - looked >= protocol.clock_s:
            looked = at
            readings.append(meter.read())
    launch_us = load.launch_us()
    span_s = at - first[0]
    power_w = (energy - first[1]) / 1e3 / span_s
    return Held(
        power_w=power_w,
        launch_us=launch_us,
        energy_j=power_w * launch_us / 1e6,
        sm_clock_mhz=_mean([r.sm_clock_mhz for r in readings]),
        driver_power_w=_mean([r.power_w for r in readings]),
        throttle=tuple(dict.fromkeys(word for r in readings for word in r.throttle)),
        span_s=span_s,
    )


def _mean(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
