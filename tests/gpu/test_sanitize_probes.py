"""The kernels that show what racecheck can't follow hand over what was put, on a GPU."""

from __future__ import annotations

import pytest

from bench.sanitize_probes import PROBES, launch_probe
from kernels.process import OutcomeKind, run_in_process

pytestmark = pytest.mark.gpu
START_S = 60.0


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_hands_over_what_was_put(name: str) -> None:
    outcome = run_in_process(launch_probe, (name,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
