"""The service beside a GPU, run as in production and killed: here with planted work in place of
launches, and the rules by which the run is judged."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import evidence, gpu_service
from bench.gpu_service import Site
from bench.hang_plants import PLANTS
from bench.records import RESULTS, read_record
from bench.report import PAGE
from bench.service_checks import Evidence, faults_of, hang_facts
from bench.service_page import http_part, load_part, service_part
from bench.service_run import Course, Kill, key_of
from bench.service_stand import StandUnusable, user_of
from bench.service_work import HANGING_KEY, WRONG_KEY, Asked, plant, work
from kernels.cache import KernelCache
from kernels.compile import check_compiled, compile_kernel
from kernels.sources import Variant
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import Problem
from tests.app.conftest import service
from tests.app.faults.planted_work import HANGS, JOURNAL
from tests.app.faults.running import body
from tests.app.races import H200, last_is_fastest, runner

DEVICE = load_profile("h200")
HANG = PLANTS["a missing release"]
JOBS = 50
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")


def planted(jobs: int, seed: int, _device: object) -> list[Asked]:
    """Work that sleeps, and one piece that hangs."""
    rng = random.Random(seed)
    asked = [Asked(body(rng.randrange(50, 200))) for _ in range(jobs)]
    asked.insert(jobs // 3, Asked(body(0, m=HANGS), "failed", "timeout"))
    return asked


SITE = Site(
    command=("-m", "tests.app.faults.planted_service"),
    folders=("tests/app/faults",),
    variables=lambda made: {JOURNAL: str(made.state / "journal")},
    plant=lambda cache: None,
    work=planted,
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "about", lambda commit: {"profile": "h200", "device": "a GPU"})


@pytest.fixture
def python() -> str:
    """An interpreter like this one that `nobody` can run."""
    user = user_of(None)
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            subprocess.run([path, "-c", ""], check=True, cwd="/", **user.options())
        except (OSError, subprocess.CalledProcessError):
            continue
        return path
    pytest.skip(
        f"the user nobody can run neither {sys.executable} nor Debian's Python of this version"
    )


@NEEDS_ROOT
@pytest.mark.alone
def test_a_service_of_another_user_is_killed_twice_with_a_hang_and_nothing_is_lost(
    gpu: None, python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "service_gpu.json"
    words = ["--out", str(out), "--jobs", str(JOBS), "--deadline-s", "3", "--python", python]
    code = gpu_service.main(words, SITE)
    record = json.loads(out.read_text("utf-8"))
    assert (code, record["faults"]) == (0, [])
    assert json.loads(capsys.readouterr().out)["passed"] == record["passed"] == JOBS
    assert (record["failed"], record["complete"]) == (1, True)
    assert record["stand"]["uid"] == user_of(None).uid
    assert record["stand"]["writable"] == ["state", "cache"]
    assert len(record["kills"]) == 2
    assert all(kill["next_end_s"] >= kill["ready_s"] > 0 for kill in record["kills"])
    [hang] = record["hangs"]
    assert (hang["status"], hang["reason"]) == ("failed", "timeout")
    assert hang["gpu_seconds"] >= 3
    assert hang["processes"] >= 1
    assert record["lost_runs"] == sum(row["attempts"] - 1 for row in record["rows"]) <= 2


@NEEDS_ROOT
@pytest.mark.alone
def test_what_is_wrong_is_told_recorded_and_1_with_the_log_beside_the_record(
    gpu: None, python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One verification must fail and passes; the budget is gone before another could begin."""
    wrong = replace(SITE, work=lambda *_: [Asked(body(0), "failed", "fault"), Asked(body(8000))])
    out = tmp_path / "service_gpu.json"
    words = ["--out", str(out), "--kills", "0", "--budget-s", "5", "--python", python]
    assert gpu_service.main(words, wrong) == 1
    record = json.loads(out.read_text("utf-8"))
    assert not record["complete"]
    told = capsys.readouterr().err
    for words_ in ("ended ('passed', None), not ('failed', 'fault')", "ended ('running', None)"):
        assert any(words_ in fault for fault in record["faults"])
        assert words_ in told
    assert "serving" in out.with_suffix(".log").read_text("utf-8")


