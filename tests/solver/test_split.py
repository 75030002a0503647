"""What is held out is fixed, is no more than was said, and is never fitted."""

from __future__ import annotations

import numpy as np
import pytest

from solver.config import Config
from solver.device import load_profile
from solver.problem import Problem
from solver.split import (
    FORM,
    SPLITS,
    held_out,
    held_out_forms,
    is_form_held_out,
    is_held_out,
)
from solver.suites import load_suite
from solver.sweep_design import cold_problems, paper_rows

# Fixed before any row was measured: another hash would let the fit see what it must not.
HELD_OUT_SHAPES = ((1, 4096, 4096), (64, 4096, 4096), (128, 128, 256))
SEEN_SHAPES = ((16, 4096, 4096), (4096, 4096, 4096), (128, 128, 128))
HELD_OUT_FORMS = ((64, 16, 64, 1, 1, 1), (128, 16, 64, 2, 1, 1))
SEEN_FORMS = ((64, 64, 64, 1, 1, 1), (128, 128, 64, 1, 1, 1))


def form(config: Config) -> tuple[int, ...]:
    return tuple(getattr(config, name) for name in FORM)


def test_the_split_by_shape_stays_as_it_is() -> None:
    assert [is_held_out(*shape) for shape in HELD_OUT_SHAPES] == [True] * 3
    assert [is_held_out(*shape) for shape in SEEN_SHAPES] == [False] * 3
    assert sum(is_held_out(p.m, p.n, p.k) for p in load_suite("paper")) == 161
    held = {
        suite: sum(is_held_out(p.m, p.n, p.k) for p in problems)
        for suite, problems in cold_problems(2).items()
    }
    assert held == {"llm": 28, "odd": 9, "varied": 11, "unaligned": 3}


def test_the_split_by_configuration_stays_as_it_is_and_holds_out_none_of_the_papers() -> None:
    assert [is_form_held_out(each) for each in HELD_OUT_FORMS] == [True] * 2
    assert [is_form_held_out(each) for each in SEEN_FORMS] == [False] * 2
    forms = {form(row.config) for row in paper_rows(load_profile("h200"))}
    assert len(forms) == 4
    assert not any(map(is_form_held_out, forms))


def test_a_form_is_held_out_with_every_ring_and_warp() -> None:
    tile = dict(zip(FORM, HELD_OUT_FORMS[0], strict=True))
    columns = {name: np.array([value] * 3) for name, value in tile.items()}
    columns |= {"stages": np.array([3, 4, 5]), "dma_warps": np.array([1, 2, 1])}
    assert held_out_forms(columns).tolist() == [True] * 3


@pytest.mark.parametrize("shape", [HELD_OUT_SHAPES[0], SEEN_SHAPES[0]])
def test_every_row_is_held_out_for_one_reason_or_fitted(shape: tuple[int, int, int]) -> None:
    forms = [*HELD_OUT_FORMS, *SEEN_FORMS]
    columns = {name: np.array([each[i] for each in forms]) for i, name in enumerate(FORM)}
    masks = held_out(Problem(*shape), columns)
    assert tuple(masks) == SPLITS
    reasons = np.sum([masks[name] for name in SPLITS], axis=0)
    assert reasons.max() <= 1
    whole = is_held_out(*shape)
    assert reasons.astype(bool).tolist() == [True, True, whole, whole]
    assert masks["both"].tolist() == [whole, whole, False, False]
    assert masks["configuration"].tolist() == [not whole, not whole, False, False]
