"""What a norm_activation kernel costs: one recurrence for all four kinds.

The critical SM is played as one pipeline: a load path that its resident blocks share, schedulers
that they share, and slots. A slot is what may be on its way or be worked on at once: a team's row
in registers (plain, strong) or a chunk of a ring (ring, specialised). So that an SM full of warps
and a ring of two chunks are priced alike, by Little's law and by their depth.

Each term has its constant in the profile (``models.norm_activation``, units in ``CONSTANTS``);
``docs/norm-model.md`` has the equations and where they come from. All of a space is worked out at
once, in floating point, and rounded to ticks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.errors import Unsupported
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import NormRows, legal_rows, norm_rows
from solver.families.norm_activation_geometry import geometry
from solver.families.norm_activation_issue import issue
from solver.families.norm_activation_legality import runs_on
from solver.pick import price
from solver.recurrence import Ticks
from solver.table import Kernels, Table, Works
from solver.units import TICKS_PER_US, us_from_ticks

LOTS = 12
"""Slots of the recurrence at most, which is what a proof unrolls: more are moved in lots."""
COPY_VECTORS = 8
"""Vectors that a lane of a producer has on their way together (norm_ring.cuh)."""
PLAIN_VECTORS = 4
"""The same of a plain warp's sums (norm_rows.cuh)."""

CONSTANTS = {
    "launch_us": "us",
    "block_start_us": "us",
    "last_store_us": "us",
    "clock_ghz": "GHz",
    "hbm_bytes_per_us": "B/us",
    "hbm_sms_exponent": "1",
    "l2_bytes_per_us": "B/us",
    "l2_kept_fraction": "1",
    "l1_kept_fraction": "1",
    "l1_kept_bulk_fraction": "1",
    "l1_passing_weight": "1",
    "sm_bytes_per_cycle": "B/cycle",
    "load_norm": "1",
    "memory_latency_us": "us",
    "l2_latency_us": "us",
    "l1_latency_us": "us",
    "load_jitter_us": "us",
    "static_imbalance": "1",
    "bulk_issue_cycles": "cycles",
    "element_instructions_fp32": "instructions",
    "element_instructions_half": "instructions",
    "layer_instructions": "instructions",
    "stream_instructions": "instructions",
    "degree_instructions": "instructions",
    "degree_streamed_instructions": "instructions",
    "gelu_instructions": "instructions",
    "gelu_tanh_instructions": "instructions",
    "silu_instructions": "instructions",
    "vector_instructions": "instructions",
    "row_instructions": "instructions",
    "batch_cycles": "cycles",
    "batch_streamed_cycles": "cycles",
    "turn_cycles": "cycles",
    "turn_streamed_share": "1",
    "turn_shared_fraction": "1",
    "row_cycles": "cycles",
    "team_cycles": "cycles",
    "team_bulk_cycles": "cycles",
    "mbarrier_cycles": "cycles",
    "named_cycles": "cycles",
    "refill_cycles": "cycles",
    "overlap_norm": "1",
}
"""The family's constants and their units."""


def constants(device: DeviceProfile) -> dict[str, float]:
    """The constants of a device under their names.

    Raises Unsupported where the family does not run on it, or nothing is measured of it yet.
    """
    if not runs_on(device):
        raise Unsupported(
            "device", f"{device.name} runs no {family.NAME} kernel; NVIDIA GPUs from sm_80 on do"
        )
    if family.NAME not in device.models:
        raise Unsupported(
            "device",
            f"{device.name} has no {family.NAME} constants yet: on that GPU, measure them with "
            "python -m kernels.norm.bench and fit them with python -m bench.norm_fit --write",
        )
    return {name: constant.value for name, constant in device.model(family.NAME).items()}


