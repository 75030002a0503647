"""norm_activation kernels follow the protocol that is proved; planted errors do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.norm.cells import Cell
from kernels.norm.compile import compile_key, headers
from kernels.norm.ring_check import check_kernel, kernel_ptx, meets_nobody
from kernels.norm.ring_forms import SIZES, WIDTHS, forms, planned
from kernels.norm.ring_launches import described, small_launches, units_of
from kernels.ptx_parser import PtxError
from kernels.ring_check import Mismatch
from solver.device import load_profile
from solver.families.norm_activation import ACTIVATIONS, NORMS, NormConfig, NormProblem
from solver.families.norm_activation_legality import check_legal
from solver.ring.stream import Stream

SAMPLE = [
    (problem, config)
    for problem, config in forms(40, seed=11)
    if config.has_ring or config.team > 1
][:10]  # fmt: skip


def kernel(width: int = 1024, dtype: str = "fp32", **fields: Any) -> tuple[NormProblem, NormConfig]:
    """A specialised kernel of one group of two consumers, or as ``fields`` say."""
    known: dict[str, Any] = {"kind": "specialised", "consumers": 2, "producers": 1, "depth": 2}
    if fields.get("kind") in ("ring", "strong"):
        known["producers"] = 0
    config = NormConfig(**{**known, "chunk_bytes": 8192, **fields})
    problem = NormProblem(64, width, dtype, "layer", "silu")
    check_legal(problem, config, load_profile("h200"))
    return problem, config


def mismatch_of(
    made: tuple[NormProblem, NormConfig], text: Mapping[str, str]
) -> Mismatch | PtxError | None:
    """What is first found wrong."""
    try:
        found = (mismatch for _, mismatch in check_kernel(*made, text))
        return next((mismatch for mismatch in found if mismatch is not None), None)
    except PtxError as error:
        return error


def planted(old: str, new: str) -> Mapping[str, str]:
    text = dict(headers())
    assert sum(source.count(old) for source in text.values()) == 1, "the source has moved on"
    return {file: source.replace(old, new) for file, source in text.items()}


@pytest.mark.parametrize("made", SAMPLE, ids=lambda made: compile_key(*made).name)
def test_a_kernels_own_program_is_the_one_that_is_proved(
    made: tuple[NormProblem, NormConfig],
) -> None:
    launches = list(check_kernel(*made))
    assert len(launches) >= 2
    for _, mismatch in launches:
        assert mismatch is None, str(mismatch)


# ---- the launches and the forms that are read


@pytest.mark.parametrize("made", SAMPLE, ids=lambda made: compile_key(*made).name)
def test_launches_go_round_their_rings_and_end_in_a_unit_that_is_cut(
    made: tuple[NormProblem, NormConfig],
) -> None:
    launches = list(small_launches(*made))
    assert {launch.plan.config.rounds > 0 for launch in launches} == {False, True}
    for launch in launches:
        assert compile_key(launch.plan.problem, launch.plan.config) == compile_key(*made)
        units, stream = units_of(launch), described(launch)
        if not isinstance(stream, Stream) or launch.plan.config.rounds:
            continue
        assert sum(len(unit.chunks) for unit in units[:: stream.groups]) > stream.depth
        assert len({unit.rows for unit in units}) == 1 + (units[0].rows > 1)


def test_blocks_are_met_in_which_some_groups_end_without_work() -> None:
    made = kernel(256, consumers=4, groups=4, chunk_bytes=1024)
    counts = {len(launch.units) % 4 for launch in small_launches(*made)}
    assert counts > {0}


def test_forms_have_every_word_of_the_family() -> None:
    kernels = forms()
    assert len(kernels) > 3000
    problems = {problem for problem, _ in kernels}
    assert {problem.width for problem in problems} == set(WIDTHS)
    assert {problem.norm for problem in problems} == set(NORMS)
    assert {problem.activation for problem in problems} == set(ACTIVATIONS)
    assert {problem.dtype for problem in problems} == {x for types in SIZES.values() for x in types}
    assert len({compile_key(*made) for made in kernels}) == len(kernels)
    assert forms(5, seed=1) == forms(5, seed=1) != forms(5, seed=2)


def test_a_plans_kernels_are_one_of_each_key_or_a_sample_of_them(tmp_path: Path) -> None:
    made = [kernel(1024, consumers=n, groups=n, chunk_bytes=4096) for n in (4, 8)]
    cells = [Cell("race", *each).to_dict() for each in (*made, made[0])]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"cells": cells}), "utf-8")
    assert planned(plan) == made
    assert len(planned(plan, 1, seed=3)) == 1
    assert planned(plan, 1, seed=3) == planned(plan, 1, seed=3)


def test_kernels_without_barriers_meet_nobody() -> None:
    problem = NormProblem(64, 1024, "fp32", "layer", "gelu")
    meets_nobody(kernel_ptx(compile_key(problem, NormConfig("plain", 4, hold="reload"))))
    with pytest.raises(PtxError, match="has no use for it"):
        meets_nobody(kernel_ptx(compile_key(problem, NormConfig("strong", 4, team=4))))


# ---- errors planted in the CUDA

VECTOR = {"copies": "vector", "producers": 2}
NAMED = {**VECTOR, "barrier": "named"}
ASYNC = {"copies": "async", "producers": 2}
TEAM = {"team": 2}
STORES = {"team": 2, "hold": "shared", "stores": "bulk"}
FULL, EMPTY = "wait(full(group, at), at.parity());", "wait(empty(group, at), at.parity() ^ 1);"
FENCE = "        ptx::fence_async_proxy();\n        team.sync();"
READ = "  ptx::tma_store_wait_read();\n}\n\n// ---- asynchronous"
PLANTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "an empty barrier that takes a warp too many": (
        {},
        "ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps);",
        "ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps + 1);",
        "deadlock",
    ),
    "an empty barrier that takes one warp": (
        {},
        "ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps);",
        "ptx::barrier_init(barriers + 16 * i + 8, 1);",
        "overwritten before read",
    ),
    "a full barrier that takes one producer": (
        VECTOR,
        ": kLoadingWarps;\n      for",
        ": 1;\n      for",
        "read before written",
    ),
    "a full barrier that takes warps, not threads": (
        ASYNC,
        "kCopies == kAsync ? kLoadingWarps * kWarp",
        "kCopies == kAsync ? kLoadingWarps",
        "too many arrivals",
    ),
    "a producer's phase off by one": ({}, EMPTY, EMPTY.replace(" ^ 1", ""), "deadlock"),
    "a consumer's phase off by one": (
        {},
        FULL,
        FULL.replace("parity()", "parity() ^ 1"),
        "read before written",
    ),
    "a producer that does not arrive": (
        VECTOR,
        "if (threadIdx.x % kWarp == 0) arrive(barrier);",
        "if (threadIdx.x == 0) arrive(barrier);",
        "deadlock",
    ),
    "an arrival that does not wait for its copies": (
        ASYNC,
        "      arrive_when_loaded(barrier);",
        "      arrive(barrier);",
        "read before written",
    ),
    "lanes without work that arrive": (
        {},
        "if (kCopies == kBulk && threadIdx.x != 0) return;",
        "if (kCopies == kBulk && threadIdx.x > 1) return;",
        "too many arrivals",
    ),
    "a slot that is given back before it is read": (
        {},
        "if (static_cast<u32>(number) >= rows) give_back();\n      for",
        "give_back();\n      for",
        "read before written: slot 1",
    ),
    "an arrival that nobody waits for": (NAMED, "} else if (again) {", "} else {", "left over"),
    "a named barrier of the consumers alone": (
        NAMED,
        "kThreads = (kLoadingWarps + kConsumingWarps) * kWarp",
        "kThreads = kConsumingWarps * kWarp",
        "read before written",
    ),
    "a named barrier that two groups share": (
        {**NAMED, "groups": 2},
        ": first_id + 2 * (group * depth + at.slot);",
        ": first_id + 2 * at.slot;",
        "read before written",
    ),
    "a team's barrier that two teams share": (
        {"consumers": 4, "team": 2},
        "static_cast<u32>(1 + consumer / kTeam)",
        "1u",
        "read before written",
    ),
    "a barrier of the whole block by a team": (
        TEAM,
        "if constexpr (kWarps > 1) sync_one_of<kTeams>(barrier, kLanes);",
        "__syncthreads();",
        "deadlock",
    ),
    "one line of scratch": (TEAM, "      line ^= 1;\n", "", "overwritten before read: line 0"),
    "a sum without its barrier": (
        TEAM,
        "      sync();\n      x = 0.0f;",
        "      __syncwarp();\n      x = 0.0f;",
        "read before written: line 0",
    ),
    "bulk copies over what warps have read, without a fence": (
        {},
        "      ptx::fence_async_proxy();\n      ptx::barrier_arrive_expect(barrier",
        "      ptx::barrier_arrive_expect(barrier",
        "filled without a fence",
    ),
    "results that bulk stores can't see": (
        STORES,
        FENCE,
        "        team.sync();",
        "read before written",
    ),
    "a bulk store without the team's barrier": (
        STORES,
        FENCE,
        "        ptx::fence_async_proxy();\n        __syncwarp();",
        "read before written",
    ),
    "a bulk store that is not waited for": (
        STORES,
        READ,
        READ.replace("  ptx::tma_store_wait_read();\n", ""),
        "overwritten while read",
    ),
    "barriers that are initialised without a fence": (
        {},
        "      barriers_initialised();\n",
        "",
        "initialised without a fence",
    ),
    "the barriers of one group alone": (
        {"groups": 2},
        "for (u32 i = 0; i < kGroups * depth; ++i) {",
        "for (u32 i = 0; i < depth; ++i) {",
        "used before it is initialised",
    ),
    "a slot that is read without waiting": (
        {"hold": "shared"},
        "ring.wait_full(group, at);\n      for (u32 mine = number; mine < rows; mine += kTeams) {",
        "for (u32 mine = number; mine < rows; mine += kTeams) {",
        "read before written",
    ),
    "one ring for all groups": (
        {"groups": 2},
        "return slots + (group * depth + at.slot) * slot_bytes;",
        "return slots + at.slot * slot_bytes;",
        "overwritten before read",
    ),
    "one slot too few for a row that is held": (
        {"team": 2, "hold": "shared", "chunk_bytes": 2048},
        "if (++slot == depth)",
        "if (++slot == depth - 1)",
        "deadlock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_an_error_planted_in_the_cuda_is_refuted_with_a_trace(name: str) -> None:
    fields, old, new, consequence = PLANTS[name]
    made = kernel(**fields)
    assert mismatch_of(made, headers()) is None
    found = mismatch_of(made, planted(old, new))
    assert isinstance(found, Mismatch), str(found)
    assert found.consequence.startswith(consequence), str(found)
    assert "\n  1. " in found.consequence


PLACES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "every chunk the first": (
        {"team": 2, "chunk_bytes": 2048},
        "const u32 skipped = part % args.chunks_per_unit * args.chunk_bytes;",
        "const u32 skipped = part % args.chunks_per_unit * 0;",
        "of x goes to byte 0 of the slot of bytes",
    ),
    "a chunk without its first words": (
        ASYNC,
        "for (u32 skip = thread * 16; skip < chunk.bytes; skip += kStride) {",
        "for (u32 skip = thread * 16 + 16; skip < chunk.bytes; skip += kStride) {",
        "byte 0 of chunk 0 of group 0 comes 0 times, not 1",
    ),
    "words put elsewhere than they belong": (
        VECTOR,
        "if (skip < chunk.bytes) store_shared(to + skip, words[i]);",
        "if (skip < chunk.bytes) store_shared(to + (skip ^ 16), words[i]);",
        "of x goes to byte 16 of the slot of bytes",
    ),
    "another team's row": (
        {},
        "reinterpret_cast<V*>(output(row + mine)));\n      }",
        "reinterpret_cast<V*>(output(row + mine / 2)));\n      }",
        "which is not its own",
    ),
    "a bulk store to the row before": (
        STORES,
        "if (team.index() == 0) bulk_store(to, slot, count * 16);",
        "if (team.index() == 0) bulk_store(to - count * 16, slot, count * 16);",
        "of x goes to",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_bytes_that_go_elsewhere_are_refuted_where_that_is_seen(name: str) -> None:
    fields, old, new, words = PLACES[name]
    found = mismatch_of(kernel(**fields), planted(old, new))
    assert isinstance(found, PtxError), str(found)
    assert words in str(found)


def test_a_kernel_whose_warps_are_alike_is_read_too() -> None:
    made = kernel(
        kind="strong", consumers=4, team=2, chunk_bytes=0, depth=0, vector_bytes=16, producers=0
    )
    assert mismatch_of(made, headers()) is None
    found = mismatch_of(made, planted("      line ^= 1;\n", ""))
    assert isinstance(found, Mismatch)
    assert found.consequence.startswith("overwritten before read: line 0")


def test_a_launch_that_contradicts_the_kernel_is_refused() -> None:
    problem, config = kernel()
    for launch in small_launches(problem, config):
        wrong = replace(launch, plan=replace(launch.plan, threads=launch.plan.threads + 32))
        with pytest.raises(PtxError, match="the kernel refuses this launch"):
            _check(problem, config, wrong)
        break


def _check(problem: NormProblem, config: NormConfig, launch: Any) -> None:
    from kernels.norm.ring_check import check_launch
    from kernels.ptx_parser import parse

    check_launch(parse(kernel_ptx(compile_key(problem, config))), launch)


GIVEN_BACK = (
    "    if constexpr (kBarriers == kMbarrier) {\n      if (threadIdx.x % kWarp == 0) arrive(empty"
)
FILLED = "        if (threadIdx.x % kWarp == 0) arrive(barrier);"
TOGETHER = "    __syncwarp();\n    if constexpr (kWarps > 1) sync_one_of"
APART: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a slot given back for lanes that still read": (
        {},
        f"    __syncwarp();\n{GIVEN_BACK}",
        GIVEN_BACK,
        "arrive at empty[0]",
    ),
    "a slot handed over for lanes that still write": (
        VECTOR,
        f"        __syncwarp();\n{FILLED}",
        FILLED,
        "arrive at full[0]",
    ),
    "results stored in bulk for lanes that still write": (
        {"hold": "shared", "stores": "bulk"},
        TOGETHER,
        TOGETHER.replace("    __syncwarp();\n", ""),
        "start a bulk store of slot 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_a_lane_that_speaks_for_others_that_it_did_not_meet_is_refused(name: str) -> None:
    fields, old, new, what = APART[name]
    made = kernel(**fields)
    assert mismatch_of(made, headers()) is None
    found = mismatch_of(made, planted(old, new))
    assert isinstance(found, PtxError), str(found)
    assert what in str(found)
    assert "for lane 1 too" in str(found)
