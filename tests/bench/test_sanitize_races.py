"""What racecheck reports is read whole, told by lines, and excused only where a probe shows why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import gemm_plants, sanitize_gemm, sanitize_lines, sanitize_races
from bench.norm_branches import SCOPES, clean_plans
from bench.norm_plants import EACH_LANE, PLANTS, plans_of
from bench.sanitize_hazards import Hazard, hazards
from bench.sanitize_lines import frames_of
from bench.sanitize_norm import judge
from bench.sanitize_probes import PROBES
from bench.sanitize_races import (
    EXCUSED,
    EXCUSED_OUTCOME,
    FLAG,
    ROLES,
    SLOT_READ,
    SLOT_WRITTEN,
    STORED,
    SUMS,
    UNTOLD,
)
from bench.sanitize_suite import ALL
from kernels import nvrtc
from kernels import sources as gemm
from kernels.norm.compile import compile_key, headers, instantiation, source_hash
from kernels.norm.plan import NormPlan
from kernels.norm.ring_launches import NormLaunch
from kernels.sources import ARCH

OUTPUT = """\
========= COMPUTE-SANITIZER
launch: first
launch: second
========= Error: Race reported between Read access at norm_activation+0x14c0
=========     and Write access at norm_activation+0x3a60 [68880 hazards]
=========     and Write access at norm_activation+0x3b00 [16 hazards]
=========
launch: third
========= Warning: Race reported between Write access at norm_activation+0x10 in a.cuh:3
=========     and Read access at norm_activation+0x20 in b.cuh:4 [1 hazard]
========= RACECHECK SUMMARY: {shown} hazards displayed (2 errors, 1 warning)
"""


def test_every_pair_is_read_with_its_launch_and_what_was_not_shown_is_counted() -> None:
    first, second, third = hazards(OUTPUT.format(shown=3).splitlines())
    assert first == Hazard("second", "Read 14c0", "Write 3a60", 68880)
    assert second == Hazard("second", "Read 14c0", "Write 3b00", 16)
    assert third == Hazard("third", "Write 10", "Read 20", 1)
    assert first.offsets == (0x14C0, 0x3A60)
    *_, hidden = hazards(OUTPUT.format(shown=8).splitlines())
    assert (hidden.count, hidden.offsets, hidden.known) == (5, (), False)
    cut = "========= RACECHECK SUMMARY: 3 hazards were not printed. Use --print-limit"
    assert len(hazards([cut])) == 1
    for hazard in (first, hidden):
        assert Hazard.from_dict(hazard.to_dict()) == hazard


def test_roles_and_excuses_are_of_what_there_is() -> None:
    planted = gemm_plants.PLANTS["plain_race"].headers
    for role, file, text in ROLES:
        assert text in {**planted, **headers()}[file], role
    for excuse in EXCUSED:
        assert excuse.probe in {**PROBES, **sanitize_gemm.PROBES}
        assert set(excuse.scopes) <= {ALL, *SCOPES}
    excusable = {pair for excuse in EXCUSED for pair in excuse.pairs}
    assert excusable == {SLOT_READ, SLOT_WRITTEN, FLAG}
    assert {plant.pair for plant in PLANTS.values() if plant.tool == "racecheck"} == {
        SLOT_READ,
        SUMS,
        STORED,
    }


def overwritten_rows(plan: NormPlan) -> int:
    """Rows that rows of a later visit to their slot overwrite, of a launch whose units are one
    chunk each."""
    rows = 0
    for block in range(plan.grid):
        launch = NormLaunch(plan, block)
        for group in range(plan.config.groups):
            own = list(launch.units)[group :: plan.config.groups]
            sizes = [len(launch.rows_of(unit)) for unit in own]
            rows += sum(map(min, sizes, sizes[plan.config.depth :]))
    return rows


@pytest.mark.parametrize(("scope", "reported"), [("bulk", 57360), ("async", 68880)])
def test_what_racecheck_reported_is_what_lanes_did_for_which_another_one_arrived(
    scope: str, reported: int
) -> None:
    """On 2026-11-30, of the first launch: rows of 16 vectors, which 16 lanes of one warp take."""
    plan = clean_plans(scope)[0]
    assert plan.problem.row_bytes == 16 * 16
    lanes_without_the_first = 15
    assert overwritten_rows(plan) * lanes_without_the_first * 16 == reported


# ---- lines


def fake_nvdisasm(folder: Path, code: str) -> None:
    path = folder / "nvdisasm"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{code}\nEND\n", "utf-8")
    path.chmod(0o755)


def test_an_instruction_s_lines_are_told_innermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvdisasm(
        tmp_path,
        '	//## File "/x/a.cuh", line 3 inlined at "/x/b.cuh", line 7\n'
        '	//## File "/x/b.cuh", line 7 inlined at "/x/unit", line 2\n'
        '	//## File "/x/unit", line 2\n'
        "        /*0010*/                   LDS R4, [R2] ;\n"
        ".L_x_1:\n"
        "        /*0020*/              @!P1 STS [R2], R4 ;\n"
        '	//## File "/x/b.cuh", line 9\n'
        "        /*0030*/                   EXIT ;",
    )
    monkeypatch.setattr(sanitize_lines, "find_tool", lambda _: str(tmp_path / "nvdisasm"))
    source = 'extern "C" __global__ void empty() {}'
    found = frames_of("unit", source, {}, ARCH, (0x20, 0x30))
    assert found == {
        0x20: (("a.cuh", 3), ("b.cuh", 7), ("unit", 2)),
        0x30: (("b.cuh", 9),),
    }
    assert sanitize_lines.shown(found[0x20], "unit") == "a.cuh:3 in b.cuh:7"
    with pytest.raises(LookupError, match="no instruction at 0x40"):
        frames_of("unit", source, {}, ARCH, (0x40,))
    monkeypatch.setattr(sanitize_lines, "find_tool", lambda _: None)
    assert frames_of("unit", source, {}, ARCH, (0x20,)) is None


@pytest.mark.skipif(shutil.which("nvdisasm") is None, reason="needs nvdisasm")
def test_lines_change_no_code() -> None:
    plan = clean_plans("async")[0]
    key = compile_key(plan.problem, plan.config)
    assert frames_of(key.name, instantiation(key), headers(), ARCH, (0x14C0, 0x3A60)) is not None


# ---- what a record comes to

BETWEEN = {role: 16 * i for i, (role, *_) in enumerate(ROLES, 1)}


def pair(*roles: str, launch: str = "") -> dict[str, Any]:
    first, second = (f"Write {BETWEEN[role]:x}" for role in roles)
    return Hazard(launch, first, second, 16).to_dict()


HIDDEN = Hazard("", "", "", 3).to_dict()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames whose line has the text of the role that an offset stands for."""
    of = {role: (file, text) for role, file, text in ROLES}

    def frames(
        _name: str, _source: str, text: dict[str, str], _arch: str, offsets: tuple[int, ...]
    ) -> dict[int, tuple[tuple[str, int], ...]]:
        found = {}
        for offset in offsets:
            file, wanted = of[next(role for role, at in BETWEEN.items() if at == offset)]
            lines = text[file].splitlines()
            found[offset] = ((file, 1 + next(i for i, x in enumerate(lines) if wanted in x)),)
        return found

    monkeypatch.setattr(sanitize_races, "frames_of", frames)


