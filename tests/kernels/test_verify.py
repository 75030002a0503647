"""What a verification says without a GPU, and how outcomes become reasons."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import pytest

import kernels.verify
from kernels import gpu_lock
from kernels.contest import Contest, ContestTask, Entrant, run_contest
from kernels.errors import GpuAbsent, NoKernelFamily
from kernels.host import PROFILE_BY_NAME, HostGpu, match_profile, visible_device
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.verify import Reason, VerificationRequest, failure_of, require_gpu, verify
from kernels.worker import TaskResult, run_task
from solver.config import Config
from solver.device import device_names
from solver.problem import Problem

H200 = HostGpu("NVIDIA H200", "GPU-0", "580.1", 141 << 30, (9, 0), 1980, ())
REQUEST = VerificationRequest(
    Problem(512, 512, 512), Config("sm90_gemm", 128, 128, 64, 4), predicted_us=5.5, seed=1
)
RESULT = TaskResult(
    failure=None,
    registers=168,
    kernel_id="k",
    nvrtc="13.5",
    gpu=H200.to_dict(),
    sms=132,
    copies=("b",),
    exact=True,
    rel_error=1.7e-3,
    median_us=5.0,
    throttle=("power_cap",),
)


class AnsweringWorker(Worker):
    """A worker whose process is replaced by a ready outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome

    def call(self, function: object, *_: object) -> Outcome:
        return outcome(OutcomeKind.OK) if function is gpu_lock.take else self._outcome


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: H200)


@pytest.mark.parametrize(
    ("value", "device"),
    [
        (None, 0),
        ("", None),
        ("-1", None),
        ("3", 3),
        ("2,0", 2),
        ("GPU-8a1c,1", "GPU-8a1c"),
        ("MIG-12ab", "MIG-12ab"),
    ],
)
def test_the_visible_device_is_the_one_cuda_would_take(
    value: str | None, device: int | str | None
) -> None:
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_device(environment) == device


def test_only_the_exact_name_of_a_gpu_matches_a_profile() -> None:
    assert match_profile(H200) == "h200"
    assert match_profile(replace(H200, name="NVIDIA H200 NVL")) is None
    assert match_profile(replace(H200, name="NVIDIA H200 MIG 1g.18gb")) is None
    assert match_profile(None) is None


def test_every_profile_that_a_gpu_can_match_ships() -> None:
    assert set(PROFILE_BY_NAME.values()) <= set(device_names())


def test_no_gpu_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: None)
    with pytest.raises(GpuAbsent, match="no NVIDIA GPU"):
        verify(REQUEST)


def test_a_gpu_without_a_family_is_told_which_devices_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: replace(H200, name="Tesla T4"))
    with pytest.raises(NoKernelFamily, match=r"Tesla T4.*h200"):
        require_gpu()


def outcome(kind: OutcomeKind, **facts: object) -> Outcome:
    return Outcome(kind, 1.0, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("came", "reason"),
    [
        (outcome(OutcomeKind.TIMEOUT, message="killed"), Reason.TIMEOUT),
        (outcome(OutcomeKind.DIED, exit_code=-signal.SIGSEGV), Reason.FAULT),
        (outcome(OutcomeKind.DIED, exit_code=1), Reason.FAULT),
        (outcome(OutcomeKind.DIED, exit_code=-signal.SIGKILL), Reason.WORKER_LOST),
        (outcome(OutcomeKind.DIED, message="could not be started"), Reason.WORKER_LOST),
        (outcome(OutcomeKind.ERROR, error_type="GpuTaken"), Reason.ENVIRONMENT),
        (outcome(OutcomeKind.ERROR, error_type="CompileFailed"), Reason.COMPILE_FAILED),
        (outcome(OutcomeKind.ERROR, error_type="CompilerMismatch"), Reason.COMPILER_MISMATCH),
        (outcome(OutcomeKind.ERROR, error_type="OutOfMemoryError"), Reason.OUT_OF_MEMORY),
        (outcome(OutcomeKind.ERROR, error_type="CUDARuntimeError"), Reason.FAULT),
        (outcome(OutcomeKind.ERROR, error_type="LaunchFailed"), Reason.LAUNCH_FAILED),
    ],
)
def test_every_ending_has_a_reason(came: Outcome, reason: Reason) -> None:
    assert failure_of(came)[0] is reason


@pytest.mark.usefixtures("on_h200")
def test_a_result_becomes_a_verification_with_its_prediction_error() -> None:
    verification = verify(REQUEST, worker=AnsweringWorker(outcome(OutcomeKind.OK, value=RESULT)))
    assert verification.passed
    assert verification.prediction_error == pytest.approx(0.1)
    body = json.loads(json.dumps(verification.to_dict(), allow_nan=False))
    assert body["status"] == "passed"
    assert body["reason"] is None
    assert body["device"] == "NVIDIA H200"
    assert body["throttle"] == ["power_cap"]
    assert body["copies"] == ["b"]
    assert body["problem"] == REQUEST.problem.to_dict()
    assert body["config"]["tile_m"] == 128


