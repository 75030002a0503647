"""The launch a configuration asks for: pure arithmetic, no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernels.launch_plan import ARGUMENTS, OUT_TYPES, SWIZZLE_BYTES, CachePolicy, plan_launch
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
    assert offset == ARGUMENTS.itemsize == 128
    assert f"static_assert(sizeof(GemmArgs) == {offset}" in header
    assert len(declared) == len(ARGUMENTS.names or ())


def test_the_numbers_of_output_types_are_the_kernels() -> None:
    names = {"bf16": "kOutBf16", "fp16": "kOutFp16", "fp32": "kOutFp32"}
    words = ", ".join(f"{names[dtype]} = {number}" for dtype, number in OUT_TYPES.items())
    assert f"enum OutType : int {{ {words} }};" in headers()["sm90_gemm_args.cuh"]


def test_the_numbers_of_cache_policies_are_the_kernels() -> None:
    names = {
        CachePolicy.NONE: "kNotTold",
        CachePolicy.EVICT_FIRST: "kEvictFirst",
        CachePolicy.EVICT_LAST: "kEvictLast",
    }
    words = ", ".join(f"{names[policy]} = {policy.value}" for policy in CachePolicy)
    assert f"enum CachePolicy : int {{ {words} }};" in headers()["sm90_gemm_args.cuh"]


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
        "a_box_rows": 100,
        "b_box_rows": 200,
        "a_tx_bytes": 100 * 64 * 2,
        "b_tx_bytes": 200 * 64 * 2,
        "a_policy": 1,
        "b_policy": 1,
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


@pytest.mark.parametrize("stages", family.STAGES)
def test_a_launch_whose_ctas_could_share_an_sm_does_not_overlap(stages: int) -> None:
    plan = plan_launch(Problem(512, 512, 4096), Config(family.NAME, 64, 64, 64, stages), 132)
    assert plan.overlaps == (plan.smem_bytes > 113 * 1024)  # an SM has 228 KiB, 1 of each block's
    assert (stages < 7) == (not plan.overlaps)


def test_fewer_units_than_sms_launch_one_cta_each() -> None:
    assert plan_launch(Problem(256, 512, 64), CONFIG, SMS).grid == 4


@pytest.mark.parametrize(("cluster_m", "cluster_n"), CLUSTERS)
def test_an_sm_limit_bounds_the_grid_to_whole_clusters(cluster_m: int, cluster_n: int) -> None:
    config = replace(CONFIG, cluster_m=cluster_m, cluster_n=cluster_n)
    plan = plan_launch(Problem(4096, 4096, 4096), config, 79)
    assert (plan.cluster, plan.grid) == (cluster_m * cluster_n, 79 if plan.cluster == 1 else 78)


def test_a_box_is_cut_to_the_rows_that_the_problem_has() -> None:
    plan = plan_launch(Problem(1, 21, 64), replace(CONFIG, tile_n=24), SMS)
    assert (plan.a.box.box_rows, plan.b.box.box_rows) == (1, 21)
    assert (plan.a.tx_bytes, plan.b.tx_bytes) == (1 * 64 * 2, 21 * 64 * 2)


@pytest.mark.parametrize(
    ("m", "n", "cluster", "rows"),
    [
        (300, 21, {}, (128, 21)),
        # Each CTA's half of a tile that is shared starts where the swizzle does.
        (5, 90, {"cluster_n": 2}, (8, 48)),
        (17, 90, {"cluster_n": 2}, (16, 48)),
        (200, 37, {"cluster_m": 2}, (128, 24)),
        (200, 33, {"cluster_m": 2}, (128, 24)),
    ],
)
def test_the_rows_of_a_shared_tile_are_whole_periods_of_the_swizzle_for_each_cta(
    m: int, n: int, cluster: dict[str, int], rows: tuple[int, int]
) -> None:
    plan = plan_launch(Problem(m, n, 64), replace(CONFIG, tile_n=48, **cluster), SMS)
    assert (plan.a.box.box_rows, plan.b.box.box_rows) == rows
    for load in (plan.a, plan.b):
        assert load.tx_bytes == load.box.box_rows * load.sharers * 64 * 2


def test_an_operand_not_contiguous_in_k_is_cut_to_whole_swizzled_rows() -> None:
    plan = plan_launch(Problem(5, 21, 64, layout="nt"), replace(CONFIG, tile_n=48), SMS)
    assert (plan.a.copies, plan.a.box.box_columns) == (1, 64)
    assert (plan.b.copies, plan.b.box.box_columns) == (2, 16)


@pytest.mark.parametrize(
    ("m", "n", "cluster", "a", "b"),
    [
        # One tile of each; one of A's, that all others read; one of B's; several of both.
        (100, 200, {}, CachePolicy.EVICT_FIRST, CachePolicy.EVICT_FIRST),
        (100, 2000, {}, CachePolicy.EVICT_LAST, CachePolicy.EVICT_FIRST),
        (2000, 200, {}, CachePolicy.EVICT_FIRST, CachePolicy.EVICT_LAST),
        (2000, 2000, {}, CachePolicy.NONE, CachePolicy.NONE),
        # What a cluster shares it reads once.
        (200, 2000, {"cluster_m": 2}, CachePolicy.EVICT_LAST, CachePolicy.EVICT_FIRST),
        (2000, 500, {"cluster_n": 2}, CachePolicy.EVICT_FIRST, CachePolicy.EVICT_LAST),
        (2048, 2000, {"cluster_m": 2}, CachePolicy.NONE, CachePolicy.NONE),
    ],
)
def test_lines_that_are_read_once_leave_the_l2_first_and_those_read_by_all_others_last(
    m: int, n: int, cluster: dict[str, int], a: CachePolicy, b: CachePolicy
) -> None:
    for split_k in (1, 4):
        config = replace(CONFIG, split_k=split_k, **cluster)
        plan = plan_launch(Problem(m, n, 1000), config, SMS)
        assert (plan.a.policy, plan.b.policy) == (a, b)
        block = plan.arguments(0, 0, 0)[0]
        assert (block["a_policy"], block["b_policy"]) == (a.value, b.value)


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


@pytest.mark.parametrize(
    ("tile_n", "piece", "swizzle"),
    [
        (256, 64, 128),
        (96, 32, 64),
        (16, 16, 32),
        # Rows of an odd number of quads lie as they are.
        (8, 8, 16),
        (48, 24, 16),
        (40, 40, 16),
        (112, 56, 16),
        (144, 72, 16),
        (88, 88, 16),
        (104, 104, 16),
        (208, 104, 16),
        (120, 40, 16),
    ],
)
def test_the_store_box_is_a_piece_swizzled_where_its_rows_are_as_long_as_a_swizzle(
    tile_n: int, piece: int, swizzle: int
) -> None:
    box = plan_launch(Problem(4096, 4096, 64), replace(CONFIG, tile_n=tile_n), SMS).c
    assert box is not None
    assert (box.box_rows, box.box_columns, box.swizzle_bytes) == (64, piece, swizzle)


@pytest.mark.parametrize(
    ("tile_n", "piece", "swizzle"), [(256, 32, 128), (96, 16, 64), (48, 8, 32), (208, 8, 32)]
)
def test_a_piece_of_wide_output_is_half_a_swizzled_row(
    tile_n: int, piece: int, swizzle: int
) -> None:
    problem = Problem(4096, 4096, 64, out_dtype="fp32")
    plan = plan_launch(problem, replace(CONFIG, tile_n=tile_n), SMS)
    assert plan.c is not None
    assert (plan.c.dtype, plan.c.box_columns, plan.c.swizzle_bytes) == ("fp32", piece, swizzle)
    narrow = plan_launch(Problem(4096, 4096, 64), replace(CONFIG, tile_n=tile_n), SMS)
    assert plan.smem_bytes == narrow.smem_bytes, "staging buffers are those of 16-bit pieces"


@pytest.mark.parametrize("tile_n", family.TILE_N)
def test_eight_rows_of_a_piece_meet_no_bank_twice(tile_n: int) -> None:
    """A matrix of stmatrix: eight rows of 16 bytes, of 32 banks that are 4 bytes wide."""
    piece = int(family.piece_n(tile_n, 2))
    quads = piece // 8
    assert tile_n % piece == 0
    assert piece in family.PIECES_N
    swizzled = quads in (2, 4, 8)
    for first in range(0, 64, 8):
        for quad in range(quads):
            addresses = []
            for row in range(first, first + 8):
                at = row * 2 * piece + 16 * quad
                addresses.append(at ^ at // 128 % quads * 16 if swizzled else at)
            assert len({address % 128 // 16 for address in addresses}) == 8
    # No wider piece would do.
    for wider in range(piece + 8, min(tile_n, 104) + 1, 8):
        assert tile_n % wider or wider % 16 == 0, wider
    # A row of fp32 is no longer than one of 16 bits, and so fits its buffer.
    assert 4 * int(family.piece_n(tile_n, 4)) <= 2 * piece


def test_pieces_are_the_same_for_a_column_of_tiles_as_for_each() -> None:
    for out_bytes in (2, 4):
        together = family.piece_n(np.array(family.TILE_N), out_bytes)
        assert together.tolist() == [int(family.piece_n(n, out_bytes)) for n in family.TILE_N]


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
        box_bytes = box.box_columns * OUT_BYTES[box.dtype]
        assert box.swizzle_bytes in SWIZZLE_BYTES
        # Whole rows are swizzled, or none.
        assert box.swizzle_bytes == (box_bytes if box_bytes in SWIZZLE_BYTES else 16)
        assert box_bytes % 16 == 0
        assert box.box_columns <= 256
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
        assert box.box_columns * 2 == box.swizzle_bytes
        if load.sharers > 1:
            # A CTA's share starts where the swizzle does: the other half's addresses are its own.
            assert box.box_rows % 8 == 0
        elif k_major:
            assert along == min(lines, tile), "rows that there are, and no more"
    assert plan.a.tx_bytes + plan.b.tx_bytes <= family.stage_bytes(columns, 2)
