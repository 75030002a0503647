"""The ceilings' kernels and their record, without a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import evidence, gpu_ceilings
from bench.gpu_ceilings import STEPS, measured
from kernels import ceilings, nvrtc
from kernels.errors import CompilerAbsent, GpuAbsent
from kernels.process import Outcome, OutcomeKind
from kernels.sources import headers, options, unit

SOURCE = unit(ceilings.SOURCE)


class ScriptedWorker:
    """Answers each step by its name."""

    running = True

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def __enter__(self) -> ScriptedWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def call(self, function: Any, arguments: tuple[Any, ...], deadline_s: float) -> Outcome:
        answer = self._answers[function.__name__]
        if isinstance(answer, Outcome):
            return answer
        return Outcome(OutcomeKind.OK, 1.0, value=answer)


ANSWERS = {
    "copy_bandwidth": {"copy_gb_per_s": 4300.0},
    "read_bandwidth": {"read_gb_per_s": 4600.0},
    "tensor_peak": {"tensor_tflops": 900.0},
    "tensor_held": Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed"),
}


def test_the_kernels_keep_everything_in_registers_and_wgmma_in_flight() -> None:
    try:
        built = nvrtc.build("ceilings.cu", SOURCE, headers(), options())
    except CompilerAbsent as absent:
        pytest.skip(str(absent))
    assert built.cubin
    assert not re.search(r"C75\d\d", built.log), built.log  # serialised, or a wait put in
    assert built.log.count("0 bytes stack frame, 0 bytes spill stores") == 3


def test_the_host_knows_the_kernels_sizes() -> None:
    def constant(name: str) -> int:
        return int(re.search(rf"\b{name} = (\d+)", SOURCE)[1])  # type: ignore[index]

    names = {"TILE_M": "kTileM", "TILE_N": "kTileN", "TILE_K": "kTileK"}
    for ours, theirs in {**names, "WARPGROUPS": "kWarpgroups", "SLOTS": "kSlots"}.items():
        assert getattr(ceilings, ours) == constant(theirs)
    assert ceilings.SMEM_BYTES == 4 * (2 * 64 + 256) * 64 * 2 + 1024
    one = ceilings.flops_of(1)
    assert one == 2 * ceilings.ITERATIONS * 2 * 64 * 256 * 64
    assert ceilings.flops_of(132) == 132 * one


def test_what_could_not_be_measured_is_told_beside_the_rest() -> None:
    ceilings, failures = measured(ScriptedWorker(ANSWERS))  # type: ignore[arg-type]
    assert ceilings == {"copy_gb_per_s": 4300.0, "read_gb_per_s": 4600.0, "tensor_tflops": 900.0}
    assert failures == {"tensor_held": "timeout: killed"}


def test_the_record_holds_ceilings_and_protocol(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = {"device": "NVIDIA H200", "profile": "h200"}
    monkeypatch.setattr(evidence, "about", lambda commit: facts)
    held = ANSWERS | {"tensor_held": {"tensor_held_tflops": 750.0}}
    monkeypatch.setattr(gpu_ceilings, "Worker", lambda: ScriptedWorker(held))
    out = tmp_path / "ceilings.json"
    assert gpu_ceilings.main(["--out", str(out)]) == 0
    record = json.loads(out.read_text("utf-8"))
    assert record["device"] == "NVIDIA H200"
    assert set(record["ceilings"]) == {
        "copy_gb_per_s",
        "read_gb_per_s",
        "tensor_tflops",
        "tensor_held_tflops",
    }
    assert set(record["protocol"]) == {"short", "held"}
    monkeypatch.setattr(gpu_ceilings, "Worker", lambda: ScriptedWorker(ANSWERS))
    assert gpu_ceilings.main(["--out", str(out)]) == 1
    assert len(STEPS) == len(ANSWERS)


def test_without_a_gpu_it_leaves_with_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(_commit: str | None) -> dict[str, Any]:
        raise GpuAbsent("nothing to run on")

    monkeypatch.setattr(evidence, "about", absent)
    with pytest.raises(SystemExit) as caught:
        gpu_ceilings.main(["--out", str(tmp_path / "ceilings.json")])
    assert caught.value.code == 3
