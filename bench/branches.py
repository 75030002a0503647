"""What the Hopper kernel may do differently, and which of it a launch does.

A branch is an axis and a value: ``layout=tn``, ``c_path=elements``, ``cluster=2x1``. The
evidence of the GPU counts by them; MEETINGS says which must be met together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernels.launch_plan import CachePolicy, LaunchPlan, TileLoad, plan_launch
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey
from solver.problem import VECTOR_BYTES, Matrix, Problem

LINE_BYTES = 128  # pitches that are no multiple of it are odd: TMA takes them, more slowly

Branches = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, a configuration that is legal for it, and how many SMs may be used."""

    problem: Problem
    config: Config
    sms: int

    @property
    def key(self) -> CompileKey:
        """What its kernel is compiled for."""
        return family.compile_key(self.config, self.problem.dtype, self.problem.kernel_layout)

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON-ready values."""
        return {
            "problem": self.problem.to_dict(),
            "config": self.config.to_dict(),
            "sms": self.sms,
        }


AXES: dict[str, tuple[str, ...]] = {
    "dtype": ("bf16", "fp16"),
    "layout": ("tn", "nn", "nt", "tt"),
    "out": ("bf16", "fp16", "fp32"),
    "tile": tuple(f"{m}x{w}" for m, w in family.TILE_SHAPES),
    "tile_n": tuple(map(str, family.TILE_N)),
    "swizzle": ("8", "16", "32", "64"),
    "piece": tuple(map(str, family.PIECES_N)),
    "tile_k": tuple(map(str, family.TILE_K)),
    "in_flight": ("0", "1"),
    "register_split": ("0", "1"),
    "dma_warps": ("1", "2"),
    "stages": tuple(map(str, family.STAGES)),
    "cluster": tuple(f"{m}x{n}" for m, n in family.CLUSTERS),
    "split": ("1", "2", "more"),
    "shares": ("whole", "even", "uneven", "single"),
    "units": ("one", "several"),
    "ring": ("part", "wraps", "often"),
    "raster": ("none", "whole", "partial"),
    "a_load": ("direct", "odd", "one_line", "pitch", "offset", "both"),
    "b_load": ("direct", "odd", "one_line", "pitch", "offset", "both"),
    "c_path": ("tma", "elements"),
    "c_why": ("direct", "odd", "one_line", "ragged", "pitch", "offset", "both"),
    "told": ("alike", "otherwise"),
    "a_copied": ("no", "yes"),
    "b_copied": ("no", "yes"),
    "a_gap": ("no", "yes"),
    "b_gap": ("no", "yes"),
    "c_gap": ("no", "yes"),
    "a_box": ("whole", "cut", "part"),
    "b_box": ("whole", "cut", "part"),
    "a_policy": ("none", "first", "last"),
    "b_policy": ("none", "first", "last"),
    "edge_m": ("no", "yes"),
    "edge_n": ("no", "yes"),
    "edge_k": ("no", "yes"),
    "blocks": ("all", "skipped"),
    "pieces": ("all", "skipped"),
    "m": ("1", "few", "many"),
    "n": ("1", "few", "many"),
    "k": ("1", "few", "many"),
}
"""Every branch: the values of each axis.

swizzle     columns of the widest swizzled row that divides tile_n: how wide rows of B are where it
            is contiguous in n, and twice a piece of fp32 output
piece       columns of a piece of 16-bit output in a staging buffer
shares      k of a split tile: not split, in equal parts, in unequal ones, one k-iteration each
units       of work a CTA walks
ring        k-iterations of a CTA against its slots: not more, more, more than twice as many
raster      rows walked together: one, groups of equal size, a last group that is smaller
a_load      A as it lies (on whole lines, odd pitch, one line of whatever pitch), or copied
            first because of its pitch, its offset or both; ``b_load`` alike, ``c_why`` for C,
            which TMA can't store either where its rows end on no whole 16 bytes (ragged)
