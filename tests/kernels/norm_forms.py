"""Configurations of norm_activation that several tests play and compile."""

from __future__ import annotations

from solver.families.norm_activation import NormConfig, NormProblem

ROWS = NormProblem(90, 256, "fp32", "layer", "silu")
SPLIT = NormConfig(
    "specialised",
    12,
    4,
    groups=12,
    copies="bulk",
    depth=2,
    chunk_bytes=2048,
    rounds=0,
    register_split=1,
)
BULK = NormConfig("specialised", 4, 1, groups=2, team=2, depth=3, chunk_bytes=2048, rounds=0)
