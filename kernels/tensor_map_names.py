"""What tensor maps are encoded with, by the driver API's own names."""

from __future__ import annotations

DATA_TYPES = {
    "bf16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "fp16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "fp32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
}
SWIZZLES = {
    16: "CU_TENSOR_MAP_SWIZZLE_NONE",
    32: "CU_TENSOR_MAP_SWIZZLE_32B",
    64: "CU_TENSOR_MAP_SWIZZLE_64B",
    128: "CU_TENSOR_MAP_SWIZZLE_128B",
}
"""By the bytes of a box's row that is swizzled over."""

INTERLEAVE = "CU_TENSOR_MAP_INTERLEAVE_NONE"
# A row of a box is 128 bytes, and no more are asked for: 256 cost 3 to 5 % of the time where the
# product waits for device memory (m up to 64), and won nothing on average elsewhere.
L2_PROMOTION = "CU_TENSOR_MAP_L2_PROMOTION_L2_128B"
OUT_OF_BOUNDS = "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"