told        the problem's layout is the kernel's, or another that means the same memory (a single
            row or column with nothing in between lies along k whatever its layout says)
a_box       whether the TMA box is cut to the rows there are: to whole periods of the swizzle, of
            eight rows, or to a part of the last
a_policy    what the L2 is told of A's lines: nothing, or that they are first or last to go
blocks      64-row blocks of the last tile that lie wholly outside and are left out
pieces      the same for epilogue pieces along n
m, n, k     1, less than a swizzled row of 64, or more
"""

MEETINGS: tuple[tuple[str, ...], ...] = (
    ("dtype", "layout", "out", "cluster", "c_path"),
    ("dtype", "layout", "tile_k", "in_flight"),
    ("dtype", "tile", "register_split"),
    ("layout", "tile_n"),
    ("layout", "tile", "swizzle"),
    ("layout", "piece"),
    ("layout", "cluster", "tile_k", "dma_warps"),
    ("layout", "cluster", "swizzle"),
    ("layout", "cluster", "a_copied", "b_copied"),
    ("dtype", "layout", "a_copied", "b_copied"),
    ("layout", "a_load"),
    ("layout", "b_load"),
    ("cluster", "a_load"),
    ("cluster", "b_load"),
    ("layout", "a_gap", "b_gap"),
    ("layout", "edge_m", "edge_n", "edge_k"),
    ("layout", "edge_k", "tile_k", "split"),
    ("layout", "told"),
    ("layout", "m"),
    ("layout", "n"),
    ("layout", "k"),
    ("m", "n", "k"),
    ("a_load", "b_load"),
    ("a_box", "b_box", "layout"),
    ("a_policy", "b_policy", "layout"),
    ("a_policy", "b_policy", "cluster", "dma_warps"),
    ("a_policy", "b_policy", "split"),
    ("tile", "tile_n"),
    ("tile", "in_flight", "register_split", "dma_warps"),
    ("tile", "cluster", "split"),
    ("tile", "out", "c_path"),
    ("tile", "blocks", "c_path"),
    ("tile", "piece"),
    ("swizzle", "out", "c_path", "c_gap"),
    ("piece", "out", "c_path"),
    ("piece", "out", "pieces"),
    ("piece", "c_path", "c_gap"),
    ("piece", "edge_n", "c_path"),
    ("piece", "cluster"),
    ("piece", "split"),
    ("tile_n", "cluster"),
    ("tile_n", "out"),
    ("out", "c_why"),
    ("out", "split", "c_path"),
    ("cluster", "in_flight", "dma_warps", "register_split"),
    ("cluster", "shares"),
    ("cluster", "units", "ring"),
    ("cluster", "raster"),
    ("cluster", "a_box"),
    ("cluster", "b_box"),
    ("cluster", "edge_m", "edge_n", "edge_k"),
    ("split", "units", "ring"),
    ("split", "raster"),
    ("stages", "in_flight"),
    ("ring", "in_flight", "dma_warps"),
    ("ring", "units", "tile"),
)
"""Axes whose values must all be met together, in every combination that can be."""

_NARROW = tuple(str(n) for n in family.TILE_N if n % family.WIDE_STEP_N)
_COPIED = ("pitch", "offset", "both")
_POLICIES = {
    CachePolicy.NONE: "none",
    CachePolicy.EVICT_FIRST: "first",
    CachePolicy.EVICT_LAST: "last",
}
IMPOSSIBLE: tuple[dict[str, tuple[str, ...]], ...] = (
    *(
        {axis: values, **other}
        for axis, values in (("swizzle", ("8",)), ("piece", ("8",)), ("tile_n", _NARROW))
        for other in ({"out": ("fp32",)}, {"cluster": ("2x1",)})
    ),
    # the CTAs of a cluster have a tile each
    {"cluster": ("2x1",), "m": ("1", "few")},
    {"cluster": ("2x1",), "a_box": ("cut", "part")},
    {"cluster": ("1x2",), "n": ("1",)},
    # halves of a tile of A are cut by whole periods
    {"cluster": ("1x2",), "a_box": ("part",)},
    # halves of a tile of B are cut by 16 columns, and there is a tile for each multiple of 16
    {"cluster": ("2x1", "1x2"), "b_box": ("cut", "part")},
    # no tile is wider than m or n needs, so that one which isn't K-major is never cut
    {"a_box": ("cut", "part"), "layout": ("nn", "nt")},
    {"b_box": ("cut", "part"), "layout": ("nt", "tt")},
    # an operand is read once, and the other again meanwhile or not; or neither is
    {"a_policy": ("none",), "b_policy": ("first", "last")},
    {"a_policy": ("first",), "b_policy": ("none",)},
    {"a_policy": ("last",), "b_policy": ("none", "last")},
    # the narrowest tiles are one piece of 16 bits, and TMA stores whole rows of the narrowest
    {"piece": ("8", "16"), "pieces": ("skipped",), "out": ("bf16", "fp16")},
    {"piece": ("8",), "edge_n": ("yes",), "c_path": ("tma",)},
    # a 64-row tile is one block
    {"blocks": ("skipped",), "tile": ("64x1",)},
    {"stages": ("2",), "in_flight": ("1",)},
    {"split": ("1",), "shares": ("even", "uneven", "single")},
    {"split": ("2", "more"), "shares": ("whole",)},
    {"split": ("2", "more"), "k": ("1", "few")},
    {"c_path": ("tma",), "c_why": _COPIED},
    {"c_path": ("tma",), "c_why": ("ragged",)},
    {"c_path": ("elements",), "c_why": ("direct", "odd", "one_line")},
)
"""Values that no legal launch has together, whatever its kernel."""

Combination = tuple[tuple[str, str], ...]


def meetings(keys: Iterable[CompileKey]) -> Iterator[Combination]:
    """Every combination of values, (axis, value) each, to be met by launches of these kernels."""
    kernels = {tuple(branches_of_key(key).items()) for key in keys}
    in_key = {axis for kernel in kernels for axis, _ in kernel}
    for axes in MEETINGS:
        compiled = [axis for axis in axes if axis in in_key]
        there_are = {tuple((axis, dict(kernel)[axis]) for axis in compiled) for kernel in kernels}
        for values in product(*(AXES[axis] for axis in axes)):
            combination = tuple(zip(axes, values, strict=True))
            if tuple(pair for pair in combination if pair[0] in in_key) not in there_are:
                continue
            if not any(
                all(dict(combination).get(axis) in values for axis, values in pattern.items())
                for pattern in IMPOSSIBLE
            ):
                yield combination


def met(taken: Iterable[Branches]) -> set[Combination]:
    """The combinations of MEETINGS that these launches meet."""
    return {
        tuple((axis, branches[axis]) for axis in axes) for branches in taken for axes in MEETINGS
    }


def branches_of_key(key: CompileKey) -> dict[str, str]:
    """The axes that a kernel is compiled for."""
    return {
        "dtype": key.dtype,
        "layout": key.layout,
        "tile": f"{key.tile_m}x{key.math_warpgroups}",
        "tile_n": str(key.tile_n),
        "swizzle": str(family.swizzle_n(key.tile_n)),
        "piece": str(family.piece_n(key.tile_n, family.STAGED_BYTES)),
        "tile_k": str(key.tile_k),
        "in_flight": str(key.mma_in_flight),
        "register_split": str(key.register_split),
    }


def branches_of(pair: Pair) -> dict[str, str]:
    """Every axis with the value that this launch takes."""
    problem, config = pair.problem, pair.config
    plan = plan_launch(problem, config, pair.sms)
    rows, columns = _last(problem.m, config.tile_m), _last(problem.n, config.tile_n)
    piece = int(family.piece_n(config.tile_n, problem.out_bytes))
    clusters_m = plan.tiles_m // config.cluster_m
    return {
        **branches_of_key(pair.key),
        "out": problem.out,
        "dma_warps": str(config.dma_warps),
        "stages": str(config.stages),
        "cluster": f"{config.cluster_m}x{config.cluster_n}",
        "split": str(config.split_k) if config.split_k < 3 else "more",
        "shares": _shares(plan),
        "units": "several" if plan.units > plan.grid else "one",
        "ring": _ring(plan),
        "raster": (
            "none"
            if config.raster_group == 1
            else "partial"
            if clusters_m % config.raster_group
            else "whole"
        ),
        "a_load": _lies(problem.a),
        "b_load": _lies(problem.b),
        "c_path": "tma" if plan.c_by_tma else "elements",
        "c_why": "ragged" if problem.c.aligned and not plan.c_by_tma else _lies(problem.c),
        "told": "alike" if problem.layout == pair.key.layout else "otherwise",
        "a_copied": _yes(plan.a.copied),
        "b_copied": _yes(plan.b.copied),
        "a_gap": _yes(problem.a.pitch > problem.a.length),
        "b_gap": _yes(problem.b.pitch > problem.b.length),
        "c_gap": _yes(problem.c.pitch > problem.c.length),
        "a_box": _box(plan.a, config.tile_m, config.tile_k * problem.element_bytes),
        "b_box": _box(plan.b, config.tile_n, config.tile_k * problem.element_bytes),
        "a_policy": _POLICIES[plan.a.policy],
        "b_policy": _POLICIES[plan.b.policy],
        "edge_m": _yes(rows < config.tile_m),
        "edge_n": _yes(columns < config.tile_n),
        "edge_k": _yes(problem.k % config.tile_k),
        "blocks": "skipped" if rows <= config.tile_m - family.MMA_M else "all",
        "pieces": "skipped" if columns <= config.tile_n - piece else "all",
        "m": _extent(problem.m),
        "n": _extent(problem.n),
        "k": _extent(problem.k),
    }


def _yes(fact: object) -> str:
    return "yes" if fact else "no"


def _extent(extent: int) -> str:
    return "1" if extent == 1 else "few" if extent < family.SWIZZLE_K else "many"


def _last(extent: int, tile: int) -> int:
    """Rows or columns of the last tile that lie inside."""
    return (extent - 1) % tile + 1


def _share(plan: LaunchPlan, split: int) -> int:
    """k-iterations of one CTA's share of a tile."""
    parts = plan.config.split_k
    iterations = -(-plan.problem.k // plan.config.tile_k)
    return (split + 1) * iterations // parts - split * iterations // parts


def _shares(plan: LaunchPlan) -> str:
    sizes = {_share(plan, split) for split in range(plan.config.split_k)}
    if plan.config.split_k == 1:
        return "whole"
    return "uneven" if len(sizes) > 1 else "single" if sizes == {1} else "even"


def _ring(plan: LaunchPlan) -> str:
    """How often the first CTA goes around its ring."""
    units = range(0, plan.units // plan.cluster, plan.grid // plan.cluster)
    loads = sum(_share(plan, unit % plan.config.split_k) for unit in units)
    stages = plan.config.stages
    return "part" if loads <= stages else "wraps" if loads <= 2 * stages else "often"


def _lies(matrix: Matrix) -> str:
    """What about a matrix TMA can't take, or what there is to it that it takes all the same."""
    pitch_bytes = matrix.pitch * matrix.element_bytes
    offset = matrix.offset * matrix.element_bytes % VECTOR_BYTES != 0
    pitch = matrix.lines > 1 and pitch_bytes % VECTOR_BYTES != 0
    if offset or pitch:
        return "both" if offset and pitch else "offset" if offset else "pitch"
    if matrix.lines == 1 and pitch_bytes % VECTOR_BYTES:
        return "one_line"
    return "odd" if pitch_bytes % LINE_BYTES else "direct"


def _box(load: TileLoad, lines: int, line_bytes: int) -> str:
    """How many of a tile's rows, or columns of B, are asked for."""
    asked = load.tx_bytes // line_bytes
    return "whole" if asked == lines else "part" if asked % family.BOX_STEP else "cut"
