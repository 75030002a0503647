"""Calls in a process of their own come back as outcomes, whatever happens there."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernels.process
from kernels.process import OutcomeKind, Worker, run_in_process

sys.path.insert(0, str(Path(__file__).parent))  # spawn hands sys.path on to the child
import process_functions as functions

DEADLINE_S = 30.0


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("warm", [False, True])
def test_what_is_sent_to_the_whole_group_does_not_end_a_process(
    worker: Worker, number: signal.Signals, warm: bool
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    worker._connect()  # that one is starting yet
    pid = worker._process.pid
    if warm:
        assert worker.call(functions.process_id, (), DEADLINE_S).value == pid
        timers = [threading.Timer(delay_s, os.kill, (pid, number)) for delay_s in (0.1, 0.2)]
        for timer in timers:
            timer.start()
    else:
        os.kill(pid, number)
    outcome = worker.call(functions.span, (0.5,), DEADLINE_S)
    assert outcome.kind is OutcomeKind.OK
    assert worker.call(functions.process_id, (), DEADLINE_S).value == pid
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before


def test_what_a_process_logs_is_logged_by_its_caller_whole(
    worker: Worker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[int] = []
    outcome = worker.call(
        functions.complain, ("x" * 500, 50), DEADLINE_S, lambda facts: told.append(facts["number"])
    )
    assert outcome.kind is OutcomeKind.OK
    assert told == list(range(50))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:-1] == ["x" * 500] * 200
    assert lines[-1].startswith("it broke\nTraceback")
    assert lines[-1].endswith("ZeroDivisionError: a defect")
    assert {record.name for record in caplog.records} == {functions.__name__}
    assert "xxx" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (functions.complain_badly, "the next one"),
        (functions.logs_when_pickled, "being pickled"),
    ],
)
def test_whatever_a_process_logs_and_when_its_answer_comes(
    worker: Worker, caplog: pytest.LogCaptureFixture, function: Callable[[], object], line: str
) -> None:
    outcome = worker.call(function, (), DEADLINE_S)
    assert (outcome.kind, outcome.value) == (OutcomeKind.OK, "answer")
    assert [record.getMessage() for record in caplog.records] == [line]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_result_comes_back() -> None:
    outcome = run_in_process(functions.add, (2, 3), DEADLINE_S)
    assert (outcome.kind, outcome.value) == (OutcomeKind.OK, 5)


def test_a_worker_keeps_its_process_between_calls(worker: Worker) -> None:
    first = worker.call(functions.process_id, (), DEADLINE_S).value
    assert worker.running
    assert worker.call(functions.process_id, (), DEADLINE_S).value == first != os.getpid()


@pytest.mark.parametrize("function", [functions.hang, functions.hang_deaf_to_signals])
def test_a_hang_is_killed_at_its_deadline_and_the_next_call_runs(
    worker: Worker, function: object
) -> None:
    pid = worker.call(functions.process_id, (), DEADLINE_S).value
    started = time.monotonic()
    outcome = worker.call(function, (), 0.5)  # type: ignore[arg-type]
    assert outcome.kind is OutcomeKind.TIMEOUT
    assert outcome.exit_code == -9
    assert "0.5 s" in outcome.message
    assert time.monotonic() - started < 5
    assert gone(pid)
    assert worker.call(functions.add, (1, 1), DEADLINE_S).value == 2


def test_start_up_counts_towards_the_deadline() -> None:
    assert run_in_process(functions.add, (1, 1), 0.001).kind is OutcomeKind.TIMEOUT


def test_a_process_that_leaves_is_reported_with_its_exit_code(worker: Worker) -> None:
    outcome = worker.call(functions.leave, (7,), DEADLINE_S)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DIED, 7)
    assert "exit code 7" in outcome.message


def test_sys_exit_counts_as_leaving(worker: Worker) -> None:
    outcome = worker.call(functions.exit_politely, (), DEADLINE_S)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DIED, 5)


def test_a_segmentation_fault_is_named_and_the_next_call_runs(worker: Worker) -> None:
    outcome = worker.call(functions.segfault, (), DEADLINE_S)
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DIED, -11)
    assert "SIGSEGV" in outcome.message
    assert worker.call(functions.add, (1, 1), DEADLINE_S).value == 2


def test_an_exception_comes_back_with_type_message_and_traceback(worker: Worker) -> None:
    outcome = worker.call(functions.fail, (), DEADLINE_S)
    assert outcome.kind is OutcomeKind.ERROR
    assert (outcome.error_type, outcome.message) == ("ValueError", "planted")
    assert "process_functions.py" in outcome.traceback


def test_a_worker_that_raised_is_replaced(worker: Worker) -> None:
    pid = worker.call(functions.process_id, (), DEADLINE_S).value
    worker.call(functions.fail, (), DEADLINE_S)
    assert gone(pid)
    assert worker.call(functions.process_id, (), DEADLINE_S).value != pid


def test_a_huge_result_comes_back_whole(worker: Worker) -> None:
    size = 64 << 20
    outcome = worker.call(functions.huge, (size,), DEADLINE_S)
    assert outcome.kind is OutcomeKind.OK
    assert len(outcome.value) == size


def test_a_result_that_cannot_be_sent_is_an_error(worker: Worker) -> None:
    outcome = worker.call(functions.unpicklable, (), DEADLINE_S)
    assert outcome.kind is OutcomeKind.ERROR
    assert "can't be sent back" in outcome.message


def test_what_a_child_prints_stays_off_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_in_process(functions.chatter, (), DEADLINE_S).value == "answer"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "more noise" in captured.err


def test_closing_ends_the_process() -> None:
    worker = Worker()
    pid = worker.call(functions.process_id, (), DEADLINE_S).value
    worker.close()
    assert gone(pid)
    assert not worker.running


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), 9)", -9),
        ("os.kill(os.getpid(), 15)", -15),
        ("os.killpg(0, 15)", -15),
        ("sys.exit(0)", 0),  # nobody closed the worker
        ("raise KeyboardInterrupt", -2),
    ],
)
def test_a_child_at_work_leaves_however_its_parent_ends(end: str, code: int) -> None:
    script = (
        "import os, sys, time\n"
        f"sys.path[:0] = [{str(Path(__file__).parent)!r}, "
        f"{str(Path(kernels.process.__file__).parents[1])!r}]\n"
        "import process_functions as functions\n"
        "from kernels.process import Worker\n"
        "import threading\n"
        "if __name__ == '__main__':\n"
        "    worker = Worker()\n"
        "    print(worker.call(functions.process_id, (), 30).value, flush=True)\n"
        "    call = threading.Thread(\n"
        "        target=worker.call, args=(functions.hang_deaf_to_signals, (), 60), daemon=True\n"
        "    )\n"
        "    call.start()\n"
        "    time.sleep(0.5)\n"
        f"    {end}\n"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == code, done.stderr
    assert time.monotonic() - begun < 30
    pid = int(done.stdout)
    patience = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < patience:
        time.sleep(0.1)
    assert gone(pid)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("multiprocessing.context.SpawnContext.Pipe", OSError(errno.EMFILE, "Too many open files")),
        ("multiprocessing.context.SpawnProcess.start", OSError(errno.EAGAIN, "no process left")),
        ("threading.Timer.start", RuntimeError("can't start new thread")),
        (
            "multiprocessing.connection.Connection.send",
            OSError(errno.EMFILE, "Too many open files"),
        ),
        (
            "multiprocessing.connection.Connection.recv",
            OSError(errno.EMFILE, "Too many open files"),
        ),
    ],
)
def test_a_machine_with_nothing_left_to_give_is_an_outcome(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, target: str, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(target, refuse)
        outcome = worker.call(functions.add, (1, 1), DEADLINE_S)
    assert outcome.kind is OutcomeKind.DIED
    assert str(error) in outcome.message
    assert not worker.running
    assert worker.call(functions.add, (1, 1), DEADLINE_S).value == 2


def test_a_kill_from_another_thread_ends_the_call_under_way(worker: Worker) -> None:
    worker.call(functions.add, (1, 1), DEADLINE_S)
    timer = threading.Timer(0.2, worker.kill)
    timer.start()
    outcome = worker.call(functions.hang, (), DEADLINE_S)
    timer.join()
    assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DIED, -9)
    worker.kill()  # nothing to kill is no fault


def test_reports_reach_a_caller_that_listens(worker: Worker) -> None:
    heard: list[dict[str, object]] = []
    outcome = worker.call(functions.tell_and_add, (2, 3), DEADLINE_S, heard.append)
    assert outcome.value == 5
    assert heard == [{"stage": "first", "done": 2}, {"stage": "second", "done": 2}]
    assert worker.call(functions.tell_and_add, (2, 3), DEADLINE_S).value == 5
    assert len(heard) == 2


def test_a_halted_worker_ends_its_call_and_every_other_until_it_resumes(worker: Worker) -> None:
    worker.call(functions.add, (0, 0), DEADLINE_S)
    timer = threading.Timer(0.3, worker.halt)
    timer.start()
    assert worker.call(functions.hang, (), DEADLINE_S).exit_code == -signal.SIGKILL
    timer.join()
    for _ in range(2):
        outcome = worker.call(functions.add, (2, 3), DEADLINE_S)
        assert (outcome.kind, outcome.exit_code) == (OutcomeKind.DIED, -signal.SIGKILL)
    worker.resume()
    assert worker.call(functions.add, (2, 3), DEADLINE_S).value == 5


def test_a_process_sees_the_variables_it_is_given_and_its_successor_too() -> None:
    with Worker({"CUDA_VISIBLE_DEVICES": "GPU-1"}) as worker:
        for _ in range(2):
            seen = worker.call(functions.variable, ("CUDA_VISIBLE_DEVICES",), 30)
            assert seen.value == "GPU-1"
            worker.close()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "GPU-1"


def test_whoever_calls_hears_which_kernels_are_about_to_be_launched() -> None:
    with Worker() as worker:
        assert worker.call(functions.launches, ("a",), 30).value == "done"  # nobody listens
        heard: list[str] = []
        told: list[dict[str, object]] = []
        worker.on_launch = heard.append
        assert worker.call(functions.launches, ("a", "b", "a"), 30, told.append).value == "done"
    assert heard == ["a", "b", "a"]
    assert told == [{"stage": "timing"}]