@NEEDS_ROOT
def test_a_service_that_sees_no_gpu_is_told_and_the_exit_code_is_3(
    gpu: None, python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = replace(
        Site(),
        variables=lambda made: {"CUDA_VISIBLE_DEVICES": "-1"},
        plant=SITE.plant,
        work=planted,
    )
    with pytest.raises(SystemExit) as caught:
        gpu_service.main(["--out", str(tmp_path / "x.json"), "--python", python], hidden)
    assert caught.value.code == 3
    assert "the service sees no GPU as uid" in capsys.readouterr().err


@NEEDS_ROOT
def test_a_user_that_can_not_run_the_program_is_told_and_the_exit_code_is_3(
    gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / "python"  # pytest's folder is root's alone
    closed.symlink_to(sys.executable)
    with pytest.raises(SystemExit) as caught:
        gpu_service.main(["--out", str(tmp_path / "x.json"), "--python", str(closed)], SITE)
    assert caught.value.code == 3
    assert f"can't run {closed}" in capsys.readouterr().err


def test_without_root_it_says_so_and_leaves_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit) as caught:
        gpu_service.main(["--out", str(tmp_path / "x.json")])
    assert caught.value.code == 3
    assert "needs root" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--jobs", "19"], ["--kills", "101"], ["--kills", "-1"]])
def test_wrong_numbers_are_2(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        gpu_service.main(["--out", str(tmp_path / "x.json"), *words])
    assert caught.value.code == 2


def test_root_is_no_user_for_the_service() -> None:
    with pytest.raises(StandUnusable, match="another user than root"):
        user_of(0)


def test_the_work_is_seeded_legal_and_of_many_kinds_with_the_planted_kernels_apart() -> None:
    asked = work(200, 1, DEVICE)
    assert asked == work(200, 1, DEVICE) != work(200, 2, DEVICE)
    assert len(asked) == 201
    reasons = [each.reason for each in asked if each.reason]
    assert sorted(reasons) == ["timeout", "wrong_result", "wrong_result", "wrong_result"]
    sound = [each.body for each in asked if each.status == "passed"]
    assert sum("config" not in each for each in sound) == 24
    for member, least in (("layout", 4), ("dtype", 2), ("out_dtype", 3), ("priority", 3)):
        assert len({each[member] for each in sound}) == least
    members = set(Problem(1, 1, 1).to_dict())
    for each in filter(lambda each: "config" in each, sound):
        problem = Problem(**{name: each[name] for name in members})
        config = Config.from_dict(each["config"])
        key = family.compile_key(config, problem.dtype, problem.kernel_layout)
        assert key not in (HANGING_KEY, WRONG_KEY)


def test_the_service_takes_every_question_of_the_work() -> None:
    asked = work(40, 3, DEVICE)
    with service(H200, runner(last_is_fastest), verifications_waiting=len(asked)) as client:
        for each in asked:
            answer = client.post("/v1/verifications", json=each.body)
            assert answer.status_code == 202, answer.json()


def test_planted_kernels_are_found_in_the_cache_where_the_service_looks(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "planted")
    plant(cache)
    for key, variant in (
        (HANGING_KEY, Variant.SHIPPED),
        (HANGING_KEY, Variant.DEBUG),
        (WRONG_KEY, Variant.SHIPPED),
    ):
        found = compile_kernel(key, cache=cache, variant=variant)
        sound = compile_kernel(key, cache=KernelCache(tmp_path / "sound"), variant=variant)
        assert found.from_cache
        assert found.cubin != sound.cubin
        assert (found.kernel_id, found.smem_bytes_by_stages) == (
            sound.kernel_id,
            sound.smem_bytes_by_stages,
        )
        if variant is Variant.SHIPPED:
            check_compiled(found, Config(family.NAME, 64, 64, 64, 4), DEVICE)


def job(number: int, status: str = "passed", reason: str | None = None, **more: Any) -> Any:
    """A verification that ran from its number's second for half of one."""
    return {
        "id": f"{number:032x}",
        "status": status,
        "reason": reason,
        "priority": "normal",
        "attempts": 1,
        "started_at": f"2026-01-01T00:00:0{number}.000+00:00",
        "finished_at": f"2026-01-01T00:00:0{number}.500+00:00",
        "result": {},
        **more,
    }


def launch(of: Mapping[str, Any], attempt: int = 1, outcome: str | None = None) -> dict[str, Any]:
    done = outcome or of["status"]
    return {"job_id": of["id"], "attempt": attempt, "outcome": done, "gpu_seconds": 1.0}


HUNG = {
    **HANG.expected(),
    **{n: [{"cta": c, "warp": w} for c, w in HANG.expected()[n]] for n in ("waiting", "needs")},
    "culprits": [],
    "lines": ["Cause: planted."],
}
GONE = 2**22 + 1
"""A process; this id is beyond the highest that Linux gives."""


def as_it_must_be() -> Evidence:
    """Three questions, of which the second hangs and the third ran twice."""
    asked = [Asked({}), Asked({}, "failed", "timeout", HANG.expected()), Asked({})]
    jobs = [job(0), job(1, "failed", "timeout", result={"hang": HUNG}), job(2, attempts=2)]
    accepted = {key_of(n): each["id"] for n, each in enumerate(jobs)}
    course = Course(
        accepted=accepted,
        kills=[Kill(0, key_of(2), 1.0, 2.0)],
        launched_by={
            jobs[0]["id"]: {GONE: 7},
            jobs[1]["id"]: {GONE: 7},
            jobs[2]["id"]: {GONE + 1: 7},
        },
        service_uids={7},
    )
    launches = [launch(jobs[0]), launch(jobs[1]), launch(jobs[2], 1, "lost"), launch(jobs[2], 2)]
    return Evidence(asked, course, jobs, launches, dict(accepted), 7, 1)


def recorded(**more: Any) -> dict[str, Any]:
    """A record of that run."""
    chosen = Namespace(seed=1, deadline_s=45.0)
    facts = {"device": "NVIDIA H200", "driver": "580", "date": "2026-01-01T00:00:00", "commit": "c"}
    ended = gpu_service.Ended(as_it_must_be(), True, 0, [])
    stand = {"uid": 7, "gid": 7, "groups": [], "writable": ["state", "cache"]}
    return facts | {"stand": stand} | gpu_service.record_of(ended, chosen) | more


def test_the_page_says_what_was_recorded() -> None:
    part = service_part(recorded())
    assert "3 verifications in 0 s: 2 passed, 0 of a kernel that was planted to be wrong" in part
    assert "Every verdict was the right one" in part
    assert (
        "1 times while one was verified: ready again after 1.0 s, the next verdict after 2.0 s; 1"
        in part
    )
    assert "the next verification began 0.5 s later. Cause: planted." in part
    assert "As uid 7" in part
    wrong = service_part(recorded(faults=["verification 1 is lost"]))
    assert "**Not as it must be**: verification 1 is lost." in wrong
    assert "Not run: `bench.gpu_service`" in service_part(None)
    with pytest.raises(SystemExit, match="cut short"):
        service_part(recorded(complete=False))


def test_a_run_as_it_must_be_has_no_fault_and_says_what_became_of_the_hang() -> None:
    found = as_it_must_be()
    assert faults_of(found) == []
    [hang] = hang_facts(found)
    assert hang["next_begun_s"] == 0.5
    assert (hang["processes"], hang["lines"]) == (1, ["Cause: planted."])


def spoilt(words: str) -> Evidence:
    """The same with one thing wrong."""
    found = as_it_must_be()
    first, second, third = found.jobs
    match words:
        case "was not accepted":
            del found.course.accepted[key_of(0)]
        case "two questions have one verification":
            found.course.accepted[key_of(0)] = third["id"]
        case "is lost":
            return replace(found, jobs=[first, second])
        case "is nobody's":
            return replace(found, jobs=[*found.jobs, job(9)])
        case "listed twice":
            return replace(found, jobs=[*found.jobs, third])
        case "asked once more":
            return replace(found, repeated={})
        case "ended ('failed', 'fault'), not ('passed', None): it broke":
            first |= {"status": "failed", "reason": "fault", "result": {"details": "it broke"}}
        case "says of the hang None":
            second["result"] = {}
        case "says of the hang":
            second["result"] = {"hang": HUNG | {"barrier": "full[0]"}}
        case "ran 2 times":
            return replace(found, launches=found.launches[:-1])
        case "its runs were":
            found.launches[0]["outcome"] = "failed"  # type: ignore[index]
        case "runs were lost":
            found.course.kills.clear()
        case "kills came while":
            return replace(found, kills=2)
        case "not as 7 alone":
            found.course.launched_by[first["id"]] = {GONE: 0}
        case "no process was seen":
            del found.course.launched_by[second["id"]]
        case "outlived the hang":
            found.course.left.add(GONE)
        case "in which a kernel had hung":
            found.course.launched_by[third["id"]] = {GONE: 7}
    return found


@pytest.mark.parametrize(
    "words",
    [
        "was not accepted",
        "two questions have one verification",
        "is lost",
        "is nobody's",
        "listed twice",
        "asked once more",
        "ended ('failed', 'fault'), not ('passed', None): it broke",
        "says of the hang None",
        "says of the hang",
        "ran 2 times",
        "its runs were",
        "runs were lost",
        "kills came while",
        "not as 7 alone",
        "no process was seen",
        "outlived the hang",
        "in which a kernel had hung",
    ],
)
def test_what_is_not_as_it_must_be_is_told(words: str) -> None:
    assert any(words in fault for fault in faults_of(spoilt(words)))


def test_the_load_is_told_as_it_was_measured() -> None:
    record = read_record(RESULTS / "service" / "load.json")
    part = load_part(record)
    assert f"{record['cached_ratio']:.2f} of a bare route" in part
    assert f"{record['uncached_errors']} errors" in part
    assert part in PAGE.read_text("utf-8")
    assert "not run" in load_part(None)


def test_suites_over_http_are_told_with_what_failed_and_what_is_missing() -> None:
    rows = [
        {"proof": "optimal", "status": "passed"},
        {"proof": "optimal", "status": "failed"},
        {"proof": "unknown", "status": "passed"},
    ]
    record = {
        "command": "python -m bench.http_verify llm",
        "device": "NVIDIA H200",
        "date": "2026-12-01T06:17:03+00:00",
        "planned": 3,
        "complete": True,
        "rows": rows,
    }
    part = http_part(record)
    assert "3 problems, 2 picks proved, 2 passed" in part
    assert "3 problems of 4, cut short" in http_part(record | {"planned": 4, "complete": False})
    assert "not run" in http_part(None)
