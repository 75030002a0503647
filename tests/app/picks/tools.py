"""A scratch repository with a picks file, and a GPU whose times a test sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.ops import hopper_kernel_id
from kernels.host import HostGpu
from kernels.process import Outcome, OutcomeKind
from kernels.worker import Task, TaskResult

H200 = HostGpu("NVIDIA H200", "GPU-0", "580.1", 141 << 30, (9, 0), 1980, ())
COMPARISON = "torch.mm of a fake"

PICKS = """
device = "h200"

[tolerances]
time = 0.05
regret = 0.1
top_k = 4

[[problems]]
name = "small"
m = 512
n = 512
k = 512

[[problems]]
name = "fp16"
m = 256
n = 384
k = 512
dtype = "fp16"
constraints = { config = { stages = { max = 4 } } }
"""


def scratch(folder: Path, text: str = PICKS) -> Path:
    """A picks file in a folder, without its lock."""
    path = folder / "picks.toml"
    path.write_text(text, "utf-8")
    return path


def lock_of(path: Path) -> Path:
    """The lock beside a picks file."""
    return path.with_name("picks.lock.json")


def locked(folder: Path, text: str = PICKS, *words: str) -> Path:
    """A picks file with the lock that the command makes."""
    path = scratch(folder, text)
    assert main(["lock", str(path), "--jobs", "1", *words]) == 0
    return path


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change the lock beside a picks file by hand, in the form that it has."""
    lock = lock_of(path)
    document = json.loads(lock.read_text("utf-8"))
    change(document)
    lock.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


def check(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[int, str]:
    """(exit code, standard output and error) of a check."""
    capsys.readouterr()
    code = main(["check", str(path), "--jobs", "1", *words])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def report(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> tuple[int, Any]:
    """(exit code, the report as JSON) of a check."""
    capsys.readouterr()
    code = main(["check", str(path), "--jobs", "1", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def steps_of(body: Any, name: str) -> dict[str, Any]:
    """A pick's steps by name."""
    (pick,) = (pick for pick in body["picks"] if pick["name"] == name)
    return {step["name"]: step for step in pick["steps"]}


@dataclass
class FakeGpu:
    """What a GPU process would answer. Times in µs; each interval is 1 % to either side.

    ``slower`` is a factor on every time of ours, ``machine`` one on cuBLAS's too; ``rival`` is the
    fastest other's time over ours; ``wrong`` is what the numerical check finds.
    """

    slower: float = 1.0
    machine: float = 1.0
    rival: float = 1.05
    width: float = 0.01
    wrong: str | None = None
    rival_wrong: str | None = None
    outcome: Outcome | None = None
    tasks: list[Task] = field(default_factory=list)

    def call_alone(self, worker: Any, uuid: str, function: Any, arguments: Any, *_: Any) -> Outcome:
        """In the place of ``kernels.verify.call_alone``."""
        (task,) = arguments
        self.tasks.append(task)
        return self.outcome or Outcome(OutcomeKind.OK, 0.1, value=self.result(task))

    def result(self, task: Task) -> TaskResult:
        facts = {
            "registers": 168,
            "kernel_id": hopper_kernel_id(task.problem, task.config),
            "nvrtc": "13.5",
            "gpu": H200.to_dict(),
            "sms": 132,
            "exact_draws": 2,
        }
        if self.wrong is not None:
            return TaskResult(failure=self.wrong, exact=False, **facts)
        time_us = 10.0 * self.slower * self.machine
        ratio = 1.0 / self.slower
        wide = (1 - self.width, 1 + self.width)
        return TaskResult(
            failure=None,
            exact=True,
            rel_error=1.7e-3,
            median_us=time_us,
            median_low_us=time_us * wide[0],
            median_high_us=time_us * wide[1],
            replays=40,
            comparison=COMPARISON,
            cublas_us=10.0 * self.machine,
            ratio_to_cublas=ratio,
            ratio_low=ratio * wide[0],
            ratio_high=ratio * wide[1],
            ratio_rounds=40,
            against=self._against(task) if task.against else None,
            **facts,
        )

    def _against(self, task: Task) -> dict[str, Any]:
        fastest, *_ = task.against
        ratio = None if self.rival_wrong else self.rival
        return {
            "config": fastest.to_dict(),
            "time_us": 10.0 * self.rival,
            "own_us": 10.0,
            "ratio": ratio,
            "low": None if ratio is None else ratio * (1 - self.width),
            "high": None if ratio is None else ratio * (1 + self.width),
            "rounds": 30,
            "note": None,
            "failure": self.rival_wrong,
            "tried": [{"config": other.to_dict()} for other in task.against],
        }