def priced(problem: NormProblem, device: DeviceProfile, r: NormRows, cold: bool = True) -> Table:
    """Configurations with their prices, one work and one kernel each.

    ``cold``: x comes from device memory; otherwise x and y are in the L2 where both fit. Raises
    Unsupported as ``constants`` does, InvalidProblem for no rows.
    """
    k = constants(device)
    family.check_rows(problem.rows)
    c, sms = r.config, device.limit("sms")
    g = geometry(problem, r, sms)
    specialised = r.is_one_of("kind", "specialised")
    plain = r.is_one_of("kind", "plain")
    registers = r.has_ring & r.is_one_of("hold", "registers")
    persistent = c["rounds"] == 0
    passes = g.passes
    cycles_per_us = k["clock_ghz"] * 1e3

    i = issue(problem, r, g, k, device)
    handed = np.where(r.is_one_of("barrier", "named"), k["named_cycles"], k["mbarrier_cycles"])
    # Of a worker for one item, with nobody beside it; who fills its own ring waits for its group.
    between = handed + r.is_one_of("kind", "ring") * k["refill_cycles"]
    alone = g.rows_of_team / np.where(r.has_ring, g.parts, 1) * i.row + r.has_ring * between

    # The load path for all the SM's items: memory, L2, the SM's own, and who issues the copies.
    in_memory = cold or problem.storage_bytes > device.limit("l2_bytes")
    moved = 2.0 * problem.rows * problem.row_bytes
    working = g.workers * g.slots * g.active * problem.row_bytes
    lost = np.maximum(0, 1 - k["l2_kept_fraction"] * device.limit("l2_bytes") / working)
    memory_rate = k["hbm_bytes_per_us"] * (g.active / sms) ** k["hbm_sms_exponent"]
    uneven = 1 + persistent * k["static_imbalance"]
    # Later passes of plain find some of their rows in the L1, copies none.
    again = (passes - 1) * np.where(plain, i.rows_missed, 1)
    memory = in_memory * uneven * moved * (1 + again * lost / 2) / memory_rate
    l2 = uneven * moved * (1 + again / 2 + i.missed) / (k["l2_bytes_per_us"] * g.active / sms)
    row_bytes = (1 + passes) * problem.row_bytes
    path = g.rows * row_bytes / k["sm_bytes_per_cycle"] / cycles_per_us
    latency_us = k["memory_latency_us"] if in_memory else k["l2_latency_us"]
    # Producers that load for themselves wait for each turn of their loads, and hand over.
    turn_bytes = np.maximum(1, c["producers"]) * family.WARP * family.VECTOR_BYTES * COPY_VECTORS
    chunk_bytes = np.minimum(r.rows_per_unit * problem.row_bytes, np.maximum(1, c["chunk_bytes"]))
    producing = -(-chunk_bytes // turn_bytes) * latency_us + handed / cycles_per_us
    by_vectors = specialised & r.is_one_of("copies", "vector")
    by_bulk = r.has_ring & r.is_one_of("copies", "bulk")
    of_chunk = np.where(by_vectors, producing, by_bulk * k["bulk_issue_cycles"] / cycles_per_us)
    copiers = np.where(specialised, g.resident, g.workers)
    issuing = g.items * g.chunks * of_chunk / copiers
    load = _joined(k["load_norm"], memory, l2, path, issuing)

    # Latency: of a plain warp once for each turn of its loads, in every pass.
    turns = -(-i.vectors // PLAIN_VECTORS)
    again_us = turns * ((passes - 1) * k["l1_latency_us"] + again * k["l2_latency_us"])
    latency = np.where(plain, turns * latency_us + again_us, latency_us)
    reloaded = r.has_ring & (passes > 1)
    latency = np.where(reloaded, (latency_us + k["l2_latency_us"]) / 2, latency)
    latency = np.where(by_vectors, producing, latency)
    # A block that ends takes its slots along: each of their turns bears a part of the next start.
    slot_turns = np.maximum(1, c["rounds"] * np.where(r.has_ring, g.parts / g.slots, 1))
    refill = k["block_start_us"] + r.has_ring * latency_us
    latency = latency + np.where(persistent, 0, refill / slot_turns)

    # A slot is given back once its last rows are read into registers, or once they are transformed.
    taken_us = alone / cycles_per_us * np.where(registers, 1 - 1 / g.rows_of_team, 1)
    # Of all the SM's items: workers one item after the other, slots a turn for each. What a warp
    # waits for itself others don't fill: it comes on top of what they issue meanwhile.
    turn_us = g.items / np.minimum(g.workers * g.slots, g.items) * (latency + taken_us)
    # A ring that ends with its block is filled anew for the next, which nobody works meanwhile.
    of_block = np.maximum(1, c["rounds"] * g.parts)
    drained = np.where(r.has_ring & ~persistent, refill / of_block, 0)
    of_workers = g.items / np.minimum(g.workers, g.items) * (alone / cycles_per_us + drained)
    others = i.scheduler * (1 - 1 / np.ceil(i.share)) / cycles_per_us
    math = np.maximum(of_workers, turn_us) + others

    # Lots: the recurrence's slots, each of so many items of the SM.
    in_flight = np.maximum(1, np.minimum(g.workers * g.slots, g.items))
    slots = np.minimum(LOTS, np.floor(in_flight)).astype(np.int64)
    iterations = np.maximum(1, np.ceil(g.items * slots / in_flight)).astype(np.int64)

    # Loads and math at once take longer than the longer of them: it bears what the other adds.
    both = _joined(k["overlap_norm"], load, math)
    load, math = np.where(load < math, load, both), np.where(load < math, both, math)
    load_lot, math_lot = _ticks(load / iterations), _ticks(math / iterations)
    taken = _ticks(taken_us)
    waited = _ticks(latency)
    waited = np.where(by_vectors, np.maximum(0, waited - load_lot), waited)
    zeros = np.zeros_like(iterations)
    works = Works(
        load=load_lot,
        jitter=zeros + round(k["load_jitter_us"] * TICKS_PER_US),
        latency=waited + np.maximum(0, taken - math_lot),
        math=math_lot,
        early=np.maximum(0, math_lot - taken),
        epilogue=zeros,
        iterations=iterations,
        units=zeros + 1,
        waves=zeros + 1,
        fixed=zeros + round((k["launch_us"] + k["block_start_us"]) * TICKS_PER_US),
        store=zeros + round(k["last_store_us"] * TICKS_PER_US),
        active=np.asarray(g.blocks, dtype=np.int64),
        load_path=np.argmax([np.maximum(path, issuing), l2, memory], axis=0).astype(np.int64),
        clock_mhz=zeros + round(k["clock_ghz"] * 1e3),
        config=c,
    )
    return Table(
        family=family.NAME,
        works=works,
        kernels=Kernels(
            slots=slots,
            setup=zeros,
            smem_bytes=r.smem_bytes,
            registers=r.registers,
            threads=(c["consumers"] + c["producers"]) * family.WARP,
            config={},
        ),
        first=np.arange(len(slots)),
        count=zeros + 1,
        slots_max=slots,
        setup_min=zeros,
        decode=NormConfig.from_columns,
    )


def predicted_us(
    problem: NormProblem, config: NormConfig, device: DeviceProfile, cache: str = "cold"
) -> float:
    """Predicted µs of one legal configuration, in the space that is picked from or not."""
    table = priced(problem, device, norm_rows(problem, [config], device), cache == "cold")
    first = np.zeros(1, dtype=np.int64)
    return us_from_ticks(int(price(table, first, first)[0][0]))


def _joined(order: Any, *parts: Any) -> Any:
    """The norm of times that overlap: the longest decides, near ones add to it."""
    parts = np.broadcast_arrays(*parts)
    longest = np.maximum.reduce(parts)
    return longest * sum((part / longest) ** order for part in parts) ** (1 / order)


def _ticks(us: Any) -> Ticks:
    count: Ticks = np.rint(us * TICKS_PER_US).astype(np.int64)
    return count


def tabulate(problem: NormProblem, device: DeviceProfile, *, cold: bool = True) -> Table:
    """The priced legal space of one problem on one device, x cold or in the L2."""
    constants(device)  # says what is missing before a space is listed
    return priced(problem, device, legal_rows(problem, device), cold)
