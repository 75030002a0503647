"""The check without a GPU: each planted fault has its exit code and a message for a stranger."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import app.picks.solving as solving
from app.cli.main import main
from app.picks.solving import Solved
from kernels.errors import CompileFailed, CompilerAbsent
from solver.errors import ProofError
from solver.recheck.verdict import Verdict
from tests.app.picks.tools import (
    PICKS,
    check,
    edit,
    lock_of,
    locked,
    report,
    scratch,
    steps_of,
)

STATIC = ("lock", "proof", "recheck", "simulate", "compile")


@pytest.fixture
def picks(tmp_path: Path) -> Path:
    """A picks file with its lock."""
    return locked(tmp_path)


def test_what_holds_exits_0_and_says_what_was_looked_at(
    capsys: pytest.CaptureFixture[str], picks: Path
) -> None:
    code, body = report(capsys, picks, "--static")
    assert (code, body["status"], body["where"]) == (0, "holds", None)
    assert body["verdict"] == "2 of 2 picks hold"
    for name in ("small", "fp16"):
        steps = steps_of(body, name)
        assert tuple(steps) == STATIC
        assert {step["status"] for step in steps.values()} == {"holds"}
    figures = steps_of(body, "small")["compile"]["figures"]
    assert figures["kernel_id"].startswith("bf16_tn_")
    code, said = check(capsys, picks)
    assert code == 0
    assert "2 of 2 picks hold" in said
    assert "::" not in said


def test_processes_give_what_one_does(capsys: pytest.CaptureFixture[str], picks: Path) -> None:
    capsys.readouterr()
    assert main(["check", str(picks), "--jobs", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "2 of 2 picks hold"


def test_a_changed_pick_exits_1_with_both_and_the_reason(
    capsys: pytest.CaptureFixture[str], picks: Path
) -> None:
    scratch(picks.parent, PICKS.replace("m = 512", "m = 64"))
    code, said = check(capsys, picks)
    assert code == 1
    assert "fails small, lock: another pick: sm90_gemm " in said
    assert "since: problem: m 512 → 64" in said
    assert f"`warpwright lock {picks}` writes the lock anew, for review" in said
    assert "1 of 2 picks hold; 1 fails" in said


def test_a_stale_lock_exits_1_and_says_since_when(
    capsys: pytest.CaptureFixture[str], picks: Path
) -> None:
    edit(picks, lambda document: document.update(model_version="2"))
    code, body = report(capsys, picks)
    assert code == 1
    assert body["steps"][0]["status"] == "fails"
    assert "the lock is stale: model version 2 → " in body["verdict"]
    # The picks themselves are those of then.
    assert {pick["status"] for pick in body["picks"]} == {"holds"}


def test_a_lock_of_other_problems_exits_1(capsys: pytest.CaptureFixture[str], picks: Path) -> None:
    scratch(picks.parent, PICKS + '\n[[problems]]\nname = "new"\nm = 64\nn = 64\nk = 64\n')
    code, body = report(capsys, picks)
    assert code == 1
    assert "the lock does not have it" in steps_of(body, "new")["lock"]["words"]
    scratch(picks.parent, PICKS.partition('[[problems]]\nname = "fp16"')[0])
    code, body = report(capsys, picks)
    assert code == 1
    assert "the lock has picks that the picks file no longer has: 'fp16'" in body["verdict"]


def of_first(*path: str, value: Any) -> Callable[[Any], None]:
    """An edit of one value of the first pick."""

    def change(document: Any) -> None:
        place = document["picks"][0]
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_first("config", "stages", value=99), "is illegal: config.stages: must be "),
        (of_first("config", "stages", value=-1), "is illegal: config.stages: must be "),
        (of_first("config", "stages", value=10**40), "is illegal: config.stages: must be between"),
        (of_first("config", "tile_m", value=96), "is illegal: config.tile_m: must be "),
        (of_first("config", "family", value="paper"), "is illegal: config.family: must be sm90_"),
        (of_first("config", "dma_warps", value=2), "config.dma_warps must be 1, got 2"),
        (of_first("predicted", "time_us", value=1.5), "predicted.time_us must be "),
        (of_first("proof", "sha256", value="0" * 64), "proof.sha256 must be "),
        (of_first("proof", "configurations", value=7), "proof.configurations must be "),
        (of_first("problem", "m", value=2**40), "the lock's problem is none: problem.m: must be"),
    ],
)
def test_an_illegal_or_changed_value_in_the_lock_exits_1_and_is_named(
    capsys: pytest.CaptureFixture[str], picks: Path, change: Callable[[Any], None], words: str
) -> None:
    edit(picks, change)
    code, body = report(capsys, picks)
    step = steps_of(body, "small")["lock"]
    assert (code, step["status"]) == (1, "fails")
    assert words in step["words"]
    assert steps_of(body, "fp16")["lock"]["status"] == "holds"


def drop(name: str) -> Callable[[Any], None]:
    return lambda document: document["picks"][0].pop(name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(format="warpwright-picks/2"), "format: must be warpwr"),
        (lambda document: document.update(picks=[]), "picks: must be a list of 1 to 1000 JSON"),
        (lambda document: document.update(more=1), "more: is no field of a lock file; there are"),
        (drop("config"), "picks.0.config: is required and must be a JSON object"),
        (drop("proof"), "picks.0.proof: is required"),
        (of_first("config", "stages", value="5"), "picks.0.config.stages: must be an integer, g"),
        (of_first("config", "stages", value=True), "picks.0.config.stages: must be an integer, "),
        (of_first("predicted", "time_us", value=-1), "time_us: must be a number between 0 and"),
        (of_first("name", value="fp16"), "picks.1.name: must be there once"),
        (
            of_first(
                "measured",
                value={
                    "gpu": "g",
                    "driver": "d",
                    "nvrtc": "13.5",
                    "kernel_source_hash": "0" * 64,
                    "copy_source_hash": "0" * 64,
                    "time_us": 12.0,
                    "low_us": 9.0,
                    "high_us": 11.0,
                    "rounds": 9,
                    "reference": None,
                },
            ),
            "picks.0.measured.time_us: must be between 9.0 and 11.0, got 12.0",
        ),
    ],
)
def test_a_lock_that_cant_be_read_exits_2_and_names_the_field(
    capsys: pytest.CaptureFixture[str], picks: Path, change: Callable[[Any], None], words: str
) -> None:
    edit(picks, change)
    code, said = check(capsys, picks)
    assert code == 2
    assert f"error: {lock_of(picks)}: " in " ".join(said.split())
    assert words in " ".join(said.split())


def test_a_damaged_lock_exits_2_and_names_the_line(
    capsys: pytest.CaptureFixture[str], picks: Path
) -> None:
    whole = lock_of(picks).read_text("utf-8")
    for text, words in (
        (whole[: len(whole) // 2], "is no JSON: "),
        (whole.replace('"picks": [', '<<<<<<< HEAD\n "picks": ['), "line 9 column "),
        (whole.replace('"picks": [', '"model_version": "3",\n "picks": ['), "must not appear twi"),
        ("[" * 10**5, "nested too deeply"),
        ("", "is no JSON: "),
        ("[]", "body: must be a JSON object"),
        (whole.replace('"time_us": ', '"time_us": NaN, "x": '), "NaN is no number in JSON"),
    ):
        lock_of(picks).write_text(text, "utf-8")
        code, said = check(capsys, picks)
        assert code == 2
        assert words in " ".join(said.split())
    lock_of(picks).unlink()
    code, said = check(capsys, picks)
    assert code == 2
    assert f"is not there; `warpwright lock {picks}` makes it" in " ".join(said.split())


def test_the_command_that_mends_a_lock_can_be_pasted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "my picks; rm"
    folder.mkdir()
    code, said = check(capsys, scratch(folder))
    assert code == 2
    assert f"`warpwright lock '{folder}/picks.toml'` makes it" in " ".join(said.split())


def test_without_a_compiler_a_static_check_exits_3_and_says_what_to_install(
    capsys: pytest.CaptureFixture[str], picks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise CompilerAbsent("NVRTC is not installed: install warpwright[gpu]")

    monkeypatch.setattr(solving, "compile_kernel", absent)
    code, said = check(capsys, picks)
    assert code == 3
    assert "lacks small, compile: NVRTC is not installed: install warpwright[gpu]" in said
    assert "2 could not be checked" in said
    # A pick that fails outweighs what could not be looked at.
    edit(picks, of_first("config", "stages", value=99))
    assert check(capsys, picks)[0] == 1


def test_a_kernel_that_is_refused_or_is_not_what_the_solver_counted_exits_1(
    capsys: pytest.CaptureFixture[str], picks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = solving.compile_kernel
    monkeypatch.setattr(
        solving, "compile_kernel", lambda key: replace(compiled(key), registers=5000)
    )
    code, body = report(capsys, picks)
    assert code == 1
    assert "with 5000 registers" in steps_of(body, "small")["compile"]["words"]
    monkeypatch.setattr(
        solving, "compile_kernel", lambda key: replace(compiled(key), spill_bytes=8)
    )
    code, body = report(capsys, picks)
    assert code == 1
    assert "spills 8 bytes" in steps_of(body, "small")["compile"]["words"]
    monkeypatch.setattr(solving, "nvrtc_version", lambda: "12.9")
    code, body = report(capsys, picks)
    assert code == 3
    assert "the register table is NVRTC 13.5's" in steps_of(body, "small")["compile"]["words"]

    def refused(key: object) -> None:
        raise CompileFailed("k", "ptxas C7510: serialised", "log")

    monkeypatch.setattr(solving, "compile_kernel", refused)
    code, body = report(capsys, picks)
    assert code == 1
    assert steps_of(body, "small")["compile"]["words"] == "k: ptxas C7510: serialised"


def test_a_proof_that_does_not_hold_twice_exits_1(
    capsys: pytest.CaptureFixture[str], picks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "recheck", lambda _: Verdict(False, ("config is not first",)))
    code, body = report(capsys, picks)
    assert code == 1
    step = steps_of(body, "small")["recheck"]
    assert step["words"] == "the certificate does not hold: config is not first"

    def contradicts(_: object) -> None:
        raise ProofError("simulator and closed form disagree")

    monkeypatch.setattr(solving, "play_pick", contradicts)
    code, body = report(capsys, picks)
    assert steps_of(body, "small")["simulate"]["words"] == "simulator and closed form disagree"


def test_a_run_too_long_to_play_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = locked(tmp_path, 'device = "h200"\n[[problems]]\nm = 64\nn = 64\nk = 2000000000\n')
    _, body = report(capsys, path)
    (pick,) = body["picks"]
    (step,) = (step for step in pick["steps"] if step["name"] == "simulate")
    assert step["status"] == "holds"
    assert "only the first events were played" in step["words"]


def test_constraints_that_leave_nothing_exit_1_with_their_core(
    capsys: pytest.CaptureFixture[str], picks: Path
) -> None:
    scratch(picks.parent, PICKS.replace("max = 4", "max = 1"))
    code, body = report(capsys, picks)
    assert code == 1
    steps = steps_of(body, "fp16")
    assert "constraints.config.stages.max" in steps["proof"]["words"]
    assert "there is no pick now" in steps["lock"]["words"]


def test_a_lost_process_exits_3(
    capsys: pytest.CaptureFixture[str], picks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernels.process import Outcome, OutcomeKind, Worker

    lost = Outcome(OutcomeKind.DIED, 1.0, message="the process was ended by SIGKILL")
    monkeypatch.setattr(Worker, "call", lambda *_: lost)
    capsys.readouterr()
    assert main(["check", str(picks), "--jobs", "2"]) == 3
    assert "ended by SIGKILL" in capsys.readouterr().err


def test_a_defect_in_a_process_is_no_verdict(picks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.process import Outcome, OutcomeKind, Worker

    broken = Outcome(OutcomeKind.ERROR, 1.0, None, "KeyError", "'x'", "Traceback ...")
    monkeypatch.setattr(Worker, "call", lambda *_: broken)
    assert main(["check", str(picks), "--jobs", "2"]) == 70


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "picks.toml", "--gpu", "--server", "http://localhost"],
        ["check", "picks.toml", "--jobs", "0"],
        ["check", "picks.toml", "--stat"],
        ["lock", "picks.toml", "--junit", "x"],
    ],
)
def test_wrong_usage_exits_2(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert "error: " in capsys.readouterr().err


def test_a_solved_pick_without_others_asks_for_none() -> None:
    assert Solved(None, ()).others == ()
