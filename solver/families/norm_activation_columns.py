"""The legal space of norm_activation as integer columns: fields, and what a block of each takes.

Words are counted in alphabetical order, so that columns compare as configurations do. What is legal
depends on a row's bytes and an element's alone, so that problems share a space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_space import legal_configs
from solver.occupancy import sm_limits
from solver.recurrence import Ticks

FIELDS = tuple(f.name for f in fields(NormConfig))

Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NormRows:
    """R configurations of one problem, integer arrays of shape [R] each.

    ``config`` has NormConfig's fields; ``rows_per_unit`` and ``chunks_per_unit`` are how rows come
    to a ring (1 and 1 without one), ``smem_bytes`` a block's shared memory, ``registers`` a
    thread's, ``resident`` the blocks that an SM holds; ``reserved_smem_bytes`` is what a block
    takes besides its own.
    """

    config: Columns
    rows_per_unit: Ticks
    chunks_per_unit: Ticks
    smem_bytes: Ticks
    registers: Ticks
    resident: Ticks
    reserved_smem_bytes: Ticks

    @property
    def has_ring(self) -> Any:
        """Whether chunks come through shared memory. Shape [R]."""
        return self.is_one_of("kind", "ring", "specialised")

    def is_one_of(self, field: str, *words: str) -> Any:
        """Whether a field is one of these words. Shape [R]."""
        codes = [family.WORDS[field].index(word) for word in words]
        return np.isin(self.config[field], codes)

    def kept(self, rows: Ticks, resident: Ticks, reserved_smem_bytes: Ticks) -> NormRows:
        """Some of the rows, by their places, with so many blocks on an SM, which take so much
        shared memory besides their own. Shape [R] each."""
        return NormRows(
            config={name: values[rows] for name, values in self.config.items()},
            rows_per_unit=self.rows_per_unit[rows],
            chunks_per_unit=self.chunks_per_unit[rows],
            smem_bytes=self.smem_bytes[rows],
            registers=self.registers[rows],
            resident=resident,
            reserved_smem_bytes=reserved_smem_bytes,
        )


def launch_registers(problem: NormProblem, config: NormConfig, sm_registers: int) -> int:
    """Registers of a thread, about as many as NVRTC 13.5 takes where it may.

    A line through what 224 kernels of the legal space took: 7 % off in the mean, and 9 in 10 have
    as many blocks on an SM by it. What a kernel takes is known once it is compiled.
    """
    if config.register_split:
        return family.SPLIT_LAUNCH_REGISTERS
    words = family.words_of(problem, config)
    if config.kind == "strong":
        wanted = min(128.0, 48 + 1.5 * words)
    elif config.has_ring and words:
        wanted = (60 if config.team > 1 else 56) + 1.25 * words
    elif config.kind == "plain" and config.vector_bytes == family.VECTOR_BYTES:
        wanted = 50.0
    else:
        wanted = 70.0
    return min(int(wanted), config.register_limit(sm_registers))


def norm_rows(
    problem: NormProblem,
    configs: Sequence[NormConfig],
    device: DeviceProfile,
    resident: Sequence[int] | None = None,
    reserved_smem_bytes: Sequence[int] | None = None,
) -> NormRows:
    """Legal configurations as columns; ``resident`` blocks of each where they are known better, and
    what a block takes besides its own shared memory, nothing where that is not given."""
    limits = sm_limits(device)
    columns = [c.to_columns() for c in configs]
    values = np.array([[each[n] for n in FIELDS] for each in columns], dtype=np.int64)
    values = values.reshape(-1, len(FIELDS))
    found = [family.chunking(problem, c) if c.has_ring else None for c in configs]
    smem = [family.smem_bytes(problem, c) for c in configs]
    registers = [launch_registers(problem, c, limits.registers) for c in configs]
    reserved = reserved_smem_bytes or [0] * len(configs)
    if resident is None:
        resident = [
            family.resident_blocks(config, each, own + taken, limits)
            for config, each, own, taken in zip(configs, registers, smem, reserved, strict=True)
        ]
    return NormRows(
        config={name: values[:, i] for i, name in enumerate(FIELDS)},
        rows_per_unit=_integers([f.rows_per_unit if f else 1 for f in found]),
        chunks_per_unit=_integers([f.chunks_per_unit if f else 1 for f in found]),
        smem_bytes=_integers(smem),
        registers=_integers(registers),
        resident=np.maximum(1, _integers(resident)),
        reserved_smem_bytes=_integers(reserved),
    )


def legal_rows(problem: NormProblem, device: DeviceProfile) -> NormRows:
    """Every legal configuration of a problem."""
    return _legal(NormProblem(1, problem.width, problem.dtype), device)


@lru_cache(maxsize=32)
def _legal(shape: NormProblem, device: DeviceProfile) -> NormRows:
    return norm_rows(shape, list(legal_configs(shape, device)), device)


def _integers(values: Sequence[int]) -> Ticks:
    return np.array(values, dtype=np.int64)