def record_of(
    scope: str,
    clean: list[dict[str, Any]],
    plants: dict[str, list[dict[str, Any]]],
    probes: dict[str, str],
) -> dict[str, Any]:
    """A record of one scope's racecheck, judged."""
    outcome = "found" if clean else "clean"
    launch = str(plans_of(scope)[0])
    record = {
        "source_hash": source_hash(ARCH),
        "nvrtc": nvrtc.version(),
        "plants": {
            name: {"tool": "racecheck", "scope": scope, "outcome": "found", "found": True}
            | {"hazards": pairs}
            for name, pairs in plants.items()
        },
        "probes": {name: {"outcome": outcome} for name, outcome in probes.items()},
        "clean": {
            f"racecheck, {scope}": {
                "outcome": outcome,
                "counts_for": list(plants),
                "hazards": [h | ({"launch": launch} if h["first"] else {}) for h in clean],
            }
        },
    }
    return judge(record)


@pytest.mark.usefixtures("told")
def test_a_pair_is_excused_only_where_the_probe_was_reported() -> None:
    for scope in SCOPES:
        probe = {"named": "named", "rows": "none"}.get(scope, "one_arrives")
        for probes, expected in (
            ({probe: "found"}, EXCUSED_OUTCOME if scope != "rows" else "found"),
            ({probe: "clean"}, "found"),
            ({}, "found"),
        ):
            record = record_of(scope, [pair("fill", "read")], {}, probes)
            assert record["clean"][f"racecheck, {scope}"]["outcome"] == expected
    shown = {"one_arrives": "found", "named": "found"}
    record = record_of("bulk", [pair("fill", "read")], {}, shown)
    assert judge(record) == record
    record["probes"] = {}
    assert judge(record)["clean"]["racecheck, bulk"]["outcome"] == "found"
    for others in ([pair("sum put", "sum taken")], [HIDDEN]):
        record = record_of("bulk", [pair("fill", "read"), *others], {}, shown)
        assert record["clean"]["racecheck, bulk"]["outcome"] == "found"
    record = record_of(f"bulk{EACH_LANE}", [pair("fill", "read")], {}, shown)
    assert record["clean"][f"racecheck, bulk{EACH_LANE}"]["outcome"] == "found"


