"""Which GPUs jobs run on, as they come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.gpus import Gpus
from app.settings import load_settings
from kernels.errors import GpuAbsent
from kernels.host import HostGpu
from kernels.verify import require_gpu
from solver.errors import InvalidInput
from tests.app.conftest import host_has
from tests.app.test_verifications import gpu

FOUR = [replace(gpu(), uuid=f"GPU-{number}") for number in range(4)]


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gpus.LOOK_S", -1.0)


def uuids(gpus: Gpus) -> list[str | None]:
    return [gpus.uuid(place) for place in range(len(gpus))]


def test_all_that_are_visible_are_used_or_those_that_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host_has(monkeypatch, *FOUR)
    assert uuids(Gpus()) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    chosen = Gpus((3, 1))
    assert uuids(chosen) == ["GPU-3", "GPU-1"]
    assert chosen.first == FOUR[3]
    assert chosen.several


def test_one_that_is_lost_is_told_and_found_again_and_moves_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host_has(monkeypatch, *FOUR[:3])
    gpus = Gpus()
    host_has(monkeypatch, *FOUR[1:3])
    assert uuids(gpus) == [None, "GPU-1", "GPU-2"]
    assert [gpus.seen(place) for place in range(3)] == [True] * 3
    assert gpus.require(lambda uuid: uuid) == "GPU-1"
    host_has(monkeypatch, *FOUR[:3])
    assert uuids(gpus) == ["GPU-0", "GPU-1", "GPU-2"]


def test_a_worker_is_told_of_a_gpu_that_is_chosen_whether_it_is_there_yet_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host_has(monkeypatch)
    assert Gpus((1,)).several  # CUDA's first would be another, once both are there
    assert not Gpus((0,)).several
    assert not Gpus().several
    host_has(monkeypatch, *FOUR[:2])
    assert Gpus((0,)).several


def test_one_that_comes_late_is_taken_and_what_that_does_not_change_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host_has(monkeypatch)
    gpus = Gpus()
    assert (uuids(gpus), gpus.seen(0), gpus.first) == ([None], False, None)
    with pytest.raises(GpuAbsent):
        gpus.require(require_gpu)
    host_has(monkeypatch, FOUR[2])
    assert (uuids(gpus), gpus.seen(0)) == (["GPU-2"], True)
    assert gpus.require(require_gpu) == (FOUR[2], "h200")
    assert caplog.text.count("GPU 0, NVIDIA H200, was not there at the start") == 1


def test_one_that_is_not_there_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host_has(monkeypatch, FOUR[0])
    gpus = Gpus((0, 1))
    assert uuids(gpus) == ["GPU-0", None]
    assert "GPU 1 is not there" in caplog.text
    host_has(monkeypatch, *FOUR[:2])
    assert uuids(gpus) == ["GPU-0", "GPU-1"]


def test_one_that_is_lost_at_the_start_leaves_the_others_their_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else jobs would run on one that was not chosen."""
    host_has(monkeypatch, None, *FOUR[1:])
    chosen, every = Gpus((0, 1)), Gpus()
    assert uuids(chosen) == [None, "GPU-1"]
    assert uuids(every) == [None, "GPU-1", "GPU-2", "GPU-3"]
    assert chosen.first == FOUR[1]
    assert "GPU 0 is not there" in caplog.text
    host_has(monkeypatch, *FOUR)
    assert uuids(chosen) == ["GPU-0", "GPU-1"]
    assert uuids(every) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_where_none_that_jobs_run_on_is_there_no_other_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job would wait for as long as the chosen one stays away."""
    host_has(monkeypatch, *FOUR[:2])
    never = Gpus((5,))
    lost = Gpus((1,))
    host_has(monkeypatch, FOUR[0])
    for gpus, number in ((never, 5), (lost, 1)):
        assert uuids(gpus) == [None]
        with pytest.raises(GpuAbsent, match=f"GPU {number} of the visible ones.*WARPWRIGHT_GPUS"):
            gpus.require(require_gpu)
        assert f"GPU {number}" in gpus.why_absent()
    host_has(monkeypatch)
    assert "WARPWRIGHT_GPUS" not in lost.why_absent()


def test_gpus_of_another_model_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(gpu("NVIDIA L40S"), uuid="GPU-9")
    host_has(monkeypatch, FOUR[0], other, FOUR[1])
    assert uuids(Gpus()) == ["GPU-0", "GPU-1"]
    assert "GPU 1, NVIDIA L40S, is left out" in caplog.text
    assert uuids(Gpus((1,))) == ["GPU-9"]


def test_the_driver_is_not_asked_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[HostGpu] = []

    def visible_gpus() -> tuple[HostGpu, ...]:
        asked.append(FOUR[0])
        return (FOUR[0],)

    monkeypatch.setattr("app.gpus.LOOK_S", 60.0)
    monkeypatch.setattr("app.gpus.visible_gpus", visible_gpus)
    gpus = Gpus()
    assert [gpus.uuid(0) for _ in range(5)] == ["GPU-0"] * 5
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("value", "numbers"), [("", ()), ("0", (0,)), (" 2, 0 ", (2, 0)), ("7,", (7,))]
)
def test_the_setting_is_numbers(value: str, numbers: tuple[int, ...]) -> None:
    assert load_settings({"WARPWRIGHT_GPUS": value}).gpus == numbers


@pytest.mark.parametrize("value", ["-1", "a", "0;1", "1,1", "1,01", "GPU-0", "1000"])
def test_a_setting_that_is_none_is_named(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_settings({"WARPWRIGHT_GPUS": value})
    assert refused.value.field == "WARPWRIGHT_GPUS"
