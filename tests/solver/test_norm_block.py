"""What a block of a norm_activation configuration takes, of one and of columns."""

from __future__ import annotations

import pytest

from solver.device import load_profile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_fields import NormColumns, columns_of
from solver.families.norm_activation_legality import why_illegal
from solver.families.norm_activation_space import legal_configs
from solver.occupancy import SmLimits

H200 = load_profile("h200")
F32 = NormProblem(1000, 1024)
STRONG = NormConfig("strong", 8)


@pytest.mark.parametrize("dtype", family.ELEMENT_BYTES)
@pytest.mark.parametrize("width", [1, 8, 1000, 1001, 4096, 16384, 65535, 65536])
def test_columns_take_what_their_configurations_take(width: int, dtype: str) -> None:
    problem = NormProblem(1000, width, dtype)
    configs = list(legal_configs(problem, H200))[::41]
    columns = NormColumns(columns_of(configs))
    for of in (block.vectors_of, block.chunk_vectors_of, block.words_of, block.smem_bytes):
        assert of(problem, columns).tolist() == [of(problem, config) for config in configs]
    assert block.units_of(problem, columns).tolist() == [
        block.units_of(problem, config) for config in configs
    ]
    assert block.barriers_used(columns).tolist() == [block.barriers_used(c) for c in configs]
    for config in configs:
        assert why_illegal(problem, config, H200) is None
        assert type(block.smem_bytes(problem, config)) is int  # goes into JSON as it is


def test_reserved_memory_leaves_exactly_the_blocks_asked_for() -> None:
    sm = SmLimits(2048, 65536, 233472)
    config = NormConfig("strong", 4, team=2)
    own = block.smem_bytes(F32, config)
    for blocks in (1, 2, 3, 4, 8):
        reserved = block.reserved_for(blocks, own, sm.smem_bytes)
        assert reserved >= 0
        assert block.resident_blocks(config, 32, own + reserved, sm) == blocks
    assert block.reserved_for(4, 60_000, sm.smem_bytes) < 0


def test_resident_blocks_are_bounded_by_each_resource() -> None:
    sm = SmLimits(2048, 65536, 233472)
    assert block.resident_blocks(STRONG, 32, 0, sm) == 8  # threads
    assert block.resident_blocks(STRONG, 128, 0, sm) == 2  # registers
    assert block.resident_blocks(STRONG, 33, 0, sm) == 6  # registers come by 256 a warp
    assert block.resident_blocks(STRONG, 32, 100_000, sm) == 2  # shared memory
    assert block.resident_blocks(NormConfig("plain", 1), 16, 0, sm) == 32  # blocks
    named = NormConfig(
        "specialised", 1, 1, depth=2, chunk_bytes=2048, copies="vector", barrier="named"
    )
    assert block.resident_blocks(named, 16, 0, sm) == 4  # barriers: all 16, of 64
    teams = NormConfig("strong", 4, team=2)
    assert block.barriers_used(teams) == 3  # the block's, and one of each team
    assert block.resident_blocks(teams, 16, 0, sm) == 16
