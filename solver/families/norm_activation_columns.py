"""The legal space of norm_activation as integer columns: fields, and what a block of each takes.

Words are counted in alphabetical order, so that columns compare as configurations do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_fields import Columns, NormColumns, columns_of
from solver.families.norm_activation_space import legal_columns
from solver.occupancy import sm_limits
from solver.recurrence import Ticks


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
        return NormColumns(self.config).is_one_of(field, *words)

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


def norm_rows(
    problem: NormProblem,
    configs: Sequence[NormConfig],
    device: DeviceProfile,
    resident: Sequence[int] | None = None,
    reserved_smem_bytes: Sequence[int] | None = None,
) -> NormRows:
    """Legal configurations as columns; ``resident`` blocks of each where they are known better, and
    what a block takes besides its own shared memory, nothing where that is not given."""
    reserved = np.array(reserved_smem_bytes or [0] * len(configs), dtype=np.int64)
    rows = _rows(problem, columns_of(configs), device, reserved)
    if resident is None:
        return rows
    return replace(rows, resident=np.maximum(1, np.array(resident, dtype=np.int64)))


def legal_rows(problem: NormProblem, device: DeviceProfile) -> NormRows:
    """Every legal configuration of a problem."""
    return _legal(NormProblem(1, problem.width, problem.dtype), device)


@lru_cache(maxsize=32)
def _legal(shape: NormProblem, device: DeviceProfile) -> NormRows:
    columns = legal_columns(shape, device)
    return _rows(shape, columns, device, np.zeros_like(columns["consumers"]))


def _rows(problem: NormProblem, columns: Columns, device: DeviceProfile, reserved: Any) -> NormRows:
    limits, configs = sm_limits(device), NormColumns(columns)
    found = block.chunking(problem, configs)
    own = block.smem_bytes(problem, configs)
    registers = block.launch_registers(problem, configs, limits.registers)
    resident = block.resident_blocks(configs, registers, own + reserved, limits)
    return NormRows(
        config=columns,
        rows_per_unit=found.rows_per_unit,
        chunks_per_unit=found.chunks_per_unit,
        smem_bytes=own,
        registers=registers,
        resident=np.maximum(1, resident),
        reserved_smem_bytes=reserved,
    )
