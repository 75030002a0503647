"""TMA descriptors, encoded by the driver from a launch plan's boxes."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from cuda.bindings import driver

from kernels.driver import checked
from kernels.errors import LaunchFailed
from kernels.launch_plan import Box
from kernels.tensor_map_names import (
    DATA_TYPES,
    INTERLEAVE,
    L2_PROMOTION,
    OUT_OF_BOUNDS,
    SWIZZLES,
)
from solver.problem import VECTOR_BYTES

TENSOR_MAP_BYTES = 128


@lru_cache(maxsize=4096)
def encode_tensor_map(box: Box, address: int) -> np.ndarray[Any, Any]:
    """The 128 bytes of a tensor map for ``box`` over the matrix at a device address, not to be
    written to: whoever asks for the same again gets the same array.

    Elements out of bounds read as zero. Raises LaunchFailed for an address TMA can't take or
    where the driver refuses the map.
    """
    if address % VECTOR_BYTES:
        raise LaunchFailed(
            f"tensor map: base address must be a multiple of {VECTOR_BYTES}, got {address:#x}"
        )
    encoded = checked(
        f"cuTensorMapEncodeTiled of {box}",
        driver.cuTensorMapEncodeTiled(
            getattr(driver.CUtensorMapDataType, DATA_TYPES[box.dtype]),
            2,
            address,
            [driver.cuuint64_t(box.columns), driver.cuuint64_t(box.rows)],
            [driver.cuuint64_t(box.row_bytes)],
            [driver.cuuint32_t(box.box_columns), driver.cuuint32_t(box.box_rows)],
            [driver.cuuint32_t(1), driver.cuuint32_t(1)],
            getattr(driver.CUtensorMapInterleave, INTERLEAVE),
            getattr(driver.CUtensorMapSwizzle, SWIZZLES[box.swizzle_bytes]),
            getattr(driver.CUtensorMapL2promotion, L2_PROMOTION),
            getattr(driver.CUtensorMapFloatOOBfill, OUT_OF_BOUNDS),
        ),
    )
    return np.frombuffer(ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES), np.uint8)
