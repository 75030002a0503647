"""What figures come to on a device: stages, residency, bytes in flight, room for buffers."""

from __future__ import annotations

from dataclasses import dataclass

from solver.advice import thresholds as given
from solver.advice.conflicts import check_times
from solver.advice.figures import L2, MIN_TIME_US, KernelFigures
from solver.advice.rates import Rates
from solver.advice.thresholds import Range
from solver.errors import InvalidInput
from solver.occupancy import BLOCK_SMEM_BYTES, SMEM_UNIT, resident_blocks, whole


@dataclass(frozen=True, slots=True)
class Room:
    """Buffers that an SM has room for: a ring in each of ``blocks`` blocks. 0 blocks: none."""

    chunk_bytes: int
    ring_bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Situation:
    """A launch on a device.

    sms                  that have a block
    load_us, compute_us  each stage as if the other took no time; compute_us None: not known
    blocks, warps        resident on an SM
    in_flight_bytes      of an SM: what its resident warps have asked for while they wait
    needed_bytes         of an SM, so that loads keep up with the longer stage (Little's law: rate
                         times latency)
    room                 for buffers
    """

    figures: KernelFigures
    rates: Rates
    sms: int
    load_us: float
    compute_us: float | None
    served_by_l2: bool
    blocks: int
    warps: float
    in_flight_bytes: Range
    needed_bytes: float
    room: Room

    @property
    def roof_us(self) -> float:
        """Time of the longer stage: what perfect overlap would take."""
        return max(self.load_us, self.compute_us or 0.0)

    @property
    def loads_known(self) -> bool:
        """Whether ``load_us`` is of all that was loaded: figures of device memory leave out what
        the L2 served."""
        return not self.served_by_l2 or self.figures.data_in == L2

    @property
    def wanted_warps(self) -> float:
        """Warps that must stay resident beside the buffers."""
        return min(given.WARPS.value, self.warps)


def situation_of(figures: KernelFigures, rates: Rates) -> Situation:
    """What the figures come to. Raises InvalidInput for a block that no SM holds, and for figures
    that contradict one another."""
    blocks = _resident_blocks(figures, rates)
    check_times(figures, rates)
    warps = figures.resident_warps
    if warps is None:
        warps = float(blocks * figures.block_warps)
    load_us, compute_us = _load_us(figures, rates), _compute_us(figures, rates)
    roof_us = max(load_us, compute_us or 0.0)
    rate = min(figures.read_bytes / max(roof_us, MIN_TIME_US), _bytes_per_us(figures, rates))
    sms = rates.working_sms(figures.grid_blocks)
    needed = rate * rates.latency_us / sms
    each = given.ASSUMED_IN_FLIGHT
    if (known := figures.bytes_in_flight_per_warp) is not None:
        each = Range(known, known, known)
    hits = figures.l2_hit_fraction or 0.0
    return Situation(
        figures=figures,
        rates=rates,
        sms=sms,
        load_us=load_us,
        compute_us=compute_us,
        served_by_l2=figures.data_in == L2 or hits >= given.SERVED.value,
        blocks=blocks,
        warps=warps,
        in_flight_bytes=Range(each.low * warps, each.expected * warps, each.high * warps),
        needed_bytes=needed,
        room=_room(figures, rates, blocks, min(given.WARPS.value, warps), needed),
    )


def _resident_blocks(figures: KernelFigures, rates: Rates) -> int:
    threads, registers = figures.threads_per_block, figures.registers_per_thread
    if resident_blocks(threads, registers, 0, rates.sm) == 0:
        raise InvalidInput(
            "registers_per_thread",
            f"an SM has {rates.sm.registers} registers, too few for {threads} threads of "
            f"{registers}",
        )
    held: int = resident_blocks(threads, registers, figures.smem_per_block_bytes, rates.sm)
    if held == 0:
        raise InvalidInput(
            "smem_per_block_bytes",
            f"must be at most {rates.sm.smem_bytes - BLOCK_SMEM_BYTES} on this device, got "
            f"{figures.smem_per_block_bytes}",
        )
    most = held * figures.block_warps
    if figures.resident_warps is not None and figures.resident_warps > most:
        raise InvalidInput(
            "resident_warps",
            f"must be at most {most}: an SM holds {held} blocks of {figures.block_warps} warps "
            f"with these registers and shared memory; got {figures.resident_warps:g}",
        )
    return min(held, -(-figures.grid_blocks // rates.sms))


def _load_us(figures: KernelFigures, rates: Rates) -> float:
    if figures.load_us is not None:
        return figures.load_us
    return figures.moved_bytes / _bytes_per_us(figures, rates)


def _bytes_per_us(figures: KernelFigures, rates: Rates) -> float:
    """What the source of the data gives at most, and what SMs that have a block take."""
    source = rates.l2_bytes_per_us if figures.data_in == L2 else rates.memory_bytes_per_us
    return min(source, rates.working_sms(figures.grid_blocks) * rates.sm_bytes_per_us)


def _compute_us(figures: KernelFigures, rates: Rates) -> float | None:
    if figures.compute_us is not None:
        return figures.compute_us
    if figures.flops is not None or figures.tensor_flops is not None:
        general = (figures.flops or 0.0) / rates.flops_per_us
        tensor = (figures.tensor_flops or 0.0) / rates.tensor_flops_per_us
        return (general + tensor) * rates.sms / rates.working_sms(figures.grid_blocks)
    if figures.compute_fraction is not None and figures.time_us is not None:
        return figures.compute_fraction * figures.time_us
    return None


def _room(figures: KernelFigures, rates: Rates, blocks: int, wanted: float, needed: float) -> Room:
    """The largest chunk whose rings leave enough warps; else what leaves the most."""
    sizes = [given.LARGEST_CHUNK_BYTES]
    while sizes[-1] > given.SMALLEST_CHUNK_BYTES:
        sizes.append(sizes[-1] // 2)
    if figures.chunk_bytes is not None:
        sizes = [figures.chunk_bytes]
    rooms = [_most_blocks(figures, rates, blocks, size, needed) for size in sizes]
    enough = [room for room in rooms if room.blocks * figures.block_warps >= wanted]
    return enough[0] if enough else max(rooms, key=lambda room: room.blocks)


def _most_blocks(
    figures: KernelFigures, rates: Rates, blocks: int, chunk_bytes: int, needed: float
) -> Room:
    for count in range(blocks, 0, -1):
        ring = max(given.SLOTS * chunk_bytes, int(-(-needed // count)))
        block = whole(figures.smem_per_block_bytes + ring + BLOCK_SMEM_BYTES, SMEM_UNIT)
        if count * block <= rates.sm.smem_bytes:
            return Room(chunk_bytes, ring, count)
    return Room(chunk_bytes, given.SLOTS * chunk_bytes, 0)
