"""A short calibration on the GPU: every step is real, and what comes out predicts fresh rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.calibrate import main
from kernels.calibration import Asked, calibrate
from kernels.host import gpu_use
from kernels.process import OutcomeKind, Worker
from kernels.verify import require_gpu
from kernels.worker import device_facts
from solver.device import parse_profile, shipped_text


@pytest.mark.timeout(600)
def test_a_calibration_from_scratch_predicts_this_gpu(worker: Worker, device: str) -> None:
    steps: list[str] = []
    found = calibrate(Asked(scratch=True, rows=80), worker, lambda step, *_: steps.append(step))
    assert found.text is not None, found.refusal
    assert list(dict.fromkeys(steps)) == ["look", "ceilings", "design", "compile", "measure", "fit"]
    record = found.record
    assert record["fitted_error_before"] > 1.5 * record["fitted_error"]
    assert record["error"] < 0.12
    profile = parse_profile(found.text)
    assert profile.name == device
    assert profile.calibration is not None
    assert profile.calibration["uuid"] == require_gpu()[0].uuid
    refusal = found.refusal  # the shipped profile is of thousands of rows: most often it is better
    assert refusal is None or refusal.reason == "predicts_worse"


@pytest.mark.timeout(600)
def test_the_command_of_a_bare_host_starts_from_the_present_profile(
    tmp_path: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile.json"
    code = main(["--rows", "60", "--out", str(out)])
    record = json.loads(capsys.readouterr().out)
    assert code == (0 if record["status"] == "stored" else 1)
    assert out.exists() is (code == 0)
    if code:
        assert record["reason"] == "predicts_worse", record
    assert record["device"] == parse_profile(shipped_text(device)).name


def test_nvml_tells_how_a_gpu_is_used(worker: Worker) -> None:
    warm = worker.call(device_facts, (), 120.0)  # has a context from here on, and waits
    assert warm.kind is OutcomeKind.OK, warm
    use = gpu_use(require_gpu()[0].uuid, own_contexts=0)
    assert use.highest_clock_mhz is not None
    assert use.highest_clock_mhz > 500
    assert use.busy is not None
    assert 0 <= use.busy <= 1
