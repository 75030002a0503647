"""The scripts that make the GPU's evidence, without a GPU."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bench import (
    evidence,
    gpu_hangs,
    gpu_large,
    gpu_long_k,
    gpu_pairs,
    gpu_sanitize,
    gpu_soak,
    gpu_tests,
)
from bench.branch_pairs import on_sms, pairs
from bench.branches import Pair
from bench.evidence import Crew, begin, crew_parser_of, failure, parser_of, record
from bench.evidence_page import long_k_line
from bench.gpu_extremes import check_huge
from bench.gpu_large import CHECKED, EXTREME, LargeFindings
from bench.gpu_pairs import PairFindings, batches
from bench.gpu_soak import SoakFindings, scalars, soaked
from bench.gpu_work import CHECKSUM, check_pair, errors_of, long_sums, soak_pair
from kernels import nvrtc
from kernels.errors import GpuAbsent, NoKernelFamily
from kernels.launch_plan import plan_launch
from kernels.process import Outcome, OutcomeKind
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm_operands import copy_bytes
from solver.problem import Problem

DEVICE = load_profile("h200")
PAIR = Pair(Problem(64, 64, 64), Config(family.NAME, 64, 64, 64, 3), 4)
RIGHT = {"details": "", "draws": 1, "k_coverage": 1.0, "rel_error": 1e-3}
WRONG = {**RIGHT, "details": "exact round: 1 of 4096 elements wrong"}
SCRIPTS = (gpu_hangs, gpu_large, gpu_long_k, gpu_pairs, gpu_sanitize, gpu_soak, gpu_tests)
HUNG = Outcome(OutcomeKind.TIMEOUT, 1.0, message="killed at its deadline of 60 s")


def ok(value: dict[str, Any]) -> Outcome:
    return Outcome(OutcomeKind.OK, 0.1, value=value)


def test_a_call_that_hangs_is_reported_and_the_others_go_on() -> None:
    seen: list[tuple[tuple[Any, ...], OutcomeKind]] = []
    crew = Crew(size=2, deadline_s=1.0)
    calls = [[(0.0,), (60.0,), (0.01,)], [(0.02,), (0.03,)]]
    assert crew.run(time.sleep, calls, lambda arguments, got: seen.append((arguments, got.kind)))
    assert dict(seen)[(60.0,)] is OutcomeKind.TIMEOUT
    assert [kind for _, kind in seen].count(OutcomeKind.OK) == 4


def test_no_call_begins_once_the_budget_is_gone() -> None:
    seen: list[Any] = []
    assert not Crew(1, 1.0, budget_s=0.0).run(time.sleep, [[(0.0,)]], lambda *x: seen.append(x))
    assert seen == []


def test_what_done_raises_ends_the_run() -> None:
    def refuse(_arguments: tuple[Any, ...], _outcome: Outcome) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Crew(2, 5.0).run(time.sleep, [[(0.0,)], [(0.0,)]], refuse)


class Durations:
    """Findings of a run of ``time.sleep``."""

    def __init__(self) -> None:
        self.failed = 0
        self.slept: list[float] = []

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        self.failed += outcome.kind is not OutcomeKind.OK
        self.slept.append(arguments[0])

    def to_dict(self) -> dict[str, Any]:
        return {"slept": sorted(self.slept), "failed": self.failed}


@pytest.mark.parametrize(
    ("longest", "budget_s", "code", "complete"),
    [(0.0, 60.0, 0, True), (60.0, 60.0, 1, True), (0.0, 0.0, 1, False)],
)
def test_a_run_leaves_a_record(
    tmp_path: Path, longest: float, budget_s: float, code: int, complete: bool
) -> None:
    out = tmp_path / "made" / "record.json"
    chosen = argparse.Namespace(out=out, seed=3, workers=1, budget_s=budget_s)
    facts = {"device": "a device"}
    assert record(chosen, facts, time.sleep, [[(0.0,), (longest,)]], 1.0, Durations()) == code
    written = json.loads(out.read_text("utf-8"))
    assert written["complete"] is complete
    assert written["seed"] == 3
    assert written["device"] == "a device"
    assert written["slept"] == ([0.0, longest] if complete else [])


def test_a_script_begins_with_what_was_chosen_the_facts_and_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "about", lambda commit: {"profile": "h20", "commit": commit})
    parser = crew_parser_of("gpu_script", "Words.", workers=3)
    chosen, facts, device = begin(parser, ["--out", "x.json", "--commit", "abc"])
    assert (chosen.out, chosen.workers, chosen.seed) == (Path("x.json"), 3, 1)
    assert (facts["commit"], device.name) == ("abc", "h20")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("error", [GpuAbsent, NoKernelFamily])
def test_a_script_without_a_gpu_says_so_and_leaves_with_3(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    script: ModuleType,
    error: type[Exception],
) -> None:
    def absent(_commit: str | None) -> dict[str, Any]:
        raise error("nothing to run on")

    monkeypatch.setattr(evidence, "about", absent)
    out = tmp_path / "record.json"
    with pytest.raises(SystemExit) as caught:
        script.main(["--out", str(out)])
    assert caught.value.code == 3
    assert capsys.readouterr().err == "error: nothing to run on\n"
    assert not out.exists()


def test_arguments_that_are_wrong_are_2() -> None:
    with pytest.raises(SystemExit) as caught:
        begin(parser_of("gpu_script", None), [])
    assert caught.value.code == 2


def test_a_failure_has_its_reason() -> None:
    assert failure(ok(RIGHT)) is None
    assert failure(ok(WRONG)) == {"reason": "wrong_result", "details": WRONG["details"]}
    assert failure(HUNG) == {"reason": "timeout", "details": HUNG.message}


def test_pairs_of_one_kernel_go_to_one_process_in_order_with_seeds_of_their_own() -> None:
    drawn = pairs(300, 1, DEVICE)
    made = batches(drawn, "h200", 1)
    assert sorted(call[1] for batch in made for call in batch) == [
        1_000_003 + index for index in range(300)
    ]
    assert all(len({pair.key for pair, _, _ in batch}) == 1 for batch in made)
    assert len(made) == len({pair.key for pair in drawn})


def test_the_record_of_pairs_counts_branches_and_names_what_failures_share() -> None:
    drawn = pairs(200, 1, DEVICE)
    findings = PairFindings(DEVICE)
    for index, pair in enumerate(drawn):
        bad = pair.key.layout == "nt" and pair.config.cluster_m == 2
        findings.add(
            (pair, index, "h200"), HUNG if bad and index % 2 else ok(WRONG if bad else RIGHT)
        )
    made = findings.to_dict()
    json.dumps(made, allow_nan=False)
    assert made["checked"] == 200
    assert made["failed"] == findings.failed == len(made["failures"]) > 2
    assert {"layout=nt", "cluster=2x1"} <= set(made["failures_share"])
    assert made["branches"]["layout=nt"] == sum(p.key.layout == "nt" for p in drawn)
    assert 0 < made["meetings_met"] < made["meetings_wanted"]
    assert made["rel_error_max"] == dict.fromkeys(("bf16", "fp16", "fp32"), 1e-3)
    first = made["failures"][0]
    assert Problem(**first["problem"]) in {p.problem for p in drawn}
    assert Config.from_dict(first["config"])


def test_soaked_pairs_use_every_sm_and_are_legal() -> None:
    chosen = soaked(DEVICE, 1)
    assert 10 <= len(chosen) <= 30
    for pair in chosen:
        assert pair.sms == DEVICE.limit("sms")
        legality.check(pair.config, pair.problem, DEVICE)
    assert scalars(0, 1) == (1.0, 0.0)
    assert scalars(1, 1)[1] != 0


def test_the_checksum_compiles() -> None:
    options = ("--gpu-architecture=sm_90", "--std=c++17")
    built = nvrtc.build("checksum.cu", CHECKSUM.read_text("utf-8"), {}, options)
    assert built.cubin, built.log


def test_the_record_of_a_soak_has_a_row_for_each_pair() -> None:
    findings = SoakFindings()
    arguments = (PAIR, 5000, 1.0, 0.0, 7, "h200")
    findings.add(arguments, ok({"launches": 5000, "rel_error": 1e-3, "details": ""}))
    findings.add(arguments, ok({"launches": 5000, "rel_error": None, "details": "2 launches"}))
    findings.add(arguments, HUNG)
    made = findings.to_dict()
    assert [row["reason"] for row in made["rows"]] == [None, "wrong_result", "timeout"]
    assert (made["failed"], made["launches"]) == (2, 10_000)


@pytest.mark.parametrize("name", [*CHECKED, *EXTREME])
def test_large_problems_are_legal_and_pass_two_to_the_31(name: str) -> None:
    problem, config = {**CHECKED, **EXTREME}[name]
    legality.check(config, problem, DEVICE)
    matrices = (problem.a, problem.b, problem.c)
    assert max(x.pitch * x.lines for x in matrices) >= 2**31 - 8
    assert problem.storage_bytes + copy_bytes(problem) < 100e9


def test_large_problems_copy_more_than_two_to_the_31_elements_too() -> None:
    copied = [problem for problem, _ in CHECKED.values() if copy_bytes(problem) > 2**32]
    assert len(copied) >= 4


def test_the_record_of_large_problems_has_a_row_for_each() -> None:
    findings = LargeFindings()
    findings.add(("A", False, PAIR, 1, "h200"), ok(RIGHT))
    findings.add(("B", True, PAIR, 1, "h200"), ok(WRONG))
    made = findings.to_dict()
    assert [(row["name"], row["reason"]) for row in made["rows"]] == [
        ("A", None),
        ("B", "wrong_result"),
    ]


def test_long_sums_are_of_every_k_whole_and_split() -> None:
    made = gpu_long_k.cases(gpu_long_k.K, DEVICE)
    assert [(pair.problem.k, pair.config.split_k) for pair in made] == [
        (k, split_k) for k in (4096, 16_384, 65_536) for split_k in (1, 4)
    ]
    for pair in made:
        assert pair.problem == Problem(128, 128, pair.problem.k, out_dtype="fp32")
        plan = plan_launch(pair.problem, pair.config, pair.sms)
        assert plan.grid == pair.config.split_k


def test_a_k_too_short_to_be_split_is_a_wrong_argument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(evidence, "about", lambda commit: {"profile": "h200"})
    with pytest.raises(SystemExit) as caught:
        gpu_long_k.main(["--out", str(tmp_path / "record.json"), "--k", "4096", "64"])
    assert caught.value.code == 2
    assert "argument --k: split_k: must be at most ceil(k / tile_k); got 4" in (
        capsys.readouterr().err
    )


def test_errors_are_relative_to_the_reference() -> None:
    reference = np.array([[3.0, -4.0], [0.0, 5.0]])
    bits = np.array([[3.0, -3.5], [0.0, 5.0]], np.float32).view(np.uint32)
    rms = np.sqrt(50 / 4)
    figures = errors_of(np, bits, reference)
    assert figures == pytest.approx({"rel_error": 0.25 / rms, "max_error": 0.5 / rms})
    nan = np.full((2, 2), np.nan, np.float32).view(np.uint32)
    assert errors_of(np, nan, reference) == {"rel_error": None, "max_error": None}


def test_the_record_of_long_sums_has_a_row_for_each_and_is_shown() -> None:
    findings = gpu_long_k.LongFindings()
    long, short = (gpu_long_k.cases([k], DEVICE) for k in (16_384, 4096))
    theirs = {"library": "cuBLAS", "rel_error": 1.5e-6, "max_error": 8e-6}
    value = {"rel_error": 4.5e-6, "max_error": 2e-5, "limit": 1e-5, "cublas": theirs, "details": ""}
    findings.add((long[0], 1, "h200"), ok(value | {"details": "relative error"}))
    findings.add((short[1], 1, "h200"), ok(value))
    findings.add((short[0], 1, "h200"), HUNG)
    made = findings.to_dict()
    json.dumps(made, allow_nan=False)
    assert [(row["k"], row["split_k"], row["reason"]) for row in made["rows"]] == [
        (4096, 1, "timeout"),
        (4096, 4, None),
        (16_384, 1, "wrong_result"),
    ]
    shown = long_k_line(made)
    assert "k = 4,096, split_k 1: no result" in shown
    assert "k = 4,096, split_k 4: ours 4.5e-06, cuBLAS 1.5e-06" in shown
    assert shown.endswith("; 2 failed.")


def test_what_runs_in_a_gpu_process_can_be_sent_there() -> None:
    functions = (check_pair, soak_pair, long_sums, check_huge)
    assert all(function.__module__.startswith("bench.gpu_") for function in functions)


def test_fewer_sms_are_a_device_of_their_own() -> None:
    assert on_sms(DEVICE, 3).limit("sms") == 3
    assert DEVICE.limit("sms") == 132
