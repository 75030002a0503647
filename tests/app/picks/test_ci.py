"""The GitHub Action and the GitLab template: their steps run in a scratch repository, pip alone
replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.main import main
from tests.app.conftest import application
from tests.app.live import serving
from tests.app.picks.tools import H200, PICKS, FakeGpu, edit, locked, scratch

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
GITLAB = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text("utf-8"))
BASH = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]  # as GitHub runs `shell: bash`

# In the place of python3: makes a folder that looks like a virtual environment, whose pip writes
# down what it was to install and whose warpwright is this checkout's.
PYTHON3 = f"""#!{sys.executable}
import pathlib, stat, sys
venv, = sys.argv[3:]
assert sys.argv[1:3] == ["-m", "venv"]
folder = pathlib.Path(venv, "bin")
folder.mkdir(parents=True)
for name, words in (
    ("python", 'echo "$@" >> "$PIP_LOG"'),
    ("warpwright", '''exec {sys.executable} -m app.cli.main "$@"'''),
):
    file = folder / name
    file.write_text("#!/bin/sh\\n" + words + "\\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
"""


@dataclass
class Runner:
    """A CI system's machine: a repository, and variables that steps hand on."""

    repository: Path
    home: Path
    variables: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    said: str = ""

    def __post_init__(self) -> None:
        tools = self.home / "tools"
        tools.mkdir()
        (tools / "python3").write_text(PYTHON3)
        (tools / "python3").chmod(0o755)
        self.path = [str(tools), os.environ["PATH"]]

    def sh(self, script: str, env: Mapping[str, str]) -> int:
        """Run a script; its exit code. What it said is kept."""
        (self.home / "script.sh").write_text(script, "utf-8")
        environment = {
            "PATH": os.pathsep.join(self.path),
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "PIP_LOG": str(self.home / "pip.log"),
            "WARPWRIGHT_CACHE": os.environ.get("WARPWRIGHT_CACHE", str(self.home / "cache")),
            "LANG": "C.UTF-8",
            "CUDA_VISIBLE_DEVICES": "",
            **self.variables,
            **env,
        }
        run = subprocess.run(
            [*BASH, str(self.home / "script.sh")],
            cwd=self.repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        self.said += run.stdout + run.stderr
        return run.returncode

    @property
    def installed(self) -> list[str]:
        """What pip was told."""
        return (self.home / "pip.log").read_text().splitlines()


def run_action(runner: Runner, **inputs: str) -> int:
    """Run the Action's steps, as GitHub does, up to the first that fails; the last exit code."""
    given = {name: str(spec.get("default", "")) for name, spec in ACTION["inputs"].items()}
    assert set(inputs) <= set(given)
    given |= inputs
    files = {name: runner.home / name for name in ("GITHUB_PATH", "GITHUB_OUTPUT", "summary.md")}
    for file in files.values():
        file.touch()
    runner.variables |= {
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_WORKSPACE": str(runner.repository),
        "GITHUB_PATH": str(files["GITHUB_PATH"]),
        "GITHUB_OUTPUT": str(files["GITHUB_OUTPUT"]),
        "GITHUB_STEP_SUMMARY": str(files["summary.md"]),
        "RUNNER_TEMP": str(runner.home / "temp"),
    }
    code = 0
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # an input's text must not become the script's
        env = {name: expanded(value, given) for name, value in step["env"].items()}
        code = runner.sh(step["run"], env)
        added = files["GITHUB_PATH"].read_text().split()
        runner.path = [*added, *(each for each in runner.path if each not in added)]
        if code:
            break
    lines = files["GITHUB_OUTPUT"].read_text().splitlines()
    runner.outputs = dict(line.split("=", 1) for line in lines)
    return code


def expanded(value: str, inputs: Mapping[str, str]) -> str:
    """``value`` with what GitHub puts into it."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A machine whose repository has a picks file and its lock."""
    repository, home = tmp_path / "repository", tmp_path / "home"
    repository.mkdir()
    home.mkdir()
    locked(repository)
    return Runner(repository, home)


def picks_of(runner: Runner) -> Path:
    return runner.repository / "picks.toml"


def test_the_actions_steps_pass_and_leave_xml_a_summary_and_outputs(runner: Runner) -> None:
    assert run_action(runner) == 0, runner.said
    assert "2 of 2 picks hold" in runner.said
    assert runner.outputs == {"exit-code": "0", "junit": "warpwright.xml"}
    root = ElementTree.parse(runner.repository / "warpwright.xml").getroot()
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    assert "compile" in {case.get("name") for case in root.iter("testcase")}
    assert "2 of 2 picks hold" in (runner.home / "summary.md").read_text("utf-8")
    hashed, build, own = runner.installed
    assert hashed.endswith(f"--require-hashes -r {ROOT}/requirements/gpu.txt")
    assert build.endswith(f"--require-hashes -r {ROOT}/requirements/build.txt")
    assert own.endswith(f"--no-deps --no-build-isolation {ROOT}")


def changed(runner: Runner) -> None:
    scratch(runner.repository, PICKS.replace("m = 512", "m = 64"))


def illegal(runner: Runner) -> None:
    edit(picks_of(runner), lambda d: d["picks"][0]["config"].update(stages=99))


def stale(runner: Runner) -> None:
    edit(picks_of(runner), lambda d: d.update(model_version="2"))


def damaged(runner: Runner) -> None:
    (runner.repository / "picks.lock.json").write_text("<<<<<<< HEAD\n")


def missing(runner: Runner) -> None:
    picks_of(runner).unlink()


@pytest.mark.parametrize(
    ("fault", "inputs", "code", "words"),
    [
        (changed, {}, 1, "since: problem: m 512 → 64"),
        (illegal, {}, 1, "::error file=picks.lock.json,line=11,title=warpwright%3A small::lock: "),
        (stale, {}, 1, "the lock is stale: model version 2 → "),
        (damaged, {}, 2, "picks.lock.json: is no JSON: "),
        (missing, {}, 2, "picks.toml: can't be read: No such file or directory"),
        (None, {"gpu": "true"}, 3, "no NVIDIA GPU: CUDA_VISIBLE_DEVICES is ''"),
        (None, {"server": "http://127.0.0.1:9"}, 3, "no service answers at http://127.0.0.1:9"),
        (None, {"gpu": "true", "server": "http://127.0.0.1:9"}, 2, "not allowed with argument"),
        (None, {"gpu": "True"}, 2, "::error title=warpwright::gpu must be 'true' or 'false'"),
        (None, {"static": "yes"}, 2, "::error title=warpwright::static must be 'true' or 'false'"),
        (None, {"gpu": "::x"}, 2, "gpu must be 'true' or 'false'"),
        (None, {"picks": "--help"}, 2, "--help: can't be read"),
        (None, {"picks": "$(touch pwned)"}, 2, "$(touch pwned): can't be read"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_fault_fails_the_action_with_its_exit_code_and_words(
    runner: Runner, fault: Any, inputs: dict[str, str], code: int, words: str
) -> None:
    if fault is not None:
        fault(runner)
    got = run_action(runner, **({"static": "false"} | inputs))
    assert got == code, runner.said
    assert runner.outputs["exit-code"] == str(code)
    assert words in " ".join(runner.said.split())
    assert not (runner.repository / "pwned").exists()


def slower(gpu: FakeGpu) -> None:
    gpu.slower = 1.2


def wrong(gpu: FakeGpu) -> None:
    gpu.wrong = "exact round: 3 elements wrong"


def not_the_fastest(gpu: FakeGpu) -> None:
    gpu.rival = 0.8


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (None, 0, "2 of 2 picks hold"),
        (slower, 1, "small::time: slower: 12.00 µs against the lock's 10.00: +20.0%25"),
        (wrong, 1, "small::numerics: wrong_result: exact round: 3 elements wrong"),
        (not_the_fastest, 1, "small::regret: not the fastest: +25.0%25"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_action_has_a_service_run_the_kernels(
    runner: Runner, fake_gpu: FakeGpu, fault: Any, code: int, words: str
) -> None:
    with application(H200) as app, serving(app) as port:
        server = f"http://127.0.0.1:{port}"
        assert main(["lock", str(picks_of(runner)), "--jobs", "1", "--server", server]) == 0
        if fault is not None:
            fault(fake_gpu)
        got = run_action(runner, server=server, static="false")
    assert got == code, runner.said
    assert words in runner.said


def source(home: Path) -> Path:
    """A Git repository that the GitLab job can fetch Warpwright from: what its steps read."""
    folder = home / "source"
    (folder / "requirements").mkdir(parents=True)
    for name in ("gpu.txt", "build.txt"):
        (folder / "requirements" / name).write_text("")
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "x"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    return folder


def run_gitlab(runner: Runner, **variables: str) -> int:
    """Run the GitLab job's steps in one shell, as its runner does; the exit code."""
    job = GITLAB["warpwright"]
    runner.variables |= {"GITLAB_CI": "true", "CI": "true"}
    env = {name: str(value) for name, value in job["variables"].items()} | variables
    return runner.sh("\n".join([*job["before_script"], *job["script"]]), env)


def test_the_gitlab_job_passes_and_leaves_its_report(runner: Runner) -> None:
    address = f"file://{source(runner.home)}"
    assert run_gitlab(runner, WARPWRIGHT_SOURCE=address) == 0, runner.said
    assert "2 of 2 picks hold" in runner.said
    assert "::" not in runner.said
    report = GITLAB["warpwright"]["artifacts"]["reports"]["junit"]
    assert ElementTree.parse(runner.repository / report).getroot().get("failures") == "0"
    assert [line.split()[-1].rpartition("/")[2] for line in runner.installed] == [
        "gpu.txt",
        "build.txt",
        "source",
    ]


def test_the_gitlab_job_fails_with_the_checks_exit_code(runner: Runner) -> None:
    illegal(runner)
    address = f"file://{source(runner.home)}"
    assert run_gitlab(runner, WARPWRIGHT_SOURCE=address) == 1, runner.said
    words = "--gpu"
    assert run_gitlab(runner, WARPWRIGHT_SOURCE=address, WARPWRIGHT_WORDS=words) == 3
    assert run_gitlab(runner) == 3
    assert "WARPWRIGHT_SOURCE must be set" in runner.said
