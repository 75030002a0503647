"""Launches that differ in all that a recipe tells: operands, buffers, attributes."""

from __future__ import annotations

from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

SMALL = Config(family.NAME, 64, 64, 64, 3)
WIDE = Config(family.NAME, 128, 128, 64, 4, mma_in_flight=1, math_warpgroups=2, register_split=1)
LAUNCHES = {
    "plain": (Problem(256, 384, 320), WIDE),
    "cluster": (
        Problem(512, 384, 320, "fp16", "tt"),
        Config(family.NAME, 128, 128, 64, 4, math_warpgroups=2, cluster_m=2),
    ),
    "split_k": (
        Problem(100, 200, 1000, layout="nt", out_dtype="fp32", lda=112, ldb=208),
        Config(family.NAME, 64, 64, 64, 3, split_k=4),
    ),
    "copies": (Problem(65, 127, 333, layout="tt", a_offset=3, b_offset=1, c_offset=5), SMALL),
    "copy_of_b": (Problem(64, 129, 128, "fp16", "tt", lda=136, ldc=131), SMALL),
    "two_ctas_of_an_sm": (Problem(304, 500, 256, "bf16", "nn", ldb=264), SMALL),
}
