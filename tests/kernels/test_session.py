"""Memory for timing, carved from pools: numpy in CuPy's place."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.session as sessions
from kernels.bits import to_float32
from kernels.placed import Placed
from kernels.session import Session
from solver.problem import Problem

PROBLEM = Problem(30, 20, 50, "fp16", "nt", "fp32", 33, 24, 21, 1, 5, 3)


class NumpyAsCupy:
    """numpy, with what the pools ask of CuPy's memory."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def get_default_memory_pool() -> Any:
        return SimpleNamespace(free_all_blocks=lambda: None)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(sessions, "cp", NumpyAsCupy())
    monkeypatch.setattr(sessions, "_PATTERN_ELEMENTS", 1000)
    monkeypatch.setattr(sessions, "_POOL_STEP", 1 << 12)
    made: Session = object.__new__(Session)
    made._inputs, made._outputs, made._flush_buffer = {}, None, None
    return made


def span(placed: Placed) -> range:
    size = placed.matrix.elements * placed.matrix.element_bytes
    return range(placed.address, placed.address + size)


@pytest.mark.parametrize("problem", [PROBLEM, Problem(30, 20, 50), Problem(1, 1, 1, "bf16", "tt")])
def test_every_set_lies_where_the_problem_says_and_apart_from_the_others(
    session: Session, problem: Problem
) -> None:
    sets = session.operand_sets(problem, 7)
    placed = [x for s in sets for x in (s.a, s.b, s.c)]
    for x in placed:
        assert x.address % 16 == x.matrix.offset * x.matrix.element_bytes
        start = x.buffer.ctypes.data
        assert start <= span(x)[0] <= span(x)[-1] < start + x.buffer.nbytes
    ordered = sorted((span(x) for x in placed), key=lambda bytes_: bytes_.start)
    assert all(before.stop <= after.start for before, after in pairwise(ordered))
    assert [s.a.view.shape for s in sets] == [(problem.m, problem.k)] * 7
    assert [s.b.view.shape for s in sets] == [(problem.n, problem.k)] * 7
    assert [s.c.view.shape for s in sets] == [(problem.m, problem.n)] * 7


def test_inputs_are_finite_numbers_of_their_type_and_differ_from_set_to_set(
    session: Session,
) -> None:
    sets = session.operand_sets(PROBLEM, 3)
    values = [to_float32(np, s.a.view, "fp16") for s in sets]
    assert all(np.isfinite(v).all() and v.std() > 0.8 for v in values)
    assert not np.array_equal(values[0], values[1])


def test_the_pools_grow_and_are_kept(session: Session) -> None:
    session.operand_sets(PROBLEM, 1)
    first = session._inputs["fp16"]
    session.operand_sets(PROBLEM, 1)
    assert session._inputs["fp16"] is first
    session.operand_sets(PROBLEM, 20)
    assert session._inputs["fp16"].nbytes > first.nbytes
    session.release()
    assert not session._inputs


def test_wide_and_narrow_outputs_share_one_pool(session: Session) -> None:
    wide = session.operand_sets(PROBLEM, 1)[0].c
    narrow = session.operand_sets(Problem(30, 20, 50), 1)[0].c
    assert (wide.buffer.itemsize, narrow.buffer.itemsize) == (4, 2)
    assert wide.buffer.ctypes.data == narrow.buffer.ctypes.data
