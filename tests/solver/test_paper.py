"""The published model on its own space: event recurrence, waves, and Z3 searching alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from solver.brute_force import brute_force
from solver.config import Config
from solver.device import device_names, load_profile
from solver.engine import Engine, Question
from solver.errors import IllegalConfig
from solver.families import paper
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.proof import Prover
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


def test_a_time_is_initialisation_plus_waves_of_the_published_recurrence() -> None:
    problem = Problem(1024, 896, 640)
    table = paper.tabulate(problem, A6000)
    every = np.arange(table.size)
    times, waits = price(table, every, every)
    k = {name: c.value for name, c in A6000.model("paper").items()}
    for i in range(table.size):
        c = table.config(i, i)
        a, b = (t * 64 * 2 / k["dma_bytes_per_us"] for t in (c.tile_m, c.tile_n))
        load = round((max(a, b) if c.dma_warps == 2 else a + b) * TICKS_PER_US)
        work = (c.tile_m + c.tile_n) * 64 * 2 / k["math_bytes_per_us"]
        math = round((k["math_startup_us"] + work) * TICKS_PER_US)
        latency = round(k["dma_startup_us"] * TICKS_PER_US)
        end: list[int] = []
        issue, wait = -load, 0
        for step in range(-(-problem.k // 64)):
            issue = max(issue + load, end[step - c.stages] if step >= c.stages else 0)
            before = end[-1] if end else 0
            start = max(before, issue + latency + load)
            wait += start - before
            end.append(start + math)
        tiles = -(-problem.m // c.tile_m) * -(-problem.n // c.tile_n)
        waves = -(-tiles // A6000.limit("sms"))
        assert times[i] == round(k["init_us"] * TICKS_PER_US) + waves * end[-1]
        assert waits[i] == waves * wait


@pytest.mark.parametrize("name", device_names())
def test_z3_alone_finds_the_pick_of_the_small_space(name: str) -> None:
    prover, profile = Prover(), load_profile(name)
    for size in ((128, 128, 128), (1024, 640, 384), (4096, 4096, 4096)):
        table = paper.tabulate(Problem(*size), profile)
        best = best_rows(table)[0]
        assert prover.search(table) == (best.work, best.kernel)
        assert brute_force(table) == (best.time, best.wait, best.config)


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


def test_a_configuration_outside_the_published_space_names_its_field() -> None:
    for field, value in (("tile_m", 256), ("stages", 9), ("dma_warps", 3), ("split_k", 2)):
        config = Config.from_dict(
            {"family": "paper", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 2}
            | {field: value}
        )
        with pytest.raises(IllegalConfig) as caught:
            paper.check(config, Problem(64, 64, 64), A6000)
        assert caught.value.field == field
