"""TMA descriptors, encoded by the driver from a launch plan's boxes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from kernels.driver import checked
from kernels.errors import LaunchFailed
from kernels.launch_plan import Box
from solver.problem import VECTOR_BYTES

TENSOR_MAP_BYTES = 128
_DATA_TYPES = {
    "bf16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "fp16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "fp32": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
}
_SWIZZLES = {
    16: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
# A row of a box is 128 bytes, and no more are asked for: 256 cost 3 to 5 % of the time where the
# product waits for device memory (m up to 64), and won nothing on average elsewhere.
L2_PROMOTION = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B


def encode_tensor_map(box: Box, address: int) -> np.ndarray[Any, Any]:
    """The 128 bytes of a tensor map for ``box`` over the matrix at a device address.

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
            _DATA_TYPES[box.dtype],
            2,
            address,
            [driver.cuuint64_t(box.columns), driver.cuuint64_t(box.rows)],
            [driver.cuuint64_t(box.row_bytes)],
            [driver.cuuint32_t(box.box_columns), driver.cuuint32_t(box.box_rows)],
            [driver.cuuint32_t(1), driver.cuuint32_t(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            _SWIZZLES[box.swizzle_bytes],
            L2_PROMOTION,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
    )
    return np.frombuffer(ctypes.string_at(int(encoded.getPtr()), TENSOR_MAP_BYTES), np.uint8).copy()
