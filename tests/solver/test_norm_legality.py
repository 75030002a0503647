"""Legality of norm_activation against a second statement of it, written from the kernels' needs."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest

from solver.device import DeviceProfile, load_profile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_fields import NormColumns, columns_of
from solver.families.norm_activation_legality import (
    are_legal,
    check_legal,
    runs_on,
    why_illegal,
)
from solver.families.norm_activation_space import legal_configs
from solver.split import is_norm_held_out

H200 = load_profile("h200")
A100 = load_profile("a100")
F32 = NormProblem(1000, 1024)
STRONG = NormConfig("strong", 8)
BULK = NormConfig("specialised", 8, 1, groups=8, depth=2, chunk_bytes=4096, rounds=0)
NAMED = NormConfig(
    "specialised",
    12,
    4,
    team=3,
    copies="vector",
    barrier="named",
    depth=2,
    chunk_bytes=16384,
    rounds=0,
)


def can_run(p: NormProblem, c: NormConfig, device: DeviceProfile) -> bool:
    """What the CUDA sources need, thought through from them: their static_asserts and traps, what
    PTX allows, and that nobody waits for ever."""
    hopper = device.arch == "sm_90a"
    row = p.width * p.element_bytes
    if min(c.consumers, c.groups, c.team, c.blocks_per_sm) < 1 or c.consumers > 32:
        return False
    if c.consumers % c.groups or (c.consumers // c.groups) % c.team:
        return False
    warps = c.consumers + c.producers
    threads = 32 * warps
    if threads > 1024 or threads * c.blocks_per_sm > device.limit("threads_per_sm"):
        return False
    group = c.consumers // c.groups
    teams = group // c.team
    registers = min(255, 65536 // (threads * c.blocks_per_sm) // 8 * 8)
    ids = c.groups * teams if c.team > 1 else 0
    if c.kind in ("plain", "strong"):
        ring_fields = (c.groups, c.depth, c.chunk_bytes, c.producers, c.register_split)
        if ring_fields != (1, 0, 0, 0, 0) or c.stores != "vector":
            return False
        if (c.copies, c.barrier) != ("bulk", "mbarrier"):
            return False
        if row % c.vector_bytes or c.vector_bytes < p.element_bytes:
            return False
        if c.kind == "plain":
            return c.hold == "reload" and c.team == 1 and registers >= 80
        lanes_vectors = -(-row // (c.vector_bytes * 32 * c.team))
        words = vectors_needed(lanes_vectors, c.vector_bytes // p.element_bytes) * max(
            1, c.vector_bytes // 4
        )
        need = max(1.5 * words + 40, 64 if c.team == 1 else 72)
        need += 0 if c.vector_bytes == 16 else 32
        return c.hold == "registers" and words <= 64 and need < registers + 1 and ids <= 15
    if c.vector_bytes != 16 or row % 16 or c.depth < 2:
        return False
    if c.chunk_bytes < 16 or c.chunk_bytes % 16:
        return False
    if (c.kind == "specialised") != (c.producers > 0):
        return False
    if not hopper and (c.copies == "bulk" or c.stores == "bulk" or c.register_split):
        return False
    if c.kind == "ring" and (c.copies == "vector" or c.register_split):
        return False
    if c.register_split:
        if (c.producers, c.consumers) not in ((4, 12), (8, 8), (4, 4)):
            return False
        if threads * c.blocks_per_sm != 512:
            return False
    if c.copies == "bulk" and c.producers not in (0, 4 if c.register_split else 1):
        return False
    if c.barrier == "named" and c.copies != "vector":
        return False
    if c.stores == "bulk" and c.hold == "registers":
        return False
    words = 0
    if row <= c.chunk_bytes:
        rows = c.chunk_bytes // row
        if rows < teams or c.hold == "reload":
            return False
        slot = row * (rows // teams * teams)
        if c.hold == "registers":
            words = 4 * vectors_needed(-(-row // (512 * c.team)), 16 // p.element_bytes)
    else:
        chunks = -(-row // c.chunk_bytes)
        slot = c.chunk_bytes
        if teams != 1:
            return False
        if c.hold == "registers":
            if c.chunk_bytes % (512 * c.team):
                return False
            vectors = chunks * (c.chunk_bytes // (512 * c.team))
            if vectors_needed(vectors, 16 // p.element_bytes) != vectors:
                return False
            words = 4 * vectors
        if c.hold == "shared" and chunks > c.depth:
            return False
        if c.hold == "shared" and c.kind == "specialised" and c.groups > 1:
            return False
        if c.hold == "reload" and chunks <= c.depth:
            return False
    slots = c.groups * c.depth
    if c.barrier == "named":
        ids += 2 * slots
    smem = slots * (slot + (16 if c.barrier == "mbarrier" else 0))
    smem += c.groups * teams * 8 * c.team if c.team > 1 else 0
    return (
        ids <= 15
        and slots <= 64
        and smem <= device.limit("smem_per_block_bytes")
        and words <= 48
        and 40 + 2 * words <= registers
    )


def vectors_needed(least: int, elements: int) -> int:
    """The vectors that RegisterRow is built with for so many."""
    steps = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
    whole = [n for n in steps if n >= least and (n * elements < 8 or n * elements % 8 == 0)]
    return whole[0] if whole else least


def anything(draw: random.Random) -> tuple[NormProblem, NormConfig]:
    """A configuration of plausible values, legal or not."""
    problem = NormProblem(
        draw.randrange(100),
        draw.choice((1, 8, 100, 1000, 1001, 1024, 4096, 16384, 65536)),
        draw.choice(("fp32", "fp16", "bf16")),
    )
    kind = draw.choice(family.KINDS)
    ring = kind in ("ring", "specialised")
    odd = draw.random() < 0.1
    values: dict[str, Any] = {
        "consumers": draw.choice((3, 4, 7, 8, 12, 14, 15, 16, 32)),
        "producers": draw.choice((1, 1, 2, 4, 8)) if (kind == "specialised") != odd else 0,
        "groups": draw.choice((1, 1, 2, 3, 4, 8, 12, 15)) if ring else 1,
        "team": draw.choice((1, 1, 2, 3, 4, 7, 8, 12, 16)),
        "vector_bytes": 16 if ring else draw.choice((2, 4, 8, 16)),
        "copies": draw.choice(family.COPIES) if ring else "bulk",
        "barrier": draw.choice(family.BARRIERS) if ring else "mbarrier",
        "depth": draw.choice((1, 2, 3, 4, 6, 16)) if ring else int(odd),
        "chunk_bytes": draw.choice((100, 512, 2048, 3072, 4096, 16384, 32768)) if ring else 0,
        "hold": draw.choice(family.HOLDS) if ring or odd else "registers",
        "stores": draw.choice(family.STORES) if ring else "vector",
        "rounds": draw.choice((0, 1, 8)),
        "blocks_per_sm": draw.choice((1, 1, 1, 2, 4, 8)),
        "register_split": int(draw.random() < 0.1),
    }
    if kind == "plain" and not odd:
        values |= {"hold": "reload", "team": 1}
    return problem, NormConfig(kind, **values)


@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.name)
def test_the_predicate_agrees_with_what_the_kernels_need(device: DeviceProfile) -> None:
    draw = random.Random(f"norm legality {device.name}")
    legal: Counter[str] = Counter()
    spaces = [
        (problem, list(legal_configs(problem, device)))
        for problem in (F32, NormProblem(9, 4096, "bf16"), NormProblem(9, 16384, "fp16"))
    ]
    for index in range(60_000):
        problem, config = anything(draw)
        if index % 2:  # one of the legal ones with a few fields changed, so that most rules stand
            changes = draw.sample(sorted(config.to_dict().items()), draw.randrange(3))
            problem, space = draw.choice(spaces)
            config = dataclasses.replace(draw.choice(space), **dict(changes))
        reason = why_illegal(problem, config, device)
        assert (reason is None) == can_run(problem, config, device), (problem, config, reason)
        legal[config.kind] += reason is None
    assert min(legal[kind] for kind in family.KINDS) > 500, legal


@pytest.mark.parametrize("device", [H200, A100], ids=lambda device: device.name)
def test_columns_are_judged_as_their_configurations_are(device: DeviceProfile) -> None:
    draw = random.Random(f"norm columns {device.name}")
    drawn = [anything(draw)[1] for _ in range(3000)]
    for problem in (F32, NormProblem(9, 16384, "fp16"), NormProblem(7, 1001, "bf16")):
        nearly = [
            dataclasses.replace(config, **dict([draw.choice(sorted(other.to_dict().items()))]))
            for config, other in zip(legal_configs(problem, device), drawn, strict=False)
        ]
        configs = [c for c in drawn + nearly if c.chunk_bytes <= 65536]
        legal = are_legal(problem, NormColumns(columns_of(configs)), device)
        assert legal.tolist() == [why_illegal(problem, c, device) is None for c in configs]
        assert 0 < legal.sum() < legal.size


@pytest.mark.parametrize("width", [1024, 4096, 16384])
def test_the_legal_space_is_legal_without_repeats_and_has_every_kind(width: int) -> None:
    problem = NormProblem(100, width, "bf16")
    for device in (H200, A100):
        space = list(legal_configs(problem, device))
        assert len(set(space)) == len(space)
        assert 500 < len(space) < 8000
        assert {config.kind for config in space} == set(family.KINDS)
        for config in space[::7]:
            assert can_run(problem, config, device), config


def test_the_legal_space_has_every_ratio_depth_barrier_and_chunk_that_was_asked_for() -> None:
    space = list(legal_configs(F32, H200))
    of_16 = {(c.producers, c.consumers) for c in space if c.warps == 16 and c.producers}
    assert of_16 >= {(1, 15), (2, 14), (4, 12), (8, 8)}
    of_8 = {(c.producers, c.consumers) for c in space if c.warps == 8 and c.producers}
    assert of_8 >= {(1, 7), (2, 6), (4, 4)}
    ringed = [c for c in space if c.has_ring]
    assert {c.depth for c in ringed} == {2, 3, 4, 6}
    assert {c.barrier for c in ringed} == set(family.BARRIERS)
    assert {c.chunk_bytes for c in ringed} == {2048, 4096, 8192, 16384, 32768}
    assert {c.register_split for c in ringed} == {0, 1}
    assert {c.rounds for c in ringed if c.kind == "specialised"} == {0, 8}
    assert {c.stores for c in ringed} == set(family.STORES)


def test_odd_widths_have_plain_and_strong_kernels_alone() -> None:
    for width in (1, 3, 1001, 65535):
        kinds = {c.kind for c in legal_configs(NormProblem(5, width, "fp16"), H200)}
        assert "plain" in kinds
        assert kinds <= {"plain", "strong"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (dataclasses.replace(STRONG, consumers=33), "consumers: must be between 1 and 32, got 33"),
        (dataclasses.replace(STRONG, kind="fast"), "kind: must be one of plain, strong"),
        (dataclasses.replace(STRONG, team=3), "team: must divide the warps of a group, 8, got 3"),
        (dataclasses.replace(STRONG, producers=1), "producers: must be positive for specialised"),
        (dataclasses.replace(STRONG, vector_bytes=2), "vector_bytes: must be one of 4, 8, 16"),
        (dataclasses.replace(STRONG, depth=2), "depth: must be 0 for strong"),
        (dataclasses.replace(STRONG, blocks_per_sm=4), "blocks_per_sm: leaves 64 registers"),
        (dataclasses.replace(BULK, depth=1), "depth: must be at least 2 for specialised"),
        (dataclasses.replace(BULK, producers=2), "producers: must be 1 with bulk copies"),
        (dataclasses.replace(BULK, barrier="named"), "barrier: must be mbarrier with bulk"),
        (dataclasses.replace(BULK, stores="bulk"), "stores: must be vector with hold registers"),
        (dataclasses.replace(BULK, hold="reload"), "hold: must not be reload where a chunk holds"),
        (dataclasses.replace(BULK, groups=1), "chunk_bytes: must hold a row for each"),
        (dataclasses.replace(BULK, depth=9), "depth: a block must have at most 64 slots"),
        (dataclasses.replace(BULK, groups=4, team=1, chunk_bytes=2048), "team: must be all warps"),
        (dataclasses.replace(NAMED, depth=6), "team: teams of several warps and named slots"),
        (dataclasses.replace(NAMED, register_split=1, producers=3), "register_split: must be 0"),
    ],
)
def test_an_illegal_configuration_is_told_by_field_and_rule(config: NormConfig, words: str) -> None:
    reason = why_illegal(F32, config, H200)
    assert reason is not None
    assert reason.startswith(words)
    with pytest.raises(IllegalConfig) as caught:
        check_legal(F32, config, H200)
    assert caught.value.field == words.partition(":")[0]


def test_devices_before_hopper_have_no_bulk_copies_and_others_no_kernels() -> None:
    assert why_illegal(F32, BULK, A100) == "copies: bulk copies need sm_90, got sm_80"
    assert why_illegal(F32, NAMED, A100) is None
    assert [runs_on(load_profile(name)) for name in ("h20", "l40s", "mi300x")] == [
        True,
        True,
        False,
    ]
    assert "from sm_80 on" in str(why_illegal(F32, STRONG, load_profile("mi300x")))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rows": -1}, "rows: must be between 0 and 2147483647, got -1"),
        ({"rows": 1.0}, "rows: must be an integer"),
        ({"width": 0}, "width: must be between 1 and 65536, got 0"),
        ({"width": 65537}, "width: must be between 1 and 65536"),
        ({"rows": 2**31 - 1, "width": 65536}, "rows: rows*width must be at most 2^40"),
        ({"dtype": "fp8"}, "dtype: must be one of fp32, fp16, bf16, got 'fp8'"),
        ({"norm": "batch"}, "norm: must be one of layer, rms"),
        ({"activation": "relu"}, "activation: must be one of gelu, gelu_tanh, silu, poly"),
        ({"activation": "poly", "degree": 1025}, "degree: must be between 0 and 1024, got 1025"),
        ({"degree": 1}, "degree: must be 0 unless activation is poly, got 1 with gelu"),
        ({"degree": -1}, "degree: must be between 0 and 1024, got -1"),
    ],
)
def test_a_problem_outside_the_limits_is_refused_by_name(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidProblem) as caught:
        NormProblem(**({"rows": 10, "width": 64} | fields))
    assert str(caught.value).startswith(words)


def test_a_configuration_comes_back_from_its_fields() -> None:
    assert NormConfig.from_dict(NAMED.to_dict()) == NAMED
    with pytest.raises(IllegalConfig, match="stages: is no configuration field"):
        NormConfig.from_dict({"kind": "plain", "consumers": 4, "stages": 3})
    with pytest.raises(IllegalConfig, match="consumers: is required"):
        NormConfig.from_dict({"kind": "plain"})
    with pytest.raises(IllegalConfig, match="team: must be int, got str"):
        NormConfig.from_dict({"kind": "plain", "consumers": 4, "team": "1"})


def test_a_quarter_of_the_problems_is_held_out_whatever_their_rows() -> None:
    problems = [NormProblem(1, width, "bf16") for width in range(1, 1001)]
    held = [is_norm_held_out(problem, warps) for problem in problems for warps in (None, 8)]
    assert 0.2 < sum(held) / len(held) < 0.3
    assert [is_norm_held_out(NormProblem(9, p.width, "bf16"), None) for p in problems] == held[::2]
