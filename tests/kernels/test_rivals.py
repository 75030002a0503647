"""Comparing with other libraries without a GPU: agreement, choosing, what is recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.measure as measuring
import kernels.race as racing
import kernels.rivals as rivals
import kernels.session as sessions
import kernels.sides as sides
from kernels.agreement import disagreement
from kernels.bits import from_float32, to_float32
from kernels.inputs import normal
from kernels.placed import place_operands
from kernels.protocol import BENCH, CHOICE
from kernels.replay import Side
from kernels.rival import Candidate, RivalAbsent
from kernels.rivals import RivalTask, run_rival
from kernels.statistics import RatioInterval, Timing
from kernels.triton_rival import why_not
from solver.config import Config
from solver.problem import Problem
from tests.kernels.numpy_reference import numpy_product

PROBLEM = Problem(48, 40, 64)
CONFIG = Config("sm90_gemm", 64, 64, 64, 3)


def outputs(problem: Problem, change: float = 0.0) -> tuple[Any, Any]:
    """A product, rounded, and the same with partial sums rounded to C's type and one element
    changed by so many standard deviations."""
    a = normal(np, problem.m, problem.k, problem.dtype, 1, 0)
    b = normal(np, problem.n, problem.k, problem.dtype, 1, 1)
    half = problem.k // 2

    def rounded(values: Any) -> Any:
        return from_float32(np, values.astype(np.float32), problem.out)

    whole = rounded(numpy_product(a, b, problem.dtype))
    parts = [
        numpy_product(a[:, s], b[:, s], problem.dtype) for s in (slice(half), slice(half, None))
    ]
    from kernels.bits import to_float32

    rough = sum(to_float32(np, rounded(part), problem.out).astype(np.float64) for part in parts)
    rough[3, 5] += change * problem.k**0.5
    return whole, rounded(rough)


@pytest.mark.parametrize("out", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("k", [16, 1000, 9000])
def test_outputs_that_differ_by_rounding_agree(out: str, k: int) -> None:
    problem = Problem(60, 72, k, "fp16" if out == "fp16" else "bf16", out_dtype=out)
    wanted, got = outputs(problem)
    assert disagreement(np, got, wanted, out, k) is None
    assert disagreement(np, wanted, got, out, k) is None


@pytest.mark.parametrize("out", ["bf16", "fp32"])
def test_one_wrong_element_is_told(out: str) -> None:
    problem = Problem(60, 72, 1000, out_dtype=out)
    wanted, got = outputs(problem, change=0.5)
    assert disagreement(np, got, wanted, out, 1000) == "1 of 4320 elements differ from ours"


def test_an_element_that_was_never_written_is_told() -> None:
    wanted, got = outputs(PROBLEM)
    got[0, 0] = 0x7FE1
    assert "1 of 1920 elements" in str(disagreement(np, got, wanted, "bf16", 64))


def test_many_small_errors_are_told() -> None:
    wanted, _ = outputs(Problem(60, 72, 1000))
    got = from_float32(np, to_float32(np, wanted, "bf16") * np.float32(1.02), "bf16")
    assert "differs from ours by" in str(disagreement(np, got, wanted, "bf16", 1000))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem(64, 64, 64), None),
        (Problem(64, 64, 64, lda=72, ldb=128, ldc=72), None),
        (Problem(1, 4096, 4096, out_dtype="fp32"), None),
        (Problem(64, 64, 64, layout="tt"), "contiguous in k"),
        (Problem(64, 63, 64), "C does not lie"),
        (Problem(64, 64, 63), "A does not lie"),
        (Problem(64, 64, 64, ldb=65), "B does not lie"),
        (Problem(64, 64, 64, a_offset=1), "A does not lie"),
        (Problem(1, 64, 64, lda=65), "A does not lie"),
    ],
)
def test_triton_is_asked_for_what_tma_takes(problem: Problem, words: str | None) -> None:
    reason = why_not(problem)
    assert (reason is None) if words is None else (words in str(reason))


class Scene:
    """A GPU process in which rivals write into numpy memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sets = [place_operands(np, PROBLEM) for _ in range(2)]
        self.wanted, _ = outputs(PROBLEM)
        self.candidates: list[Candidate] = []
        self.races: list[Any] = []
        self.compared: list[Any] = []
        stream = SimpleNamespace(synchronize=lambda: None)
        monkeypatch.setattr(sessions, "session", lambda: SimpleNamespace(stream=stream))
        monkeypatch.setattr(sides, "kernel_of", lambda *_: None)
        monkeypatch.setattr(sides, "input_sets", lambda *_: (self.sets, False))
        monkeypatch.setattr(sides, "own_side", self._own_side)
        monkeypatch.setattr(racing, "race", self._race)
        monkeypatch.setattr(measuring, "measure", self._measure)
        monkeypatch.setattr(rivals, "_candidates", self._candidates)
        monkeypatch.setattr(rivals, "_CHOSEN", {})
        monkeypatch.setitem(sys.modules, "cupy", np)

    def add(self, name: str, output: Any = None, absent: str | None = None) -> None:
        def products(some: Any) -> Any:
            def enqueue() -> None:
                if absent is not None:
                    raise RivalAbsent(absent)
                for operands in some:
                    operands.c.view[...] = self.wanted if output is None else output

            return enqueue

        self.candidates.append(Candidate({"name": name}, products))

    def _own_side(self, *arguments: Any) -> Side:
        some = arguments[-1]

        def enqueue() -> None:
            for operands in some:
                operands.c.view[...] = self.wanted

        return Side(enqueue, len(some))

    def _race(self, session: Any, raced: Any, protocol: Any, flush: bool) -> Any:
        self.races.append((len(raced), protocol))
        return SimpleNamespace(winner=len(raced) - 1)

    def _measure(self, session: Any, compared: Any, protocol: Any, flush: bool) -> Any:
        self.compared.append(protocol)
        timing = Timing(6.0, 6.1, 6.2, 20, 40, 5.9, 6.1)
        return SimpleNamespace(
            timings=(timing, timing), ratio=RatioInterval(1.2, 1.19, 1.21, 20, None)
        )

    @contextmanager
    def _candidates(self, *_: Any) -> Iterator[list[Candidate]]:
        yield self.candidates


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def task(config: Config = CONFIG) -> RivalTask:
    return RivalTask(PROBLEM, config, "h200", BENCH, "triton")


