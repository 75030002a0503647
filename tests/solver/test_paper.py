"""The published model on its own space: event recurrence, waves, and Z3 searching alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import oracle
from solver.config import Config
from solver.device import DeviceProfile, device_names, load_profile
from solver.engine import Engine
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import paper
from solver.objective import DEFAULT
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.proof import Prover
from solver.question import Question
from solver.units import TICKS_PER_US

A6000 = load_profile("a6000")


def test_the_space_is_four_tilings_with_one_and_two_dma_warps() -> None:
    table = paper.tabulate(Problem(512, 512, 512), A6000)
    configs = [table.config(i, i) for i in range(table.size)]
    assert {(c.tile_m, c.tile_n, c.dma_warps) for c in configs} == set(
        itertools.product((64, 128), (64, 128), (1, 2))
    )
    for c in configs:
        slot = (c.tile_m + c.tile_n) * 64 * 2
        room = A6000.limit("smem_per_block_bytes")
        assert c.stages == min(8, room // slot)


PROFILES = st.sampled_from(device_names()).map(load_profile)
EXTENTS = st.integers(1, 3000)


def published_times(
    problem: Problem, device: DeviceProfile, config: Config, divergence: float = 1.0
) -> tuple[int, int]:
    """(time, wait) in ticks by the published equations, event by event, from the constants."""
    k = {name: c.value for name, c in device.model("paper").items()}
    size = problem.element_bytes
    a, b = (t * 64 * size / k["dma_bytes_per_us"] for t in (config.tile_m, config.tile_n))
    load = round((max(a, b) if config.dma_warps == 2 else a + b) * TICKS_PER_US)
    if "math_bytes_per_us" in k:
        work = (config.tile_m + config.tile_n) * 64 * size / k["math_bytes_per_us"]
    else:
        work = config.tile_m * config.tile_n * 64 / k["math_macs_per_us"]
    math = round((k["math_startup_us"] + work) * divergence * TICKS_PER_US)
    latency = round(k["dma_startup_us"] * TICKS_PER_US)
    end: list[int] = []
    issue, wait = -load, 0
    for step in range(-(-problem.k // 64)):
        issue = max(issue + load, end[step - config.stages] if step >= config.stages else 0)
        before = end[-1] if end else 0
        start = max(before, issue + latency + load)
        wait += start - before
        end.append(start + math)
    tiles = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
    waves = -(-tiles // device.limit("sms"))
    return round(k["init_us"] * TICKS_PER_US) + waves * end[-1], waves * wait


@settings(deadline=None, max_examples=200)
@given(
    device=PROFILES,
    problem=st.builds(Problem, EXTENTS, EXTENTS, EXTENTS, st.sampled_from(("bf16", "fp16"))),
    stages=st.none() | st.integers(1, 8),
    divergence=st.sampled_from((1.0, 1.5, 4.0)),
)
def test_every_time_is_initialisation_plus_waves_of_the_published_recurrence(
    device: DeviceProfile, problem: Problem, stages: int | None, divergence: float
) -> None:
    try:
        table = paper.tabulate(problem, device, stages=stages, divergence=divergence)
    except InvalidProblem:
        smallest = (64 + 64) * 64 * problem.element_bytes
        assert stages is not None
        assert stages * smallest > device.limit("smem_per_block_bytes")
        return
    every = np.arange(table.size)
    times, waits = price(table, every, every)
    for i in range(table.size):
        expected = published_times(problem, device, table.config(i, i), divergence)
        assert (times[i], waits[i]) == expected


@settings(deadline=None, max_examples=100)
@given(device=PROFILES, m=EXTENTS, n=EXTENTS, k=EXTENTS, more=st.integers(1, 500))
def test_no_configuration_gets_faster_with_more_k(
    device: DeviceProfile, m: int, n: int, k: int, more: int
) -> None:
    tables = [paper.tabulate(Problem(m, n, depth), device) for depth in (k, k + more)]
    every = np.arange(tables[0].size)
    (short, _), (long, _) = (price(table, every, every) for table in tables)
    assert (long >= short).all()


@pytest.mark.parametrize("name", device_names())
def test_rings_are_as_deep_as_shared_memory_allows_and_no_deeper(name: str) -> None:
    device = load_profile(name)
    room = device.limit("smem_per_block_bytes")
    table = paper.tabulate(Problem(512, 512, 512), device)
    smem, stages = table.kernels.smem_bytes, table.kernels.slots
    assert (smem <= room).all()
    assert ((stages == paper.STAGES_MAX) | (smem + smem // stages > room)).all()
    assert set(table.kernels.threads) == {2 * device.wavefront, 3 * device.wavefront}


def test_stages_of_the_users_own_leave_out_tiles_they_do_not_fit() -> None:
    table = paper.tabulate(Problem(512, 512, 512), A6000, stages=6)
    tiles = {(table.config(i, i).tile_m, table.config(i, i).tile_n) for i in range(table.size)}
    assert tiles == {(64, 64)}
    with pytest.raises(InvalidProblem):
        paper.tabulate(Problem(512, 512, 512), A6000, stages=9)


def test_the_a6000_is_predicted_below_its_tensor_rate_and_above_a_tenth_of_it() -> None:
    peak = A6000.limits["tensor_tflops"].value
    for size in (2048, 4096, 8192):
        problem = Problem(size, size, size)
        table = paper.tabulate(problem, A6000)
        time_us = best_rows(table)[0].time / TICKS_PER_US
        assert peak / 10 < problem.flops / time_us / 1e6 < peak


def test_hopper_parts_are_predicted_in_the_order_of_their_tensor_rates() -> None:
    problem = Problem(8192, 8192, 8192)
    h200, datasheet, h100, h20 = (
        best_rows(paper.tabulate(problem, load_profile(name)))[0].time
        for name in ("h200", "h200_datasheet", "h100_sxm", "h20")
    )
    assert h200 == pytest.approx(datasheet, rel=0.1)
    assert h100 == pytest.approx(datasheet, rel=0.01)
    assert h20 > 2 * h100


@pytest.mark.parametrize("name", device_names())
def test_z3_alone_finds_the_pick_of_the_small_space(name: str) -> None:
    prover, profile = Prover(), load_profile(name)
    for size in ((128, 128, 128), (1024, 640, 384), (4096, 4096, 4096)):
        table = paper.tabulate(Problem(*size), profile)
        best = best_rows(table)[0]
        assert prover.search(table) == (best.work, best.kernel)
        first = oracle.first_rows(table, DEFAULT.to_dict())[0]
        assert (first.time, first.wait, first.config) == (best.time, best.wait, best.config)


def test_divergence_lengthens_compute_time_alone() -> None:
    problem = Problem(512, 512, 512)
    plain = paper.tabulate(problem, A6000).works
    diverged = paper.tabulate(problem, A6000, divergence=2.0).works
    assert (diverged.math > 1.9 * plain.math).all()
    assert (diverged.load == plain.load).all()


def test_a_stage_count_of_the_users_own_is_simulated() -> None:
    config = Config("paper", 128, 128, 64, 2, dma_warps=2)
    answer = Engine().simulate(Problem(512, 512, 4096), config, "a6000", "paper").to_dict()
    assert answer["gap_to_optimum"] >= 0
    deepest = Engine().optimize(Question(Problem(512, 512, 4096), device="a6000", model="paper"))
    assert answer["optimum"]["config"] == deepest.config.to_dict()


@pytest.mark.parametrize("device", ["a6000", "mi300x", "h200"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": "nn"}, "must be tn"),
        ({"out_dtype": "fp32"}, "must be bf16"),
        ({"out_dtype": "fp16"}, "must be bf16"),
        ({"lda": 778}, "must be 777"),
        ({"ldb": 1000}, "must be 777"),
        ({"ldc": 513}, "must be 512"),
        ({"a_offset": 1}, "must be 0"),
        ({"b_offset": 7}, "must be 0"),
        ({"c_offset": 3}, "must be 0"),
    ],
)
def test_how_operands_lie_is_unknown_to_the_published_model(
    device: str, change: dict[str, Any], words: str
) -> None:
    packed = Problem(300, 512, 777)
    assert packed == Problem(300, 512, 777, out_dtype="bf16", lda=777, ldb=777, ldc=512)
    Engine().optimize(Question(packed, device=device, model="paper", proof="none"))
    problem = Problem(300, 512, 777, **change)
    config = Config("paper", 64, 64, 64, 2)
    for ask in (
        lambda: Engine().optimize(Question(problem, device=device, model="paper")),
        lambda: Engine().simulate(problem, config, device, "paper"),
    ):
        with pytest.raises(InvalidProblem, match=f"{words} in model paper") as caught:
            ask()
        assert [caught.value.field] == list(change)


def test_a_configuration_outside_the_published_space_names_its_field() -> None:
    for field, value in (("tile_m", 256), ("stages", 9), ("dma_warps", 3), ("split_k", 2)):
        config = Config.from_dict(
            {"family": "paper", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 2}
            | {field: value}
        )
        with pytest.raises(IllegalConfig) as caught:
            paper.check(config, Problem(64, 64, 64), A6000)
        assert caught.value.field == field