@pytest.mark.usefixtures("on_h200")
def test_a_wrong_output_fails_with_its_details() -> None:
    wrong = replace(RESULT, failure="exact round: 3 elements wrong", exact=False, median_us=None)
    verification = verify(REQUEST, worker=AnsweringWorker(outcome(OutcomeKind.OK, value=wrong)))
    assert (verification.status, verification.reason) == ("failed", Reason.WRONG_RESULT)
    assert "3 elements" in verification.details
    assert verification.to_dict()["reason"] == "wrong_result"


@pytest.mark.usefixtures("on_h200")
def test_a_hang_is_a_timeout() -> None:
    came = outcome(OutcomeKind.TIMEOUT, message="killed at its deadline of 60 s")
    verification = verify(REQUEST, worker=AnsweringWorker(came))
    assert (verification.status, verification.reason) == ("failed", Reason.TIMEOUT)
    assert "60 s" in verification.details


@pytest.mark.usefixtures("on_h200")
def test_an_illegal_configuration_never_reaches_the_gpu() -> None:
    class Untouched(Worker):
        def call(self, *_: object) -> Outcome:
            raise AssertionError("launched")

    request = replace(REQUEST, config=replace(REQUEST.config, stages=12, tile_n=256))
    verification = verify(request, worker=Untouched())
    assert verification.reason is Reason.ILLEGAL
    assert verification.details


class RacingWorker(Worker):
    """A worker whose process answers the task and then the race."""

    def __init__(self, task: Outcome, race: Outcome) -> None:
        super().__init__()
        self._ends = {run_task: task, run_contest: race}
        self.raced: list[ContestTask] = []
        self.deadlines_s: list[float] = []

    def call(self, function: Any, arguments: Any = (), limit_s: float = 0, *_: Any) -> Outcome:
        if function is run_contest:
            self.raced += arguments
            self.deadlines_s.append(limit_s)
        return self._ends.get(function, outcome(OutcomeKind.OK))


OTHER = Config("sm90_gemm", 64, 128, 64, 4)
RACE = replace(REQUEST, alternatives=((OTHER, 6.5),))
DONE = outcome(OutcomeKind.OK, value=RESULT)
FOUND = Contest((Entrant(5.0, 1.0, 1.0, 1.0, 12), Entrant(4.0, 0.8, 0.79, 0.81, 12)), 1)


@pytest.mark.usefixtures("on_h200")
def test_alternatives_are_raced_once_the_pick_has_passed_within_the_same_deadline() -> None:
    worker = RacingWorker(DONE, outcome(OutcomeKind.OK, value=FOUND))
    verification = verify(RACE, 60.0, worker)
    assert verification.passed
    assert verification.contest is not None
    assert (verification.contest["winner"], verification.contest["note"]) == (1, None)
    pick, other = verification.contest["candidates"]
    assert (pick["config"], pick["predicted_us"]) == (RACE.config.to_dict(), 5.5)
    assert (other["config"], other["predicted_us"], other["ratio"]) == (OTHER.to_dict(), 6.5, 0.8)
    (task,) = worker.raced
    assert task == ContestTask(RACE.problem, (RACE.config, OTHER), "h200", 1, RACE.protocol)
    assert worker.deadlines_s == [59.0]
    assert verification.elapsed_s == 2.0
    json.dumps(verification.to_dict(), allow_nan=False)


@pytest.mark.usefixtures("on_h200")
def test_a_race_that_hangs_or_faults_leaves_the_picks_own_verification() -> None:
    for came, why in (
        (outcome(OutcomeKind.TIMEOUT, message="killed"), "timeout: killed"),
        (outcome(OutcomeKind.DIED, exit_code=-signal.SIGSEGV, message="died"), "fault: died"),
    ):
        verification = verify(RACE, worker=RacingWorker(DONE, came))
        assert verification.passed
        assert verification.median_us == 5.0
        assert verification.contest is not None
        assert verification.contest["note"] == why
        assert verification.contest["winner"] is None
        assert len(verification.contest["candidates"]) == 2


@pytest.mark.usefixtures("on_h200")
def test_a_process_that_is_ended_from_outside_in_a_race_is_lost_with_the_whole_run() -> None:
    killed = outcome(OutcomeKind.DIED, exit_code=-signal.SIGKILL)
    assert verify(RACE, worker=RacingWorker(DONE, killed)).reason is Reason.WORKER_LOST


@pytest.mark.usefixtures("on_h200")
def test_a_pick_that_is_wrong_is_not_raced_and_an_illegal_alternative_is_refused() -> None:
    wrong = outcome(OutcomeKind.OK, value=replace(RESULT, failure="3 elements wrong"))
    worker = RacingWorker(wrong, outcome(OutcomeKind.OK, value=FOUND))
    assert verify(RACE, worker=worker).reason is Reason.WRONG_RESULT
    assert worker.raced == []
    illegal = replace(REQUEST, alternatives=((replace(OTHER, tile_m=96), 1.0),))
    assert verify(illegal, worker=worker).reason is Reason.ILLEGAL
    assert verify(REQUEST, worker=worker).contest is None
    assert worker.raced == []
