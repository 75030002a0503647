"""A GPU's lock is held by the process that launches, and ends with it."""

from __future__ import annotations

import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from kernels import gpu_lock
from kernels.gpu_lock import call_alone
from kernels.process import OutcomeKind, Worker

sys.path.insert(0, str(Path(__file__).parent))  # spawn hands sys.path on to the child
import process_functions as functions

GPU = "GPU-planted"
DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path))


def test_two_launches_on_one_gpu_never_overlap() -> None:
    spans: list[tuple[float, float]] = []

    def launch() -> None:
        with Worker() as worker:
            outcome = call_alone(worker, GPU, functions.span, (0.3,), DEADLINE_S)
            assert outcome.kind is OutcomeKind.OK
            spans.append(outcome.value)

    threads = [threading.Thread(target=launch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(spans)
    assert len(ordered) == 3
    assert all(end <= begun for (_, end), (begun, _) in pairwise(ordered))


def test_a_warm_process_leaves_the_gpu_to_others_between_launches() -> None:
    with Worker() as first, Worker() as second:
        for worker in (first, second, first):
            assert call_alone(worker, GPU, functions.add, (1, 2), DEADLINE_S).value == 3
        assert first.running


def test_the_lock_of_a_killed_process_is_free() -> None:
    with Worker() as hangs, Worker() as next_one:
        outcome = call_alone(hangs, GPU, functions.hang, (), 0.5)
        assert outcome.kind is OutcomeKind.TIMEOUT
        assert call_alone(next_one, GPU, functions.add, (1, 2), DEADLINE_S).value == 3


def test_a_gpu_that_others_keep_is_said_to_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as first, Worker() as second:
        assert first.call(gpu_lock.take, (GPU,), DEADLINE_S).kind is OutcomeKind.OK
        monkeypatch.setattr(gpu_lock, "WAIT_S", 2.0)
        outcome = call_alone(second, GPU, functions.add, (1, 2), DEADLINE_S)
        assert (outcome.kind, outcome.error_type) == (OutcomeKind.ERROR, "GpuTaken")
        assert "2 s" in outcome.message


def test_a_wait_for_the_gpu_is_no_part_of_the_deadline() -> None:
    with Worker() as first, Worker() as second:
        assert first.call(gpu_lock.take, (GPU,), DEADLINE_S).kind is OutcomeKind.OK
        second.call(functions.add, (0, 0), DEADLINE_S)  # its start counts
        timer = threading.Timer(1.5, first.kill)
        timer.start()
        begun = time.monotonic()
        outcome = call_alone(second, GPU, functions.add, (1, 2), 1.0)
        timer.join()
        assert outcome.value == 3
        assert time.monotonic() - begun > 1.0


def test_a_cache_folder_that_cannot_be_made_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "file"))
    with Worker() as worker:
        outcome = call_alone(worker, GPU, functions.add, (1, 2), DEADLINE_S)
        assert outcome.error_type == "CacheUnwritable"
        assert str(tmp_path / "file") in outcome.message
