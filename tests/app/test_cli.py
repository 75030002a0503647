"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.schemas.answers import OptimizeAnswer, SimulateAnswer
from kernels.errors import CompilerAbsent
from solver.problem import Problem

CONFIG = {
    "family": "sm90_gemm",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 4,
    "math_warpgroups": 1,
}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """(exit code, standard output as JSON)."""
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_optimize_prints_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = run_json(capsys, "optimize", "4096", "4096", "4096")
    assert code == 0
    assert OptimizeAnswer.model_validate(body).proof.status == "optimal"


def test_optimize_prints_a_table_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "512", "512", "512", "--top-k", "3", "--proof", "none"]) == 0
    out = capsys.readouterr().out
    assert "predicted time" in out
    assert "not_requested" in out


def test_simulate_takes_a_configuration_or_a_file_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, body = run_json(capsys, "simulate", "512", "512", "512", "--config", json.dumps(CONFIG))
    assert code == 0
    SimulateAnswer.model_validate(body)
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(body))
    again = run_json(capsys, "simulate", "512", "512", "512", "--config", f"@{file}")
    assert again == (0, body)
    assert main(["simulate", "512", "512", "512", "--config", json.dumps(CONFIG)]) == 0
    assert "gap to optimum" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["optimize", "0", "8", "8"], "m"),
        (["optimize", "8", "-5", "8"], "n"),
        (["optimize", "8", "8", "8.0"], "k"),
        (["optimize", "8", "8", "2147483648"], "k"),
        (["optimize", "8", "8", "8", "--dtype", "fp64"], "dtype"),
        (["optimize", "8", "8", "8", "--layout", "xy"], "layout"),
        (["optimize", "8", "8", "8", "--out-dtype", "fp64"], "out_dtype"),
        (["optimize", "8", "8", "8", "--lda", "7"], "lda"),
        (["explain", "8", "8", "8", "--ldb", "0"], "ldb"),
        (["verify", "8", "8", "8", "--ldc", "7"], "ldc"),
        (["verify", "8", "8", "8", "--out-dtype", "fp32", "--c-offset", "4"], "c_offset"),
        (["compile", "8", "8", "8", "--a-offset", "8"], "a_offset"),
        (["simulate", "8", "8", "8", "--config", "{}", "--b-offset", "1.0"], "b_offset"),
        (["optimize", "8", "8", "8", "--device", "none"], "device"),
        (["optimize", "8", "8", "8", "--model", "none"], "model"),
        (["optimize", "8", "8", "8", "--top-k", "65"], "top_k"),
        (["optimize", "8", "8"], "k"),
        (["optimise"], "arguments"),
        (["simulate", "8", "8", "8", "--config", "{"], "config"),
        (["simulate", "8", "8", "8", "--config", "@/no/such/file"], "config"),
        (["simulate", "8", "8", "8", "--config", '{"family":"x"}'], "config.tile_m"),
        (["bench", "solve", "--suite", "none"], "suite"),
        (["serve", "--port", "65536"], "port"),
        (["simulate", "8", "8", "8", "--config", "[" * 100_000], "config"),
        (["simulate", "8", "8", "8", "--config", '{"a":' * 100_000], "config"),
        (["simulate", "8", "8", "8", "--config", "9" * 5000], "config"),
        (["simulate", "8", "8", "8", "--config", "@\0"], "config"),
        (["optimize", "8", "8", "9" * 5000], "k"),
        (["optimize", "8", "8", "8", "--top", "3"], "arguments"),
        (["bench", "solve", "--sui", "llm"], "arguments"),
    ],
)
def test_bad_input_exits_2_and_names_the_field(
    capsys: pytest.CaptureFixture[str], words: list[str], field: str
) -> None:
    code, body = run_json(capsys, *words)
    assert code == 2
    assert body["status"] == 422
    assert body["errors"][0]["field"] == field
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{field}: " in captured.err


LAID_OUT = {
    "dtype": "fp16",
    "layout": "tt",
    "out_dtype": "fp32",
    "lda": 80,
    "ldb": 53,
    "ldc": 51,
    "a_offset": 1,
    "b_offset": 2,
    "c_offset": 3,
}
OPTIONS = [
    word for name, value in LAID_OUT.items() for word in (f"--{name.replace('_', '-')}", str(value))
]


def test_how_operands_lie_is_told_by_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    size = ("30", "50", "77")
    config = ("--config", json.dumps(CONFIG))
    for words in (
        ["optimize", *size, "--proof", "none"],
        ["explain", *size, "--proof", "none"],
        ["simulate", *size, *config],
    ):
        code, body = run_json(capsys, *words, *OPTIONS)
        assert code == 0
        assert body["problem"] == {"m": 30, "n": 50, "k": 77, **LAID_OUT}
        assert body["copied_operands"] == ["a", "b"]
        if words[0] == "explain":
            out = " ".join(body["text"])
        else:
            assert main([*words, *OPTIONS]) == 0
            out = capsys.readouterr().out
        assert (
            "30 x 50 x 77 in fp16 (tt, C in fp32, lda 80, ldb 53, ldc 51, a_offset 1, b_off" in out
        )
        assert "A and B" in out


def test_verify_without_a_gpu_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = run_json(capsys, "verify", "512", "512", "512")
    assert code == 3
    assert body["type"] == "urn:warpwright:problem:gpu-absent"


