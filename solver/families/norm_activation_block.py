"""How a problem's rows come to a norm_activation configuration, and what a block takes for it.

Each is of one configuration (NormConfig: plain numbers) or of columns of them (NormColumns: arrays
[R]). Total: what no legal configuration has still gets a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from solver import occupancy
from solver.elementwise import largest, smallest, where
from solver.families.norm_activation import (
    BATCH,
    SPLIT_LAUNCH_REGISTERS,
    VECTOR_BYTES,
    WARP,
    Fields,
    NormProblem,
)
from solver.occupancy import SmLimits

VECTOR_STEPS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
BARRIER_PAIR_BYTES = 16  # a slot's full and empty mbarrier
BLOCK_BARRIERS = 16
"""Barriers that a block may name, 0 being the whole block's."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a problem's rows come to a ring; 1, 1 and 0 without one.

    rows_per_unit    whole rows of a slot, or 1
    chunks_per_unit  1, or how many chunks a row comes in
    slot_bytes       shared memory of a slot
    """

    rows_per_unit: Any
    chunks_per_unit: Any
    slot_bytes: Any


def chunking(problem: NormProblem, config: Fields) -> Chunking:
    """Whole rows as many as fit in ``chunk_bytes``, of which every team has as many where there are
    enough; a row that doesn't fit in comes in chunks of exactly that (the last may be shorter)."""
    row, size = problem.row_bytes, config.chunk_bytes
    whole = row <= size
    fitting = largest(1, size // row)
    rows = fitting - where(fitting > config.teams, fitting % largest(1, config.teams), 0)
    return Chunking(
        rows_per_unit=where(whole, rows, 1),
        chunks_per_unit=where(whole | (size <= 0), 1, -(-row // largest(1, size))),
        slot_bytes=where(whole, rows * row, size),
    )


def comes_in_chunks(problem: NormProblem, config: Fields) -> Any:
    """Whether a row fills more than a slot of a ring."""
    return config.has_ring & (problem.row_bytes > config.chunk_bytes)


def vectors_of(problem: NormProblem, config: Fields) -> Any:
    """Vectors of a lane that hold its share of a row in registers; 1 where they don't."""
    size = _vector_bytes(config)
    least = -(-problem.row_bytes // largest(1, size * WARP * config.team))
    whole = whole_vectors(least, size // problem.element_bytes)
    parts = chunking(problem, config).chunks_per_unit * chunk_vectors_of(problem, config)
    vectors = where(comes_in_chunks(problem, config), parts, whole)
    return where(config.is_one_of("hold", "registers"), vectors, 1)


def whole_vectors(least: Any, elements: Any) -> Any:
    """The least of VECTOR_STEPS from ``least`` on that makes whole batches of BATCH elements, with
    vectors of so many each; ``least`` itself where there is none."""
    found = least
    for count in reversed(VECTOR_STEPS):
        batches = (count * elements < BATCH) | (count * elements % BATCH == 0)
        found = where((count >= least) & batches, count, found)
    return found


def chunk_vectors_of(problem: NormProblem, config: Fields) -> Any:
    """Vectors of a lane's share of a chunk; 0 where chunks are of whole rows."""
    vectors = largest(1, config.chunk_bytes // (VECTOR_BYTES * WARP * config.team))
    return where(comes_in_chunks(problem, config), vectors, 0)


def words_of(problem: NormProblem, config: Fields) -> Any:
    """Registers of a lane that hold its share of a row."""
    words = vectors_of(problem, config) * largest(1, _vector_bytes(config) // 4)
    return where(config.is_one_of("hold", "registers"), words, 0)


def _vector_bytes(config: Fields) -> Any:
    return where(config.has_ring, VECTOR_BYTES, config.vector_bytes)


def smem_bytes(problem: NormProblem, config: Fields) -> Any:
    """Dynamic shared memory of a block: slots, a slot's barriers, and scratch of teams."""
    scratch = where(config.team > 1, _teams(config) * 2 * config.team * 4, 0)
    barriers = where(config.is_one_of("barrier", "mbarrier"), BARRIER_PAIR_BYTES, 0)
    slot = chunking(problem, config).slot_bytes + barriers
    return where(config.has_ring, config.groups * config.depth * slot, 0) + scratch


def _teams(config: Fields) -> Any:
    """Teams of a block."""
    return where(config.has_ring, config.groups, 1) * config.teams


def named_barriers(config: Fields) -> Any:
    """Named barriers of a block besides the whole block's, 0."""
    named = config.has_ring & config.is_one_of("barrier", "named")
    slots = where(named, 2 * config.groups * config.depth, 0)
    return where(config.team > 1, _teams(config), 0) + slots


def barriers_used(config: Fields) -> Any:
    """Barriers that a block takes of its SM's: up to the highest id that the compiler sees, all
    there are where the ids of ring slots come in registers."""
    own = named_barriers(config)
    seen = where(config.has_ring | (own > 0), own + 1, 0)
    named = config.has_ring & config.is_one_of("barrier", "named")
    return where(named, BLOCK_BARRIERS, seen)


def units_of(problem: NormProblem, config: Fields) -> Any:
    """Units of work of a launch: as many rows as a block's teams take at once, or a ring's."""
    rows = where(config.has_ring, chunking(problem, config).rows_per_unit, config.teams)
    return -(-problem.rows // largest(1, rows))


def least_registers(config: Fields, words: Any) -> Any:
    """Registers a thread with which NVRTC 13.5 spills nothing where ``words`` hold a lane's share
    of a row (tests/kernels/test_norm.py compiles a sample). A register split doesn't help: ptxas
    works with the launch's."""
    narrow = where(config.vector_bytes == VECTOR_BYTES, 0, 32)
    strong = largest(where(config.team == 1, 64, 72), 40 + 3 * words // 2) + narrow
    alike = where(config.is_one_of("kind", "plain"), 80, strong)
    return where(config.has_ring, 40 + 2 * words, alike)


def launch_registers(problem: NormProblem, config: Fields, sm_registers: int) -> Any:
    """Registers of a thread, about as many as NVRTC 13.5 takes where it may.

    A line through what 224 kernels of the legal space took: 7 % off in the mean, and 9 in 10 have
    as many blocks on an SM by it. What a kernel takes is known once it is compiled.
    """
    words = words_of(problem, config)
    ring = where(words > 0, where(config.team > 1, 60, 56) + 5 * words // 4, 70)
    by_16_bytes = config.is_one_of("kind", "plain") & (config.vector_bytes == VECTOR_BYTES)
    strong = smallest(128, 48 + 3 * words // 2)
    alike = where(config.is_one_of("kind", "strong"), strong, where(by_16_bytes, 50, 70))
    wanted = where(config.has_ring, ring, alike)
    held = smallest(wanted, config.register_limit(sm_registers))
    return where(config.register_split > 0, SPLIT_LAUNCH_REGISTERS, held)


def resident_blocks(config: Fields, registers: Any, block_smem_bytes: Any, sm: SmLimits) -> Any:
    """Blocks that an SM holds at once; ``block_smem_bytes`` without the system's share. 0: none."""
    barriers = barriers_used(config)
    return occupancy.resident_blocks(config.threads, registers, block_smem_bytes, sm, barriers)


def reserved_for(blocks: Any, own_smem_bytes: Any, sm_smem_bytes: int) -> Any:
    """Shared memory that a block must take besides its own so that exactly ``blocks`` fit in an SM
    by it; negative where fewer fit already."""
    each = sm_smem_bytes // blocks - occupancy.BLOCK_SMEM_BYTES
    return each - each % occupancy.SMEM_UNIT - own_smem_bytes