@pytest.mark.usefixtures("told")
def test_a_planted_race_counts_where_its_own_pair_is_reported_and_in_no_clean_launch() -> None:
    shown = {"one_arrives": "found"}
    reads, sums = pair("fill", "read"), pair("sum put", "sum taken")
    plants = {"bulk_early": [reads], "bulk_sums": [reads, sums]}
    record = record_of("bulk", [reads], plants, shown)
    assert record["clean"]["racecheck, bulk"]["counts_for"] == ["bulk_sums"]
    assert record["plants"]["bulk_early"]["outcome"] == UNTOLD
    assert record["plants"]["bulk_sums"]["found"]
    for clean in ([reads, HIDDEN], [reads, sums]):
        record = record_of("bulk", clean, plants, shown)
        assert record["clean"]["racecheck, bulk"]["counts_for"] == []
    record = record_of("bulk", [reads], {"bulk_sums": [reads, HIDDEN]}, shown)
    assert not record["plants"]["bulk_sums"]["found"]


@pytest.mark.usefixtures("told")
def test_where_clean_launches_have_no_pair_any_report_of_a_plant_counts() -> None:
    scope = f"vector{EACH_LANE}"
    plants = {"vector_early_each_lane": [HIDDEN]}
    record = record_of(scope, [], plants, {})
    assert record["clean"][f"racecheck, {scope}"]["counts_for"] == list(plants)
    record = record_of(scope, [], {}, {})
    assert record["clean"][f"racecheck, {scope}"] == "not run: the tool missed every plant"


@pytest.mark.usefixtures("told")
def test_a_pair_is_shown_with_lines_and_roles() -> None:
    record = record_of("named", [pair("fill", "read")], {}, {})
    (found,) = record["clean"]["racecheck, named"]["hazards"]
    assert found["roles"] == ["fill", "read"]
    assert found["lines"][0].startswith("norm_stream.cuh:")


def test_a_record_of_other_sources_is_not_judged() -> None:
    with pytest.raises(SystemExit, match="source_hash"):
        judge({"source_hash": "0" * 64})


# ---- the GEMM's


def gemm_record(clean: list[tuple[str, str]], probe: dict[str, Any]) -> dict[str, Any]:
    """A record of the GEMM's racecheck, whose clean launches have pairs of such roles, judged."""
    launch = str(sanitize_gemm.split_pairs()[0])
    pairs = [pair(*roles, launch=launch) for roles in clean]
    race = {"tool": "racecheck", "scope": ALL, "outcome": "found", "found": True}
    record = {
        "source_hash": gemm.source_hash(),
        "nvrtc": nvrtc.version(),
        "plants": {
            "flag_race": race | {"hazards": [pair("flag put", "flag taken")]},
            "beta_race": race | {"hazards": [pair("brought in", "staged")]},
        },
        "probes": {"flag_tells": probe} if probe else {},
        "clean": {
            "racecheck": {"outcome": "found" if pairs else "clean", "counts_for": []}
            | {"hazards": pairs},
            "memcheck": "not run: the tool missed every plant",
        },
    }
    return sanitize_gemm.judge(record)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ({"outcome": "found", "ended": True}, EXCUSED_OUTCOME),
        ({"outcome": "found", "ended": False}, "found"),  # a flag was read out of order
        ({"outcome": "clean", "ended": True}, "found"),
        ({"outcome": "broken", "ended": False}, "found"),
        ({}, "found"),
    ],
)
def test_a_race_for_the_flag_is_excused_only_where_the_flag_told_that_there_was_none(
    probe: dict[str, Any], expected: str
) -> None:
    record = gemm_record([("flag put", "flag taken")], probe)
    assert record["clean"]["racecheck"]["outcome"] == expected
    assert record["clean"]["racecheck"]["counts_for"] == ["beta_race"]
    assert record["plants"]["flag_race"]["outcome"] == UNTOLD
    record = gemm_record([("flag put", "flag taken"), ("staged", "copied out")], probe)
    assert record["clean"]["racecheck"]["outcome"] == "found"


@pytest.mark.usefixtures("told")
def test_without_pairs_of_clean_launches_every_race_planted_in_the_gemm_counts() -> None:
    record = gemm_record([], {})
    assert record["clean"]["racecheck"]["counts_for"] == ["beta_race", "flag_race"]
    assert record["clean"]["racecheck"]["outcome"] == "clean"