def test_compile_without_the_compiler_exits_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: Any) -> None:
        raise CompilerAbsent("NVRTC is not installed")

    monkeypatch.setattr("app.cli.gpu.compile_kernel", absent)
    code, body = run_json(capsys, "compile", "512", "512", "512")
    assert code == 3
    assert body["type"] == "urn:warpwright:problem:compiler-absent"


def test_compile_writes_the_cubin_and_reports_the_compilers_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "kernel.cubin"
    code, body = run_json(capsys, "compile", "512", "512", "512", "--out", str(file))
    assert code == 0
    assert file.read_bytes()[:4] == b"\x7fELF"
    assert body["spill_bytes"] == 0
    assert body["cubin_bytes"] == file.stat().st_size


def test_a_defect_exits_70_and_shows_its_trace_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("app.answers.optimize", broken)
    code, body = run_json(capsys, "optimize", "8", "8", "8")
    assert code == 70
    assert body["status"] == 500
    assert "inside" not in json.dumps(body)


def test_devices_lists_the_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = run_json(capsys, "devices")
    assert code == 0
    assert body["host"] is None
    assert "h200" in [device["name"] for device in body["devices"]]
    assert main(["devices"]) == 0
    shown = capsys.readouterr().out
    assert "absent" in shown
    for device in body["devices"]:
        for name in (device["name"], *device["families"], *device["models"]):
            assert re.search(rf"(^|\s){re.escape(name)}(\s|$)", shown), name


def test_bench_solve_reports_its_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = tmp_path / "two.csv"
    suite.write_text("m,n,k\n512,512,512\n4096,4096,4096\n")
    code, body = run_json(capsys, "bench", "solve", "--suite", str(suite))
    assert code == 0
    assert body["shapes"] == body["optimal"] == 2
    assert {
        "p50_ms",
        "p99_ms",
        "pick_p50_ms",
        "space_min",
        "space_p50",
        "startup_s",
        "rss_mb",
        "reference_ms",
    } <= set(body)


def test_bench_plan_makes_a_file_that_the_bench_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from kernels.bench_plan import read_plan

    suite, out = tmp_path / "one.csv", tmp_path / "plan.json"
    suite.write_text("m,n,k,dtype,layout,out_dtype,lda,c_offset\n512,512,512,fp16,nt,fp32,520,3\n")
    code, body = run_json(
        capsys, "bench", "plan", "--suite", str(suite), "--best", "3", "--out", str(out)
    )
    assert (code, body["rows"]) == (0, 4)
    plan = read_plan(out)
    assert [row.role for row in plan.rows] == ["pick", "best", "best", "best"]
    assert plan.rows[0].config == plan.rows[1].config
    problem = Problem(512, 512, 512, "fp16", "nt", "fp32", lda=520, c_offset=3)
    assert {row.problem for row in plan.rows} == {problem}
    assert plan.source_hash
    assert [len(job) for job in plan.jobs()] == [1, 3]


def test_bench_compile_holds_a_sample_to_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = run_json(capsys, "bench", "compile", "--sample", "2", "--seed", "1")
    assert code == 0
    assert body["configs"] == 2
    for name in ("failed", "spilled", "smem_mismatch", "register_mismatch"):
        assert body[name] == 0


def test_a_nested_file_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 200_000)
    code, body = run_json(capsys, "simulate", "8", "8", "8", "--config", f"@{file}")
    assert code == 2
    assert "nested too deeply" in body["errors"][0]["message"]


def test_a_wrong_variable_is_named_by_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_PORT", "tcp://10.0.0.1:8000")
    code, body = run_json(capsys, "serve")
    assert (code, body["errors"][0]["field"]) == (2, "WARPWRIGHT_PORT")


DEVICES, HELP, VERSION, WRONG = ["devices"], ["--help"], ["--version"], ["optimize", "0", "8", "8"]


def shell(
    redirection: str, words: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, its standard output as the shell was told."""
    command = f'exec "$0" -m app.cli.main "$@" {redirection}'
    return subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    "words", [DEVICES, [*DEVICES, "--json"], HELP, VERSION, [*WRONG, "--json"]]
)
def test_an_output_that_cannot_be_written_exits_3_and_says_so(
    redirection: str, words: list[str]
) -> None:
    done = shell(redirection, words)
    assert done.returncode == 3
    assert "error: standard output" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [DEVICES, [*DEVICES, "--json"], HELP, [*WRONG, "--json"]])
def test_a_reader_that_has_gone_is_no_fault(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    words = " ".join(capsys.readouterr().out.partition("Exit codes")[2].split())
    assert all(f" {code} " in words for code in (0, 1, 2, 3, 70, 130, 141))


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_any_locale_gets_its_answer(more: list[str]) -> None:
    words = ["simulate", "512", "512", "512", "--config", json.dumps(CONFIG), *more]
    done = shell("", words, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


UNUSED = ("z3", "fastapi", "uvicorn", "sqlalchemy", "cupy")


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (HELP, UNUSED),
        (VERSION, UNUSED),
        (["bench", "protocol", "--help"], UNUSED),
        (["optimize", "64", "64", "64", "--proof", "none"], UNUSED),
        (["optimize", "64", "64", "64"], ("fastapi", "uvicorn", "sqlalchemy", "cupy")),
    ],
)
def test_a_command_waits_for_no_library_that_it_does_not_use(
    words: list[str], unused: tuple[str, ...]
) -> None:
    program = f"""
import sys
from app.cli.main import main
code = main({words})
loaded = [name for name in {unused} if name in sys.modules]
sys.exit(f"{{loaded}} loaded" if loaded else code)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
