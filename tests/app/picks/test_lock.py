"""Locks: what one holds, when it changes, and what of it is said."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.schemas.locks import LockFile
from kernels.sources import source_hash
from solver.device import load_profile
from solver.model_version import MODEL_VERSION
from tests.app.picks.tools import (
    PICKS,
    FakeGpu,
    edit,
    lock_of,
    locked,
    report,
    scratch,
    steps_of,
)


def lock(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[int, Any]:
    """(exit code, what `lock --json` says)."""
    capsys.readouterr()
    code = main(["lock", str(path), "--jobs", "1", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_lock_holds_the_picks_and_what_they_came_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    text = lock_of(path).read_text("utf-8")
    document = json.loads(text)
    LockFile.model_validate(document)
    assert document["model_version"] == MODEL_VERSION
    assert document["profile_sha256"] == load_profile("h200").sha256
    assert document["kernel_source_hash"] == source_hash()
    first, second = document["picks"]
    capsys.readouterr()
    assert main(["optimize", "512", "512", "512", "--json", "--device", "h200"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert first["config"] == answer["config"]
    assert first["config"]["stages"] >= 2
    assert first["predicted"]["time_us"] == answer["predicted"]["time_us"]
    assert first["predicted"]["wait_us"] == answer["predicted"]["wait_us"]
    assert first["problem"] == answer["problem"]
    assert len(first["proof"]["sha256"]) == 64
    assert second["constraints"] == {"config": {"stages": {"max": 4}}}
    assert second["config"]["stages"] <= 4
    assert [each["measured"] for each in document["picks"]] == [None, None]
    # One field a line: a pick that changes is a diff of the lines that changed.
    assert all(line.count('": ') <= 1 for line in text.splitlines())


def test_a_lock_made_twice_has_the_same_bytes_and_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    first = lock_of(path).read_bytes()
    changed = lock_of(path).stat().st_mtime_ns
    code, said = lock(capsys, path)
    assert (code, said["written"], said["changes"]) == (0, False, [])
    assert lock_of(path).stat().st_mtime_ns == changed
    lock_of(path).unlink()
    assert main(["lock", str(path), "--jobs", "2"]) == 0
    assert lock_of(path).read_bytes() == first


def test_every_kind_of_question_is_locked_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
device = "h100_sxm"
objective = { kind = "weighted", weights = { time = 1, smem = 0.05 } }
[[problems]]
m = 512
n = 512
k = 512
constraints = { config = { tile_m = { in = [128, 64] }, stages = { min = 3 } } }
[[problems]]
m = 1000
n = 77
k = 333
layout = "nn"
out_dtype = "fp32"
cache = "warm"
[[problems]]
m = 1000
n = 77
k = 334
c_offset = 1
objective = { kind = "lexicographic", order = ["smem"] }
"""
    path = locked(tmp_path, text)
    assert lock(capsys, path)[1]["changes"] == []
    assert main(["check", str(path), "--jobs", "1"]) == 0
    objectives = [each["objective"] for each in json.loads(lock_of(path).read_text())["picks"]]
    assert objectives[0] == {"kind": "weighted", "weights": {"time": 1.0, "smem": 0.05}}
    assert objectives[2] == {"kind": "lexicographic", "order": ["smem"]}


