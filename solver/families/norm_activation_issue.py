"""What a norm_activation kernel issues, and what a warp waits for while it computes a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import NormProblem
from solver.families.norm_activation_columns import NormRows
from solver.families.norm_activation_geometry import Geometry
from solver.occupancy import BLOCK_SMEM_BYTES, SCHEDULERS, l1_bytes, sm_limits

POLY_STEPS = 16
"""Degrees whose coefficients are loaded together (norm_math.cuh)."""


@dataclass(frozen=True, slots=True)
class Issue:
    """Shape [R] each.

    scheduler    cycles in which the fullest scheduler issues for all rows of the SM
    share        warps that compute, of a scheduler
    row          cycles of a team for a row with no warp beside it
    vectors      of a lane's share of a row
    missed       of what is asked of scale and shift, the part that the L1 has no room for
    rows_missed  the same of rows that are read again
    """

    scheduler: Any
    share: Any
    row: Any
    vectors: Any
    missed: Any
    rows_missed: Any


def instructions(
    problem: NormProblem, r: NormRows, g: Geometry, k: Mapping[str, float]
) -> tuple[Any, Any]:
    """Issue slots that an element of a lane takes of its own warp, and of producers. [R] each."""
    c, size = r.config, problem.element_bytes
    registers = r.is_one_of("hold", "registers")
    element: Any = k["element_instructions_half" if size < 4 else "element_instructions_fp32"]
    if problem.norm == "layer":
        element += k["layer_instructions"]
    if problem.activation == "poly":
        each = k["degree_instructions"], k["degree_streamed_instructions"]
        element = element + problem.degree * np.where(registers, *each)
    else:
        element += k[f"{problem.activation}_instructions"]
    # Accesses beyond one load and one store of 16 bytes: more passes, narrower ones, slots.
    narrow = (g.passes + 1) * family.VECTOR_BYTES / c["vector_bytes"] - 2
    accesses = np.where(r.has_ring, np.where(registers, 1, 2), narrow)
    of_copy = np.where(r.is_one_of("copies", "async"), 1, 2 * r.is_one_of("copies", "vector"))
    copied = r.has_ring * of_copy * g.passes
    specialised = r.is_one_of("kind", "specialised")
    access = k["vector_instructions"] * size / family.VECTOR_BYTES
    own = element + (r.has_ring & ~registers) * k["stream_instructions"]
    own = own + access * (accesses + np.where(specialised, 0, copied))
    return own, access * np.where(specialised, copied, 0)


def issue(
    problem: NormProblem, r: NormRows, g: Geometry, k: Mapping[str, float], device: DeviceProfile
) -> Issue:
    """Schedulers, to which warps are dealt and of which the fullest decides, and a row alone."""
    c, team = r.config, r.config["team"]
    own, loading = instructions(problem, r, g, k)
    # Batches of a row: those of its first warp, and of all; a warp whose share is over has none.
    at_once = np.maximum(1, family.BATCH * problem.element_bytes // c["vector_bytes"])
    of_warps = -(-problem.row_bytes // (family.WARP * c["vector_bytes"]))
    whole, rest = np.divmod(of_warps, at_once * team)
    batches = whole + (rest > 0)
    all_batches = whole * team + np.minimum(rest, team)
    issued = all_batches * family.BATCH * (own + loading) + team * k["row_instructions"]
    share = c["consumers"] * g.resident / SCHEDULERS

    # Scale and shift come from the L1, those that it has no room for from the L2.
    block_smem = r.smem_bytes + r.reserved_smem_bytes + BLOCK_SMEM_BYTES
    l1 = l1_bytes(g.resident * block_smem, sm_limits(device))
    bulk_stores = r.has_ring & r.is_one_of("stores", "bulk")
    kept = l1 * np.where(bulk_stores, k["l1_kept_bulk_fraction"], k["l1_kept_fraction"])
    missed = _missed(kept, 2 * problem.row_bytes)

    # What a batch passes through the L1 throws a polynomial's coefficients out, which all read.
    passing = family.BATCH * family.WARP * problem.element_bytes * (~bulk_stores + 2 * missed)
    thrown_out = np.minimum(1, k["l1_passing_weight"] * passing / l1)

    registers = r.is_one_of("hold", "registers")
    l2_cycles = k["l2_latency_us"] * k["clock_ghz"] * 1e3
    turn = k["turn_cycles"] * np.where(registers, 1, k["turn_streamed_share"])
    # A scheduler loses what its warps wait for in a turn where all of them wait at once.
    warps = np.maximum(1, np.ceil(share))
    turn = (turn + thrown_out * l2_cycles) * warps * k["turn_shared_fraction"] ** (warps - 1)
    waited = np.where(registers, k["batch_cycles"], k["batch_streamed_cycles"])
    waited = waited + missed * l2_cycles + problem.degree / POLY_STEPS * turn
    row = batches * (family.BATCH * own + waited) + k["row_instructions"] + k["row_cycles"]
    return Issue(
        scheduler=g.rows * issued / SCHEDULERS * np.ceil(share) / share,
        share=share,
        row=row + np.log2(team) * (k["team_cycles"] + bulk_stores * k["team_bulk_cycles"]),
        vectors=-(-problem.row_bytes // (family.WARP * team * c["vector_bytes"])),
        missed=missed,
        rows_missed=_missed(kept, (g.workers + 2) * problem.row_bytes),
    )


def _missed(kept: Any, read_bytes: Any) -> Any:
    """Of bytes that are read round and round, the part that a cache no longer has: they throw
    themselves out, at random."""
    return np.exp(-kept / read_bytes)