def test_the_fastest_of_those_that_agree_is_timed_afresh(scene: Scene) -> None:
    scene.add("right")
    scene.add("wrong", scene.wanted + np.uint16(64))
    scene.add("too large", absent="out of shared memory")
    scene.add("right too")
    found = run_rival(task())
    assert (found.time_us, found.ratio, found.low, found.high) == (6.0, 1.2, 1.19, 1.21)
    assert (found.how, found.tried, found.named) == ({"name": "right too"}, 2, 4)
    assert found.refused[0].startswith("name wrong: ")
    assert found.refused[1] == "name too large: out of shared memory"
    assert scene.races == [(2, CHOICE)]
    assert scene.compared == [BENCH]
    json.dumps(found.to_fields("triton"))


def test_a_problem_is_tuned_once_in_a_process(scene: Scene) -> None:
    scene.add("a")
    scene.add("b")
    first = run_rival(task())
    second = run_rival(task(Config("sm90_gemm", 128, 64, 64, 3)))
    assert len(scene.races) == 1
    assert (second.how, second.tried, second.named) == (first.how, 2, 2)


def test_nothing_that_agrees_is_a_note(scene: Scene) -> None:
    scene.add("wrong", scene.wanted + np.uint16(64))
    found = run_rival(task())
    assert found.time_us is None
    assert "differ from ours" in str(found.note)
    assert scene.races == []
