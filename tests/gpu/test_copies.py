"""Aligned copies of operands against what they copy, whatever the line, the shift and the gap."""

from __future__ import annotations

import itertools

import pytest

from kernels.process import OutcomeKind, run_in_process
from tests.gpu import gpu_functions as functions

pytestmark = pytest.mark.gpu
START_S = 120.0
LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 23, 25, 1023, 1024, 1025, 1031, 2049, 300_001)


def test_copies_hold_every_element_and_touch_nothing_else() -> None:
    cases = [
        (lines, length, length + gap, offset)
        for length in LENGTHS
        for lines, gap, offset in itertools.product((1, 2, 5), (0, 1, 8, 9), range(8))
    ]
    outcome = run_in_process(functions.wrong_copies, (cases,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert outcome.value["copied"] > len(cases) / 2
    assert outcome.value["wrong"] == []
