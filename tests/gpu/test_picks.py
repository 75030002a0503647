"""Picks on the GPU: timed against others and, where Z3 and pydantic are, locked and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.process import Worker
from kernels.verify import VerificationRequest, verify
from solver.config import Config
from solver.problem import Problem

PROBLEM = Problem(512, 4096, 4096)
PICK = Config("sm90_gemm", 128, 128, 64, 4, math_warpgroups=2)
SLOW = Config("sm90_gemm", 64, 64, 64, 2)


def test_a_configuration_is_timed_next_to_the_fastest_of_others(worker: Worker) -> None:
    request = VerificationRequest(PROBLEM, PICK, against=(SLOW, Config("sm90_gemm", 64, 8, 64, 2)))
    result = verify(request, 120, worker)
    assert result.passed, result.details
    assert result.median_low_us is not None
    assert result.median_us is not None
    assert result.median_high_us is not None
    assert result.median_low_us <= result.median_us <= result.median_high_us
    against = result.against
    assert against is not None
    assert against["failure"] is None
    assert against["config"] == SLOW.to_dict()
    assert 1 < against["low"] <= against["ratio"] <= against["high"]
    assert len(against["tried"]) == 2


def test_a_slow_configuration_is_found_out(worker: Worker) -> None:
    result = verify(VerificationRequest(PROBLEM, SLOW, against=(PICK,)), 120, worker)
    assert result.passed, result.details
    assert result.against is not None
    assert result.against["high"] < 1


def test_picks_are_locked_with_their_times_and_hold(tmp_path: Path, device: str) -> None:
    pytest.importorskip("pydantic", reason="the command line needs what a bare GPU host lacks")
    pytest.importorskip("z3", reason="the command line needs what a bare GPU host lacks")
    from app.cli.main import main

    path = tmp_path / "picks.toml"
    path.write_text(
        f'device = "{device}"\n[tolerances]\ntime = 0.1\nregret = 0.5\ntop_k = 3\n'
        '[[problems]]\nname = "a"\nm = 512\nn = 4096\nk = 4096\n'
        '[[problems]]\nname = "b"\nm = 16\nn = 4096\nk = 4096\ncache = "warm"\n',
        "utf-8",
    )
    assert main(["lock", str(path), "--gpu"]) == 0
    lock = path.with_name("picks.lock.json")
    document = json.loads(lock.read_text("utf-8"))
    assert all(pick["measured"]["time_us"] > 0 for pick in document["picks"])
    assert main(["check", str(path), "--static", "--gpu"]) == 0
    # A lock whose times no kernel can keep: the pick is slower than that, beside cuBLAS too.
    for pick in document["picks"]:
        measured = pick["measured"]
        for name in ("time_us", "low_us", "high_us"):
            measured[name] /= 2
        measured["reference"] = None
    lock.write_text(json.dumps(document), "utf-8")
    assert main(["check", str(path), "--gpu"]) == 1