def test_energy_and_power_are_locked_and_guarded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
device = "h200"
[[problems]]
m = 512
n = 512
k = 512
objective = { kind = "weighted", weights = { time = 1, energy = 10 } }
[[problems]]
m = 1000
n = 77
k = 333
objective = { kind = "lexicographic", order = ["energy"] }
[[problems]]
name = "capped"
m = 512
n = 512
k = 512
constraints = { power_w = { max = 240 } }
"""
    path = locked(tmp_path, text)
    assert main(["check", str(path), "--jobs", "1", "--static"]) == 0
    scratch(tmp_path, text.replace("max = 240", "max = 10000"))
    code, body = report(capsys, path)
    assert code == 1
    words = steps_of(body, "capped")["lock"]["words"]
    assert 'constraints {"power_w": {"max": 240}} → {"power_w": {"max": 10000}}' in words
    for device in ("h100_sxm", "h200_datasheet"):
        scratch(tmp_path, text.replace("h200", device))
        assert main(["lock", str(path), "--jobs", "1"]) == 1
        assert f"the power of {device} has not been measured" in capsys.readouterr().err


def test_a_question_that_changed_is_said_where_its_pick_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    edit(path, lambda d: d["picks"][0].update(constraints={"sms": {"max": 132}}))
    code, body = report(capsys, path)
    words = steps_of(body, "small")["lock"]["words"]
    assert code == 1
    assert words.startswith("another question, of which the pick and times are the same; since: ")


def test_a_changed_problem_is_said_with_the_old_pick_and_the_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    scratch(tmp_path, PICKS.replace("m = 512", "m = 64").replace("max = 4", "max = 3"))
    code, said = lock(capsys, path)
    assert (code, said["written"]) == (0, True)
    small, fp16 = said["changes"]
    assert small["kind"] == "other"
    assert small["causes"] == ["problem: m 512 → 64"]
    assert small["old"]["config"] != small["new"]["config"]
    assert "another pick: sm90_gemm " in small["words"]
    assert fp16["causes"] == [
        'constraints {"config": {"stages": {"max": 4}}} → {"config": {"stages": {"max": 3}}}'
    ]
    main(["lock", str(path), "--jobs", "1"])
    assert lock(capsys, path)[1]["changes"] == []


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("model_version", "2", f"model version 2 → {MODEL_VERSION}"),
        ("device", "h20", "device h20 → h200"),
        ("profile_sha256", "0" * 64, "profile of h200 000000000000 → "),
        ("kernel_source_hash", "0" * 64, "kernel sources 000000000000 → "),
        ("copy_source_hash", "0" * 64, "kernel sources of copies 000000000000 → "),
        ("nvrtc", "12.9", "register table of NVRTC 12.9 → "),
    ],
)
def test_what_all_picks_come_of_is_said_where_it_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], member: str, value: str, words: str
) -> None:
    path = locked(tmp_path)

    def older(document: Any) -> None:
        document[member] = value
        document["picks"][0]["config"]["stages"] -= 1
        document["picks"][0]["predicted"]["time_us"] += 1
        document["picks"][1]["predicted"]["time_us"] += 1

    edit(path, older)
    code, said = lock(capsys, path)
    assert (code, said["written"]) == (0, True)
    assert [cause[: len(words)] for cause in said["causes"]] == [words]
    small, fp16 = said["changes"]
    assert (small["kind"], fp16["kind"]) == ("other", "priced")
    assert words in small["words"]
    assert f"{small['old']['time_us']:.2f} µs → " in small["words"]
    assert small["old"]["config"]["stages"] == small["new"]["config"]["stages"] - 1


def test_picks_that_come_go_and_are_renamed_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    more = '\n[[problems]]\nname = "third"\nm = 64\nn = 64\nk = 64\n'
    scratch(tmp_path, PICKS.replace('"small"', '"little"') + more)
    _, said = lock(capsys, path)
    little, third = said["changes"]
    assert (little["name"], little["kind"]) == ("little", "priced")
    assert little["causes"] == ["name 'small' → 'little'"]
    assert (third["kind"], third["old"]) == ("new", None)
    scratch(tmp_path, PICKS.partition('[[problems]]\nname = "fp16"')[0])
    _, said = lock(capsys, path)
    assert {change["name"]: change["kind"] for change in said["changes"]} == {
        "small": "priced",
        "fp16": "gone",
        "third": "gone",
    }


def test_a_question_without_a_pick_exits_1_and_leaves_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    before = lock_of(path).read_bytes()
    scratch(tmp_path, PICKS.replace("max = 4", "max = 1"))
    capsys.readouterr()
    assert main(["lock", str(path), "--jobs", "1"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "fp16: constraints.config.stages.max" in error or "no legal configuration" in error
    assert lock_of(path).read_bytes() == before


def test_a_damaged_lock_is_made_anew_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    whole = lock_of(path).read_bytes()
    lock_of(path).write_bytes(whole[:300] + b"<<<<<<< HEAD\n" + whole[300:])
    capsys.readouterr()
    assert main(["lock", str(path), "--jobs", "1"]) == 0
    assert "the old lock can't be read and is made anew" in capsys.readouterr().err
    assert lock_of(path).read_bytes() == whole


def test_a_lock_that_cant_be_written_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scratch(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(["lock", str(path), "--jobs", "1"]) == 3
    assert "can't be written: No space left on device" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["picks.toml"]


def test_measured_times_get_into_the_lock_and_stay_while_the_pick_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_gpu: FakeGpu
) -> None:
    path = locked(tmp_path, PICKS, "--gpu")
    document = json.loads(lock_of(path).read_text("utf-8"))
    measured = document["picks"][0]["measured"]
    assert (measured["gpu"], measured["time_us"]) == ("NVIDIA H200", 10.0)
    assert (measured["low_us"], measured["high_us"], measured["rounds"]) == (9.9, 10.1, 40)
    assert measured["reference"]["name"] == "torch.mm of a fake"
    assert fake_gpu.tasks[0].against == ()
    first = lock_of(path).read_bytes()
    # Made again without a GPU: what was measured is still so.
    assert lock(capsys, path)[1]["written"] is False
    # Measured again, and within what either interval shows: no change that is none.
    fake_gpu.slower = 1.005
    assert lock(capsys, path, "--gpu")[1]["written"] is False
    assert lock_of(path).read_bytes() == first
    fake_gpu.slower = 1.2
    assert lock(capsys, path, "--gpu")[1]["written"] is True
    document = json.loads(lock_of(path).read_text("utf-8"))
    assert document["picks"][0]["measured"]["time_us"] == 12.0
    # Another pick's time is none of this one's.
    scratch(tmp_path, PICKS.replace("m = 512", "m = 64"))
    lock(capsys, path)
    document = json.loads(lock_of(path).read_text("utf-8"))
    assert [pick["measured"] is None for pick in document["picks"]] == [True, False]


def test_a_wrong_kernel_is_not_locked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_gpu: FakeGpu
) -> None:
    fake_gpu.wrong = "exact round: 3 elements wrong"
    path = scratch(tmp_path)
    assert main(["lock", str(path), "--jobs", "1", "--gpu"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "small: wrong_result: exact round: 3 elements wrong" in error
    assert not lock_of(path).exists()


def test_a_lock_keeps_what_may_be_read_of_it(tmp_path: Path) -> None:
    path = locked(tmp_path)
    assert stat.S_IMODE(lock_of(path).stat().st_mode) & 0o400
