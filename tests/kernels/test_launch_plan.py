"""The launch a configuration asks for: pure arithmetic, no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernels.launch_plan import ARGUMENTS, OUT_TYPES, SWIZZLE_BYTES, plan_launch
from kernels.sources import headers
from solver.config import Config
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CLUSTERS
from solver.families.sm90_gemm_operands import copy_pitch
from solver.problem import LAYOUTS, OUT_BYTES, Problem

SMS = 132
CONFIG = Config(family.NAME, 128, 256, 64, 4, mma_in_flight=1, math_warpgroups=2, register_split=1)


def test_the_argument_block_has_the_layout_the_kernel_declares() -> None:
    """Offsets as the compiler lays out GemmArgs, whose fields are read off the header."""
    header = headers()["sm90_gemm_args.cuh"]
    struct = header[
        header.index("struct GemmArgs {") : header.index("static_assert(sizeof(GemmArgs)")
    ]
    sizes = {"i64": 8, "int": 4, "float": 4}
    declared: list[tuple[str, int]] = []
    for line in struct.splitlines()[1:]:
        code = line.split("//")[0].strip().rstrip(";")
        if code in ("", "}"):
            continue
        kind, names = code.split(" ", 1)
        size = 8 if "*" in code else sizes[kind]
        declared += [(name.strip("* "), size) for name in names.split(",")]
    offset = 0
    for name, size in declared:
        assert offset % size == 0
        assert ARGUMENTS.fields is not None
        kind, at = ARGUMENTS.fields[name][:2]
        assert (at, kind.itemsize) == (offset, size), name
        offset += size
    assert offset == ARGUMENTS.itemsize == 120
    assert f"static_assert(sizeof(GemmArgs) == {offset}" in header
    assert len(declared) == len(ARGUMENTS.names or ())


def test_the_numbers_of_output_types_are_the_kernels() -> None:
    names = {"bf16": "kOutBf16", "fp16": "kOutFp16", "fp32": "kOutFp32"}
    words = ", ".join(f"{names[dtype]} = {number}" for dtype, number in OUT_TYPES.items())
    assert f"enum OutType : int {{ {words} }};" in headers()["sm90_gemm_args.cuh"]


def test_the_arguments_are_the_plans_own_figures() -> None:
    problem = Problem(100, 200, 4096, out_dtype="fp32", ldc=208)
    plan = plan_launch(problem, replace(CONFIG, split_k=3, cluster_n=1), SMS)
    block = plan.arguments(
        c=2**47 + 16, workspace=2**46, counters=64, alpha=0.5, beta=-2.0, progress=128
    )[0]
    assert {name: block[name].item() for name in ARGUMENTS.names or ()} == {
        "c": 2**47 + 16,
        "workspace": 2**46,
        "counters": 64,
        "progress": 128,
        "ldc": 208,
        "m": 100,
        "n": 200,
        "k": 4096,
        "stages": 4,
        "dma_warps": 1,
        "split_k": 3,
        "raster_group": 1,
        "cluster_m": 1,
        "cluster_n": 1,
        "a_copies": 1,
        "b_copies": 1,
        "a_box_rows": 104,
        "b_box_rows": 200,
        "a_tx_bytes": 104 * 64 * 2,
        "b_tx_bytes": 200 * 64 * 2,
        "c_by_tma": 1,
        "out_type": 2,
        "alpha": 0.5,
        "beta": -2.0,
        "plain": 0,
    }


@pytest.mark.parametrize(
    ("problem", "scalars", "plain"),
    [
        ({}, {}, 1),
        ({}, {"alpha": 1.0, "beta": 0.0}, 1),
        ({}, {"alpha": -1.0}, 0),
        ({}, {"beta": 1.0}, 0),
        ({"out_dtype": "fp16"}, {}, 0),
        ({"ldc": 65}, {}, 0),
    ],
)
def test_the_plain_epilogue_is_for_the_inputs_type_by_tma_without_scalars(
    problem: dict[str, Any], scalars: dict[str, float], plain: int
) -> None:
    plan = plan_launch(Problem(64, 64, 64, **problem), CONFIG, SMS)
    assert plan.arguments(0, 0, 0, **scalars)[0]["plain"] == plain


def test_a_large_problem_fills_the_device_and_no_more() -> None:
    plan = plan_launch(Problem(4096, 4096, 4096), CONFIG, SMS)
    assert (plan.tiles_m, plan.tiles_n, plan.units, plan.grid) == (32, 16, 512, 132)
    assert (plan.threads, plan.warps) == (384, 12)
    assert (plan.workspace_bytes, plan.counter_bytes) == (0, 0)
    assert (plan.a.box.box_rows, plan.b.box.box_rows) == (128, 256)
    assert plan.a.tx_bytes + plan.b.tx_bytes == family.stage_bytes(CONFIG.to_dict(), 2)


def test_fewer_units_than_sms_launch_one_cta_each() -> None:
    assert plan_launch(Problem(256, 512, 64), CONFIG, SMS).grid == 4


@pytest.mark.parametrize(("cluster_m", "cluster_n"), CLUSTERS)
def test_an_sm_limit_bounds_the_grid_to_whole_clusters(cluster_m: int, cluster_n: int) -> None:
    config = replace(CONFIG, cluster_m=cluster_m, cluster_n=cluster_n)
    plan = plan_launch(Problem(4096, 4096, 4096), config, 79)
    assert (plan.cluster, plan.grid) == (cluster_m * cluster_n, 79 if plan.cluster == 1 else 78)


def test_a_box_is_cut_to_the_problem_rounded_up_to_eight() -> None:
    plan = plan_launch(Problem(1, 20, 64), replace(CONFIG, tile_n=24), SMS)
    assert (plan.a.box.box_rows, plan.b.box.box_rows) == (8, 24)
    assert (plan.a.tx_bytes, plan.b.tx_bytes) == (8 * 64 * 2, 24 * 64 * 2)


def test_a_slot_of_128_k_takes_two_boxes_of_an_operand_contiguous_in_k() -> None:
    plan = plan_launch(Problem(512, 512, 512), replace(CONFIG, tile_k=128, stages=2), SMS)
    assert (plan.a.copies, plan.a.box.box_columns) == (2, 64)
    assert plan.a.tx_bytes + plan.b.tx_bytes == (128 + 256) * 128 * 2


def test_an_operand_not_contiguous_in_k_is_loaded_a_swizzle_wide() -> None:
    plan = plan_launch(Problem(512, 96, 512, layout="nt"), replace(CONFIG, tile_n=96), SMS)
    assert (plan.a.copies, plan.a.box.box_rows, plan.a.box.box_columns) == (2, 64, 64)
    assert (plan.b.copies, plan.b.box.box_rows, plan.b.box.box_columns) == (3, 64, 32)
    assert (plan.a.box.rows, plan.a.box.columns) == (512, 512)
    assert (plan.b.box.rows, plan.b.box.columns) == (512, 96)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ctas_of_a_cluster_each_load_half_of_the_tile_they_share(layout: str) -> None:
    problem = Problem(512, 512, 512, layout=layout)
    alone = plan_launch(problem, CONFIG, SMS)
    for cluster in ({"cluster_m": 2}, {"cluster_n": 2}):
        plan = plan_launch(problem, replace(CONFIG, **cluster), SMS)
        shared = "b" if "cluster_m" in cluster else "a"
        for name in "ab":
            load, whole = getattr(plan, name), getattr(alone, name)
            assert load.sharers == (2 if name == shared else 1)
            assert load.box.box_rows * load.sharers == whole.box.box_rows
            assert (load.tx_bytes, load.copies) == (whole.tx_bytes, whole.copies)


def test_split_k_gets_a_partial_tile_per_unit_and_a_counter_per_tile() -> None:
    plan = plan_launch(Problem(128, 512, 4096), replace(CONFIG, split_k=4), SMS)
    assert plan.units == 8
    assert plan.workspace_bytes == 8 * 128 * 256 * 4
    assert plan.counter_bytes == 2 * 4


@pytest.mark.parametrize(
    ("n", "changes", "by_tma"),
    [
        (64, {}, True),
        (64, {"ldc": 72}, True),
        (64, {"ldc": 65}, False),
        (63, {"ldc": 64}, False),  # TMA would write the gap's first element
        (64, {"c_offset": 4}, False),
        (60, {"out_dtype": "fp32"}, True),
        (60, {"out_dtype": "fp32", "ldc": 62}, False),
        (60, {}, False),
    ],
)
def test_the_output_leaves_by_tma_only_where_its_rows_allow(
    n: int, changes: dict[str, Any], by_tma: bool
) -> None:
    plan = plan_launch(Problem(64, n, 64, **changes), CONFIG, SMS)
    assert plan.c_by_tma is by_tma


@pytest.mark.parametrize(("tile_n", "chunk"), [(256, 64), (96, 32), (48, 16), (24, 8)])
def test_the_store_box_is_a_chunk_swizzled_over_its_own_width(tile_n: int, chunk: int) -> None:
    box = plan_launch(Problem(4096, 4096, 64), replace(CONFIG, tile_n=tile_n), SMS).c
    assert box is not None
    assert (box.box_rows, box.box_columns, box.swizzle_bytes) == (64, chunk, 2 * chunk)


def test_wide_output_leaves_in_half_a_chunk() -> None:
    problem = Problem(4096, 4096, 64, out_dtype="fp32")
    box = plan_launch(problem, replace(CONFIG, tile_n=96), SMS).c
    assert box is not None
    assert (box.dtype, box.box_columns, box.swizzle_bytes) == ("fp32", 16, 64)


@pytest.mark.parametrize(
    ("changes", "a", "b"),
    [
        ({}, False, False),
        ({"lda": 513}, True, False),
        ({"ldb": 520}, False, False),
        ({"a_offset": 1, "b_offset": 7}, True, True),
        ({"layout": "nn", "lda": 200 + 12}, True, False),
    ],
)
def test_an_operand_that_tma_cannot_take_is_copied_to_whole_lines(
    changes: dict[str, Any], a: bool, b: bool
) -> None:
    problem = Problem(200, 512, 512, **changes)
    plan = plan_launch(problem, CONFIG, SMS)
    assert (plan.a.copied, plan.b.copied) == (a, b)
    for load, matrix in ((plan.a, problem.a), (plan.b, problem.b)):
        assert load.pitch == (copy_pitch(matrix.length) if load.copied else matrix.pitch)
        assert load.box.row_bytes == 2 * load.pitch


def test_a_single_line_needs_no_pitch_that_tma_takes() -> None:
    plan = plan_launch(Problem(1, 64, 63, ldb=64), CONFIG, SMS)
    assert not plan.a.copied
    assert plan.a.box.row_bytes == 128


@pytest.mark.parametrize(
    ("config", "sms", "field"),
    [
        ({}, 0, "cluster_m"),
        ({"cluster_n": 2, "tile_n": 32}, 1, "cluster_m"),
        ({"family": "other"}, SMS, "family"),
        ({"cluster_m": 2, "tile_m": 64}, SMS, "cluster_m"),
        ({"cluster_n": 2}, SMS, "cluster_n"),
    ],
)
def test_what_cannot_be_launched_names_its_field(
    config: dict[str, Any], sms: int, field: str
) -> None:
    with pytest.raises(IllegalConfig) as raised:
        plan_launch(Problem(64, 64, 64), replace(CONFIG, **config), sms)
    assert raised.value.field == field


def test_more_units_than_the_kernel_counts_are_refused() -> None:
    config = replace(CONFIG, tile_m=64, tile_n=8, math_warpgroups=1, register_split=0)
    with pytest.raises(IllegalConfig, match="units of work"):
        plan_launch(Problem(2**28, 2**29, 8), config, SMS)


@given(
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 5000),
    layout=st.sampled_from(LAYOUTS),
    out=st.sampled_from(sorted(OUT_BYTES)),
    gaps=st.tuples(*(st.integers(0, 20) for _ in range(3))),
    offsets=st.tuples(*(st.integers(0, 3) for _ in range(3))),
    shape=st.sampled_from(family.TILE_SHAPES),
    tile_n=st.sampled_from(family.TILE_N),
    tile_k=st.sampled_from(family.TILE_K),
    split_k=st.sampled_from(family.SPLIT_K),
    cluster=st.sampled_from(CLUSTERS),
)
def test_every_plan_keeps_the_rules_of_tma(
    m: int,
    n: int,
    k: int,
    layout: str,
    out: str,
    gaps: tuple[int, int, int],
    offsets: tuple[int, int, int],
    shape: tuple[int, int],
    tile_n: int,
    tile_k: int,
    split_k: int,
    cluster: tuple[int, int],
) -> None:
    problem = Problem(
        m,
        n,
        k,
        layout=layout,
        out_dtype=out,
        lda=(k if layout[0] == "t" else m) + gaps[0],
        ldb=(k if layout[1] == "n" else n) + gaps[1],
        ldc=n + gaps[2],
        a_offset=offsets[0],
        b_offset=offsets[1],
        c_offset=offsets[2],
    )
    config = Config(
        family.NAME,
        shape[0],
        tile_n,
        tile_k,
        4,
        math_warpgroups=shape[1],
        split_k=split_k,
        cluster_m=cluster[0],
        cluster_n=cluster[1],
    )
    columns = config.to_dict()
    assume(tile_n % legality.step_n(problem.kernel_layout, problem.out) == 0)
    assume(cluster[0] == 1 or tile_n % 16 == 0)
    assume(-(-m // shape[0]) % cluster[0] == 0 and -(-n // tile_n) % cluster[1] == 0)
    plan = plan_launch(problem, config, SMS)
    assert 1 <= plan.grid <= min(SMS, plan.units)
    assert plan.grid % plan.cluster == 0
    for box in (plan.a.box, plan.b.box, *([plan.c] if plan.c else [])):
        assert box.row_bytes % 16 == 0
        assert 1 <= box.box_rows <= 256
        assert box.box_columns * OUT_BYTES[box.dtype] == box.swizzle_bytes
        assert box.swizzle_bytes in SWIZZLE_BYTES
    for load, lines, tile, k_major in (
        (plan.a, m, config.tile_m, problem.a_is_k_major),
        (plan.b, n, tile_n, problem.b_is_k_major),
    ):
        box = load.box
        along, in_k = (
            (box.box_rows * load.sharers, box.box_columns * load.copies)
            if k_major
            else (box.box_columns * load.copies, box.box_rows * load.sharers)
        )
        assert in_k == tile_k
        assert min(lines, tile) <= along <= tile
        assert load.tx_bytes == along * in_k * 2
        # A CTA's share starts where the swizzle does: the other half's addresses are its own.
        assert not k_major or box.box_rows % 8 == 0
    assert plan.a.tx_bytes + plan.b.tx_bytes <= family.stage_bytes(columns, 2)
