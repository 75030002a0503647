"""The faults planted for compute-sanitizer, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import gpu_sanitize
from bench.branch_pairs import counted
from bench.branches import AXES
from bench.gemm_plants import COPY, GEMM, PLANTS, flag_tells
from bench.gpu_sanitize import SUITES, Checked, Verdict, compile_first, report, under, verdict
from bench.patch import Patch
from bench.sanitize_gemm import SUITE, clean_pairs, split_pairs
from bench.sanitize_suite import ALL, ENDED, TOOLS, Suite, label
from kernels.compile import build_kernel
from kernels.launch_plan import plan_launch
from kernels.sources import headers
from solver.device import load_profile
from solver.families import sm90_gemm_legality as legality

PATCHED = [name for name, plant in PLANTS.items() if plant.patch is not None]
BANNER = "========= COMPUTE-SANITIZER\n"
CLEAN = f"{BANNER}{ENDED}\n========= ERROR SUMMARY: 0 errors\n"
FAULT = (
    BANNER
    + "========= Invalid __global__ write of size 2 bytes\n=========     at sm90_gemm+0x1a0\n"
    + "========= \n========= ERROR SUMMARY: 1 error\n"
)


def test_every_tool_has_plants_and_every_plant_is_legal() -> None:
    assert {plant.tool for plant in PLANTS.values()} == set(TOOLS)
    for plant in PLANTS.values():
        pair = plant.pair
        legality.check(pair.config, pair.problem, load_profile("h200"))
        plan = plan_launch(pair.problem, pair.config, pair.sms)
        assert plan.a.copied == (plant.kernel == COPY)


@pytest.mark.parametrize("name", PATCHED)
def test_a_patch_changes_the_kernel_and_it_still_compiles(name: str) -> None:
    plant = PLANTS[name]
    assert plant.patch is not None
    planted = build_kernel(plant.pair.key, patched=plant.patch.applied(headers()))
    assert planted.cubin != build_kernel(plant.pair.key).cubin


def test_every_planted_race_says_between_what_it_is() -> None:
    for plant in PLANTS.values():
        assert bool(plant.raced) == (plant.tool == "racecheck"), plant.what


def test_a_flag_that_tells_is_another_kernel_where_several_warpgroups_read_it() -> None:
    assert split_pairs()
    for pair in split_pairs():
        assert (pair.config.split_k > 1, pair.config.math_warpgroups > 1) == (True, True)
    told = build_kernel(split_pairs()[0].key, patched=flag_tells())
    assert told.cubin != build_kernel(split_pairs()[0].key).cubin
    epilogue = flag_tells()["sm90_gemm_epilogue.cuh"]
    assert epilogue.count("unit.tile) * args.split_k + unit.split") == 2, "put, and told again"


def test_a_patch_whose_text_has_gone_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"does not hold once: no such text"):
        Patch("sm90_gemm.cuh", "no such text", "").applied(headers())


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.family)
def test_kernels_are_compiled_before_any_checker_runs(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path))
    first = suite.keys()[:1]
    compile_first(replace(suite, keys=lambda: first))
    assert len(list(tmp_path.rglob("*.bin"))) == 1


def test_clean_launches_take_every_branch_three_times() -> None:
    clean = clean_pairs()
    counts = counted(clean)
    missing = [
        f"{axis}={value}"
        for axis, values in AXES.items()
        for value in values
        if counts.get(f"{axis}={value}", 0) < 3
    ]
    assert missing == []
    assert len(clean) <= 80


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [
        (CLEAN, 0, "clean"),
        (FAULT, 86, "found"),
        (FAULT, None, "found"),  # reported, and then it hung
        (FAULT.replace("sm90_gemm", "cupy_copy"), 86, "broken"),
        (CLEAN, 1, "broken"),
        (BANNER, None, "broken"),
        ("Traceback (most recent call last):\nImportError: no\n", 1, "broken"),
        (CLEAN.replace(ENDED, ""), 0, "broken"),
        (BANNER + ENDED + "\n========= RACECHECK SUMMARY: 0 hazards displayed\n", 0, "clean"),
    ],
)
def test_a_run_under_a_checker_is_judged_by_what_it_reports(
    output: str, code: int | None, expected: str
) -> None:
    found = verdict(output, code, (GEMM,))
    assert found.outcome == expected
    assert found.words
    assert found.ended == (ENDED in output)
    assert found.hazards == ()


def test_what_a_checker_reported_before_its_launch_hung_counts(tmp_path: Path) -> None:
    checker = tmp_path / "checker"
    checker.write_text(f"#!/bin/sh\ncat <<'END'\n{FAULT}END\nexec sleep 60\n", "utf-8")
    checker.chmod(0o755)
    outcome, words, *_ = under(str(checker), "memcheck", (GEMM,), ("plant",), timeout_s=1)
    assert (outcome, words.split(" ")[0]) == ("found", "Invalid")
    checker.write_text(f"#!/bin/sh\necho '{BANNER}'\nexec sleep 60\n", "utf-8")
    outcome, words, *_ = under(str(checker), "memcheck", (GEMM,), ("plant",), timeout_s=1)
    assert outcome == "broken"
    assert words.startswith("killed: ")
    assert words.endswith("no end after 1 s")


def test_a_fault_in_a_clean_launch_is_told_with_the_launch() -> None:
    output = "launch: first\nlaunch: second\n" + FAULT + "launch: third\n"
    outcome, words, *_ = verdict(output, 86, (GEMM,))
    assert outcome == "found"
    assert words.endswith("; launch: second")
    assert "Invalid __global__ write of size 2 bytes | at sm90_gemm+0x1a0" in words


def test_checkers_run_the_suite_s_module(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    def ran(
        _sanitizer: str, tool: str, _kernels: object, launched: tuple[str, ...], _timeout_s: int
    ) -> Verdict:
        asked.append((tool, launched))
        return Verdict("found" if "clean" not in launched else "clean", "words")

    monkeypatch.setattr(gpu_sanitize, "under", ran)
    for suite in SUITES.values():
        asked.clear()
        made = report(suite, list(gpu_sanitize.checked(suite, "checker")))
        assert {launched[0] for _, launched in asked} == {suite.module}
        assert len(asked) == len(set(asked))
        parts = [launched[2:] for tool, launched in asked if launched[1] == "clean"]
        assert len(parts) == sum(n * len(suite.tools_of(s)) for s, n in suite.parts.items())
        assert set(made["plants"]) == set(suite.plants)
        assert set(made.get("probes", ())) == set(suite.probes)
        assert set(made["clean"]) == {
            label(tool, scope) for scope in suite.parts for tool in suite.tools_of(scope)
        }
        assert {result["outcome"] for result in made["clean"].values()} == {"clean"}


def runs(
    tool: str, scope: str, parts: int, plants: dict[str, str], clean: str = "clean"
) -> list[Checked]:
    """Runs of a tool: so many parts of a scope's clean launches, and the outcome of some plants."""
    launched = [Checked(tool, scope, None, clean, "words", 1.0) for _ in range(parts)]
    return launched + [
        Checked(tool, scope, name, out, "words", 1.0) for name, out in plants.items()
    ]


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.family)
def test_a_tool_counts_only_where_it_saw_a_plant_and_every_launch_ended(suite: Suite) -> None:
    name, plant = next(iter(suite.plants.items()))
    tool, scope, parts = plant.tool, plant.scope, suite.parts[plant.scope]
    shown = label(tool, scope)
    whole = report(suite, runs(tool, scope, parts, {name: "found"}))
    assert whole["clean"][shown]["outcome"] == "clean"
    assert whole["clean"][shown]["counts_for"] == [name]
    assert whole["plants"][name]["found"]
    blind = report(suite, runs(tool, scope, parts, {name: "broken"}))
    assert "missed every plant" in blind["clean"][shown]
    short = report(suite, runs(tool, scope, parts - 1, {name: "found"}))
    assert "not all launches" in short["clean"][shown]
    faulty = report(suite, runs(tool, scope, parts, {name: "broken"}, clean="found"))
    assert faulty["clean"][shown]["outcome"] == "found"


def test_a_plant_says_nothing_about_another_scope() -> None:
    suite = SUITES["norm_activation"]
    seen = runs("racecheck", "rows", 1, {"rows_sums": "found"})
    clean = report(suite, [*seen, *runs("racecheck", "named", 1, {})])["clean"]
    assert clean["racecheck, rows"]["outcome"] == "clean"
    assert "missed every plant" in clean["racecheck, named"]


def test_the_parts_of_the_clean_launches_are_all_of_them() -> None:
    clean, count = clean_pairs(), SUITE.parts[ALL]
    parts = [pair for part in range(count) for pair in clean[part::count]]
    assert sorted(map(repr, parts)) == sorted(map(repr, clean))
