"""The check on this machine's GPU, whose process a test stands in for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.main import main
from kernels.process import Outcome, OutcomeKind
from tests.app.picks.tools import (
    H200,
    PICKS,
    FakeGpu,
    check,
    edit,
    lock_of,
    locked,
    report,
    scratch,
    steps_of,
)


@pytest.fixture
def picks(tmp_path: Path, fake_gpu: FakeGpu) -> Path:
    """A picks file with its lock, measured."""
    path = locked(tmp_path, PICKS, "--gpu")
    fake_gpu.tasks.clear()
    return path


def test_what_holds_exits_0_and_each_test_has_its_interval(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    code, body = report(capsys, picks, "--gpu")
    assert (code, body["where"]) == (0, "NVIDIA H200")
    steps = steps_of(body, "small")
    assert tuple(steps) == ("lock", "proof", "numerics", "time", "regret")
    assert {step["status"] for step in steps.values()} == {"holds"}
    figures = steps["time"]["figures"]
    assert figures["low"] == pytest.approx(9.9 / 10.1)
    assert figures["high"] == pytest.approx(10.1 / 9.9)
    assert "10.00 µs against the lock's 10.00: +0.0% (-2.0% to +2.0%)" in steps["time"]["words"]
    assert steps["regret"]["figures"]["ratio"] == pytest.approx(1 / 1.05)
    assert "the fastest of 3 others" in steps["regret"]["words"]
    # The candidates keep the question's constraints and don't hold the pick itself.
    fp16 = fake_gpu.tasks[1]
    assert all(other.stages <= 4 for other in fp16.against)
    assert len({fp16.config, *fp16.against}) == 4
    both = report(capsys, picks, "--gpu", "--static")[1]
    assert "compile" in steps_of(both, "small")


def test_a_wrong_kernel_exits_1(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.wrong = "exact round: 3 of 262144 elements wrong, the first at (0, 8)"
    code, said = check(capsys, picks, "--gpu")
    assert code == 1
    assert "fails small, numerics: wrong_result: exact round: 3 of 262144 elements wrong" in said


def test_a_slower_pick_exits_1_and_says_by_how_much(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.slower = 1.2
    code, said = check(capsys, picks, "--gpu")
    assert code == 1
    assert (
        "fails small, time: slower: 12.00 µs against the lock's 10.00: +20.0% (+17.6% to +22.4%); "
        "5.0% more is allowed" in said
    )
    edit(picks, lambda d: d["picks"][0]["measured"].update(driver="570", nvrtc="12.9"))
    assert (
        "since the lock: driver 570 → 580.1, NVRTC 12.9 → 13.5" in check(capsys, picks, "--gpu")[1]
    )


def test_an_interval_that_holds_both_answers_is_no_failure(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.slower, fake_gpu.width = 1.1, 0.06
    code, body = report(capsys, picks, "--gpu")
    assert code == 0
    assert "too wide to tell" in steps_of(body, "small")["time"]["words"]
    fake_gpu.slower, fake_gpu.rival = 1.0, 0.9
    code, body = report(capsys, picks, "--gpu")
    assert code == 0
    assert "too wide to tell" in steps_of(body, "small")["regret"]["words"]


def test_a_slower_machine_is_not_a_slower_pick(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.machine = 1.3
    code, body = report(capsys, picks, "--gpu")
    assert code == 0
    assert "the machine is slower" in steps_of(body, "small")["time"]["words"]
    # With nothing to hold it against, slower is slower.
    edit(picks, lambda d: [pick["measured"].update(reference=None) for pick in d["picks"]])
    assert check(capsys, picks, "--gpu")[0] == 1


def test_a_pick_that_is_not_the_fastest_exits_1_and_names_what_is(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.rival = 0.8
    code, said = check(capsys, picks, "--gpu")
    assert code == 1
    assert "fails small, regret: not the fastest: +25.0% (+23.8% to +26.3%) the time of" in said
    assert "others, sm90_gemm " in said
    scratch(picks.parent, PICKS.replace("regret = 0.1", "regret = 0.3"))
    assert check(capsys, picks, "--gpu")[0] == 0


def test_a_candidate_that_is_wrong_exits_1(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    fake_gpu.rival_wrong = "exact round: 1 element wrong"
    code, body = report(capsys, picks, "--gpu")
    assert code == 1
    assert "gives a wrong result: exact round" in steps_of(body, "small")["regret"]["words"]


def test_regret_is_asked_where_time_comes_first_and_all_sms_are_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    text = """
device = "h200"
[[problems]]
name = "least shared memory"
m = 512
n = 512
k = 512
objective = { kind = "lexicographic", order = ["smem", "time"] }
[[problems]]
name = "fewer SMs"
m = 512
n = 512
k = 512
constraints = { sms = { max = 16 } }
"""
    path = locked(tmp_path, text, "--gpu")
    code, body = report(capsys, path, "--gpu")
    assert code == 0
    for name, words in (
        ("least shared memory", "does not put time first"),
        ("fewer SMs", "fewer SMs than it is timed on"),
    ):
        step = steps_of(body, name)["regret"]
        assert (step["status"], words in step["words"]) == ("skipped", True)


@pytest.mark.parametrize(
    ("kind", "facts", "code", "words"),
    [
        (OutcomeKind.DIED, {"exit_code": -11}, 1, "fault: "),
        (OutcomeKind.DIED, {"exit_code": -9}, 3, "worker_lost: "),
        (OutcomeKind.ERROR, {"error_type": "OutOfMemoryError"}, 3, "out_of_memory: "),
        (OutcomeKind.ERROR, {"error_type": "GpuTaken"}, 3, "environment: "),
        (OutcomeKind.ERROR, {"error_type": "CompileFailed"}, 1, "compile_failed: "),
    ],
)
def test_what_is_no_doing_of_the_kernel_exits_3(
    capsys: pytest.CaptureFixture[str],
    picks: Path,
    fake_gpu: FakeGpu,
    kind: OutcomeKind,
    facts: dict[str, object],
    code: int,
    words: str,
) -> None:
    fake_gpu.outcome = Outcome(kind, 1.0, message="as it was", **facts)  # type: ignore[arg-type]
    got, body = report(capsys, picks, "--gpu")
    assert got == code
    assert steps_of(body, "small")["numerics"]["words"].startswith(words)


def test_without_measured_times_a_check_on_a_gpu_exits_3_and_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    path = locked(tmp_path)
    code, said = check(capsys, path, "--gpu")
    assert code == 3
    assert "the lock has no measured time: `warpwright lock` with --gpu or --server adds it" in said


def test_times_of_another_gpu_exit_3(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    edit(picks, lambda d: d["picks"][0]["measured"].update(gpu="NVIDIA H200 NVL"))
    code, body = report(capsys, picks, "--gpu")
    assert code == 3
    words = "the lock's times are of NVIDIA H200 NVL, this is NVIDIA H200"
    assert steps_of(body, "small")["time"]["words"] == words


def test_another_device_than_the_picks_exits_3_before_anything_is_solved(
    capsys: pytest.CaptureFixture[str],
    picks: Path,
    fake_gpu: FakeGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    h20 = replace(H200, name="NVIDIA H20")
    monkeypatch.setattr("kernels.verify.host_gpu", lambda: h20)
    code, said = check(capsys, picks, "--gpu")
    assert code == 3
    assert "the picks are for h200; this machine's GPU, NVIDIA H20, is h20" in " ".join(
        said.split()
    )


def test_a_problem_beyond_the_gpus_memory_exits_3(
    capsys: pytest.CaptureFixture[str],
    picks: Path,
    fake_gpu: FakeGpu,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = replace(H200, memory_bytes=1 << 20)
    monkeypatch.setattr("kernels.verify.host_gpu", lambda: small)
    code, body = report(capsys, picks, "--gpu")
    assert code == 3
    assert (
        "must fit the GPU's memory of 1048576 bytes"
        in (steps_of(body, "small")["numerics"]["words"])
    )


def test_without_a_gpu_the_check_exits_3_and_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = locked(tmp_path)
    for words in (["check", str(path), "--gpu"], ["lock", str(path), "--gpu"]):
        assert main(words) == 3
        assert "no NVIDIA GPU" in " ".join(capsys.readouterr().err.split())


def test_a_pick_that_is_another_is_timed_and_said_to_be_so(
    capsys: pytest.CaptureFixture[str], picks: Path, fake_gpu: FakeGpu
) -> None:
    edit(picks, lambda d: d["picks"][0]["config"].update(stages=3))
    edit(picks, lambda d: d.update(model_version="2"))
    code, body = report(capsys, picks, "--gpu")
    assert code == 1
    steps = steps_of(body, "small")
    assert steps["lock"]["status"] == "fails"
    assert steps["time"]["words"].startswith("(the lock's time is of another pick) ")
    assert lock_of(picks).exists()
