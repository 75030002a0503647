"""The pairs that the GPU evidence launches: every branch, every meeting, few kernels."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.branch_pairs import (
    KEYS_MAX,
    chosen_keys,
    counted,
    covering,
    legal_keys,
    on_sms,
    pair,
    pairs,
)
from bench.branches import AXES, Pair, branches_of, meetings, met
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.problem import Problem

DEVICE = load_profile("h200")


@pytest.fixture(scope="module")
def drawn() -> list[Pair]:
    return pairs(5000, 1, DEVICE)


def test_five_thousand_pairs_take_every_branch(drawn: list[Pair]) -> None:
    counts = counted(drawn)
    every = {f"{axis}={value}" for axis, values in AXES.items() for value in values}
    assert set(counts) == every
    assert min(counts.values()) >= 20, counts


@pytest.mark.parametrize("seed", [1, 2])
def test_five_thousand_pairs_meet_every_combination_that_can_be(
    drawn: list[Pair], seed: int
) -> None:
    taken = drawn if seed == 1 else pairs(5000, seed, DEVICE)
    wanted = set(meetings(legal_keys(DEVICE)))
    seen = met(branches_of(drew) for drew in taken)
    assert wanted - seen == set()
    assert seen - wanted == set(), "said to be impossible, and yet taken"


def test_every_pair_is_legal_on_the_sms_it_may_use(drawn: list[Pair]) -> None:
    for drew in drawn[::10]:
        legality.check(drew.config, drew.problem, on_sms(DEVICE, drew.sms))


def test_pairs_need_few_kernels_and_the_same_ones_every_time(drawn: list[Pair]) -> None:
    keys = chosen_keys(DEVICE)
    assert len(set(keys)) == len(keys) <= KEYS_MAX
    assert chosen_keys.__wrapped__(DEVICE) == keys
    uses = Counter(drew.key for drew in drawn)
    assert set(uses) == set(keys)


def test_a_pair_is_the_same_whatever_is_drawn_beside_it(drawn: list[Pair]) -> None:
    keys = chosen_keys(DEVICE)
    for index in (0, 7, 99, 4999):
        assert pair(index, 1, keys, DEVICE) == drawn[index]
        assert pair(index, 2, keys, DEVICE) != drawn[index]


def test_a_cover_is_small_and_takes_every_branch(drawn: list[Pair]) -> None:
    cover = covering(drawn)
    assert len(cover) <= 30
    assert set(counted(cover)) == set(counted(drawn))


def test_the_branches_of_a_split_unaligned_launch() -> None:
    problem = Problem(300, 100, 500, layout="nt", out_dtype="fp32", lda=301, b_offset=1, ldc=104)
    config = Config(family.NAME, 128, 64, 64, 4, cluster_n=2, split_k=3, dma_warps=2)
    taken = branches_of(Pair(problem, config, 5))
    expected = {
        "tile": "128x1",
        "swizzle": "64",
        "piece": "64",
        "cluster": "1x2",
        "split": "more",
        "shares": "uneven",  # 8 k-iterations over 3
        "units": "several",  # 3 rows of tiles, 2 columns, 3 shares, on 2 clusters
        "ring": "often",
        "raster": "none",
        "a_load": "pitch",
        "b_load": "both",
        "c_path": "tma",
        "c_why": "odd",
        "a_copied": "yes",
        "a_gap": "yes",
        "b_gap": "no",
        "a_box": "whole",
        "a_policy": "first",  # both columns of tiles are one cluster's
        "b_policy": "last",
        "edge_m": "yes",
        "edge_n": "yes",
        "edge_k": "yes",
        "blocks": "skipped",  # 44 rows in the last tile
        "pieces": "all",  # of 32 columns, 36 of which are inside
        "m": "many",
    }
    assert taken == taken | expected


def test_a_row_told_to_lie_along_m_is_read_along_k() -> None:
    config = Config(family.NAME, 64, 64, 64, 2)
    told = Pair(Problem(1, 64, 64, layout="nt", lda=1), config, 132)
    assert told.key.layout == "tt"
    assert branches_of(told)["told"] == "otherwise"
    apart = Pair(Problem(1, 64, 64, layout="nt", lda=8), config, 132)
    assert (apart.key.layout, branches_of(apart)["told"]) == ("nt", "alike")


@pytest.mark.parametrize(
    ("m", "n", "cluster_n", "a_box", "b_box"),
    [
        (200, 300, 1, "whole", "whole"),
        (48, 136, 1, "cut", "cut"),
        (49, 137, 1, "part", "part"),
        # What is shared is cut by a period of the swizzle for each CTA.
        (33, 200, 2, "cut", "whole"),
    ],
)
def test_a_box_is_whole_or_cut_to_periods_of_the_swizzle_or_to_part_of_one(
    m: int, n: int, cluster_n: int, a_box: str, b_box: str
) -> None:
    config = Config(family.NAME, 64, 144, 64, 2, cluster_n=cluster_n)
    taken = branches_of(Pair(Problem(m, n, 64), config, 132))
    assert (taken["a_box"], taken["b_box"]) == (a_box, b_box)
    assert (taken["swizzle"], taken["piece"]) == ("16", "72")


def test_the_branches_of_one_element() -> None:
    config = Config(family.NAME, 64, 8, 64, 2)
    taken = branches_of(Pair(Problem(1, 1, 1), config, 132))
    expected = {
        "m": "1",
        "n": "1",
        "k": "1",
        "a_load": "one_line",
        "b_load": "one_line",
        "c_path": "elements",
        "c_why": "ragged",
        "a_copied": "no",
        "a_box": "part",
        "b_box": "part",
        "a_policy": "first",
        "b_policy": "first",
        "units": "one",
        "ring": "part",
        "shares": "whole",
    }
    assert taken == taken | expected
