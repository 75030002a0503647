"""The evidence of calibrations, on a GPU that is the model itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels.calibration
import kernels.sweep_host
from bench import evidence, gpu_calibrate
from kernels.host import GpuUse
from kernels.verify import VerificationRequest
from solver.calibration.rows import predict_us
from solver.device import PROFILES_VARIABLE
from solver.problem import Problem
from tests.ground_truths import H200, config, off_by, write_truth
from tests.kernels.test_calibration import GPU, QUIET, FakeGpu

SEEN = Problem(16, 4096, 4096)


class FakeWorker(FakeGpu):
    """A process on that GPU, which may be halted."""

    def __init__(self) -> None:
        super().__init__(H200)

    def halt(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROFILES_VARIABLE, "")  # what the script sets is taken back
    uses: list[GpuUse] = []

    def use(uuid: str, own_contexts: int) -> GpuUse:
        """Quiet during two calibrations of two looks each; busy from then on."""
        uses.append(QUIET)
        return QUIET if len(uses) <= 4 else GpuUse(0.9, 1, (), 1980)

    monkeypatch.setattr(kernels.calibration, "gpu_use", use)
    monkeypatch.setattr(kernels.calibration, "require_gpu", lambda *_: (GPU, "h200"))
    monkeypatch.setattr(kernels.calibration, "compile_all", lambda keys, advance: {})
    monkeypatch.setattr(kernels.sweep_host, "nvrtc_version", lambda: "13.5")
    monkeypatch.setattr(evidence, "require_gpu", lambda: (GPU, "h200"))
    monkeypatch.setattr(evidence, "nvrtc_version", lambda: "13.5")
    monkeypatch.setattr(gpu_calibrate, "Worker", FakeWorker)
    monkeypatch.setattr(gpu_calibrate, "ROWS", 40)
    monkeypatch.setattr(gpu_calibrate.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(gpu_calibrate, "busy", lambda seconds: None)

    def verify(request: VerificationRequest, deadline_s: float, worker: Any) -> Any:
        row = off_by(request.problem, request.config, 0.0).row
        columns = {n: [getattr(row.config, n)] for n in row.config.to_dict() if n != "family"}
        group = SimpleNamespace(
            problem=request.problem,
            cold=True,
            columns={name: np.array(value) for name, value in columns.items()},
        )
        told = {
            "status": "passed",
            "problem": request.problem.to_dict(),
            "config": request.config.to_dict(),
            "protocol": {"cache": "cold"},
            "median_us": float(predict_us(group, H200)[0]),  # type: ignore[arg-type]
        }
        return SimpleNamespace(to_dict=lambda: told)

    monkeypatch.setattr(gpu_calibrate, "verify", verify)


def test_the_record_says_what_was_learnt_cured_and_refused(host: None, tmp_path: Path) -> None:
    (tmp_path / "h200").mkdir()
    write_truth(tmp_path / "h200", [off_by(SEEN, config(64, stages), 0.0) for stages in (2, 3, 4)])
    out = tmp_path / "calibration.json"
    assert gpu_calibrate.main(["--out", str(out), "--results", str(tmp_path)]) == 0
    record = json.loads(out.read_text("utf-8"))
    scratch = record["from_scratch"]
    assert scratch["status"] == "stored"
    assert scratch["error"] < 0.06 < 0.1 < scratch["error_present"]
    assert scratch["error_committed"] < 0.03  # the GPU here is the committed profile
    before = scratch["ground_truth_before"]["fitted"]["llm"]["mean_ape"]
    assert scratch["ground_truth"]["fitted"]["llm"]["mean_ape"] < before
    cured = record["cured"]
    assert cured["status"] == "stored"
    assert (cured["drift_before"]["found"], cured["drift"]["found"]) == (True, False)
    assert (
        len(cured["drift"]["ratios"]) == cured["drift"]["problems"] == len(gpu_calibrate.PROBLEMS)
    )
    assert record["shared"]["reason"] == "gpu_shared"
    assert record["shared_later"]["status"] == "refused"
    assert os.environ[PROFILES_VARIABLE]


def test_drift_is_told_anew_of_a_records_ratios(tmp_path: Path) -> None:
    """A record whose drift another rule had told."""
    off, cured = [0.73] * 10 + [1.0] * 8, [1.02] * 18
    record = {
        "from_scratch": {"status": "stored"},
        "cured": {
            "status": "stored",
            "drift_before": {"found": False, "ratios": off},
            "drift": {"found": True, "ratios": cured},
        },
        "shared": {"status": "refused"},
        "shared_later": {"status": "refused"},
    }
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(record), "utf-8")
    assert gpu_calibrate.main(["--read", str(old), "--out", str(new)]) == 0
    told = json.loads(new.read_text("utf-8"))["cured"]
    assert (told["drift_before"]["found"], told["drift"]["found"]) == (True, False)
    assert told["drift_before"]["ratios"] == off
    record["cured"]["drift"]["ratios"] = off  # type: ignore[index]
    old.write_text(json.dumps(record), "utf-8")
    assert gpu_calibrate.main(["--read", str(old), "--out", str(new)]) == 1


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"cured": {"drift_before": {}}}', "[" * 100_000),
        *(
            f'{{"cured": {{"drift_before": {{"ratios": {ratios}}}}}}}'
            for ratios in ("[NaN]", "[Infinity]", "[0]", '["1"]', "5", "null", '"1"')
        ),
    ],
)
def test_a_file_that_is_no_record_is_named(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no_record.json"
    path.write_text(content, "utf-8")
    with pytest.raises(SystemExit) as ended:
        gpu_calibrate.main(["--read", str(path), "--out", str(tmp_path / "out.json")])
    assert ended.value.code == 2
    assert "no_record.json is no record" in capsys.readouterr().err
