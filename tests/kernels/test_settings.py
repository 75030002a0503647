"""Settings for CUTLASS, Triton and inference servers, held against these where they install."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from kernels.launch_plan import plan_launch
from kernels.settings.cutlass import cutlass_settings, profiler_list
from kernels.settings.triton import EXPRESSIBLE, server_files, triton_settings
from kernels.settings.words import OWN
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import LAYOUTS, Problem
from tests.kernels.exports import LAUNCHES

PROBLEM = Problem(4096, 4096, 4096)
ONE = Config(family.NAME, 64, 128, 64, 4)
TWO = Config(family.NAME, 128, 256, 64, 4, math_warpgroups=2, cluster_m=2, raster_group=8)
CUTLASS = [
    (PROBLEM, ONE),
    (PROBLEM, TWO),
    (replace(PROBLEM, dtype="fp16", out_dtype="fp32", layout="nt"), TWO),
    (Problem(64, 4096, 4096, layout="tt"), replace(TWO, cluster_m=1, cluster_n=2, split_k=4)),
    (Problem(64, 1000, 4096, layout="nn"), Config(family.NAME, 192, 40, 128, 4)),
    (replace(PROBLEM, out_dtype="fp32"), replace(TWO, tile_n=64)),
]


def options_of(arguments: list[str]) -> dict[str, str]:
    """The profiler's options by name."""
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_profiler_is_told_problem_tile_and_cluster(layout: str) -> None:
    said = cutlass_settings(replace(PROBLEM, layout=layout, n=2048, ldb=None, ldc=None), TWO)
    options = options_of(said["arguments"])
    assert (options["m"], options["n"], options["k"]) == ("4096", "2048", "4096")
    assert options["A"] == ("bf16:row" if layout[0] == "t" else "bf16:column")
    assert options["B"] == ("bf16:row" if layout[1] == "t" else "bf16:column")
    assert (options["cta_m"], options["cta_n"], options["cta_k"]) == ("128", "256", "64")
    assert (options["cluster_m"], options["cluster_n"]) == ("2", "1")
    assert options["kernels"] == said["kernel"]
    assert f"_{layout}n_align8_" in said["kernel"]
    assert said["heuristics_problem"]["layout"] == layout + "n"


@pytest.mark.parametrize(("problem", "config"), LAUNCHES.values())
def test_launches_overlap_where_ours_do(problem: Problem, config: Config) -> None:
    options = options_of(cutlass_settings(problem, config)["arguments"])
    overlaps = plan_launch(problem, config, load_profile("h200")).overlaps
    assert options["use_pdl"] == ("true" if overlaps else "false")


@pytest.mark.parametrize(
    ("problem", "config", "words"),
    [
        (PROBLEM, replace(TWO, tile_m=192, math_warpgroups=3), "math_warpgroups 3"),
        (PROBLEM, replace(ONE, split_k=2), "split_k: kernels of one MATH warpgroup"),
        (Problem(64, 64, 1001), ONE, "lines of A and B that are no multiple of 16 bytes"),
    ],
)
def test_what_no_kernel_of_cutlass_is_like_has_no_name(
    problem: Problem, config: Config, words: str
) -> None:
    said = cutlass_settings(problem, config)
    assert (said["kernel"], said["testlist_row"]) == (None, None)
    assert any(words in each for each in said["cannot_express"])
    assert "kernels" not in options_of(said["arguments"])


@pytest.mark.parametrize(
    ("problem", "config", "words"),
    [
        (PROBLEM, replace(ONE, raster_group=16), "raster_group 16: swizzle_size is at most 8"),
        (replace(PROBLEM, lda=4104), ONE, "pitch of A"),
        (replace(PROBLEM, c_offset=1), ONE, "start of C"),
        *((PROBLEM, replace(ONE, **{name: 2}), OWN[name]) for name in OWN),
    ],
)
def test_what_cannot_be_said_is_named(problem: Problem, config: Config, words: str) -> None:
    said = cutlass_settings(problem, config)["cannot_express"]
    assert any(words in each for each in said)
    usual = cutlass_settings(PROBLEM, ONE)["cannot_express"]
    assert not any(words in each for each in usual)


def test_a_test_list_is_read_as_the_profiler_reads_it() -> None:
    rows = [cutlass_settings(*launch)["testlist_row"] for launch in CUTLASS]
    text = profiler_list(rows)
    header, *lines = (line.split(",") for line in text.splitlines())  # it knows no quotes
    assert header[0] == "operation_name"
    assert [line[0] for line in lines] == [row["operation_name"] for row in rows]
    assert all(len(line) == len(header) for line in lines)
    assert next(csv.DictReader(io.StringIO(text)))["swizzle_size"] == "1"


CONSUMER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import cutlass_library.generator as generator
import cutlass_library.heuristics as heuristics
# The package imports the one in the middle of the other, which leaves it without these names.
vars(heuristics).update({k: v for k, v in vars(generator).items() if not k.startswith("__")})

class Ours:
    def __init__(self, tile):
        self.tile = tile
    def get_configs(self, m, n, k, batch, dtypes, layouts, a, b, voidC, use_fast_acc, count):
        names = ("dtype_a", "dtype_b", "dtype_acc", "dtype_c", "dtype_d")
        return [{**self.tile, **dict(zip(names, dtypes)), "voidC": voidC, "alignment_a": a,
                 "layout_a": layouts[0], "layout_b": layouts[1], "layout_d": layouts[2],
                 "alignment_b": b, "use_fast_acc": use_fast_acc}]

made = []
for problem, tile in json.load(sys.stdin):
    (found,) = heuristics.get_gemm_configs([problem], provider=Ours(tile))
    _, operations = heuristics.generate_sm90_from_heuristics_configs(
        None, "13.0", found["configs"])
    made.append([operation.procedural_name() for operation in operations])
print(json.dumps(made))
"""


def test_cutlass_makes_the_kernels_that_are_named_of_the_problems_that_are_listed() -> None:
    if find_spec("cutlass_library") is None:
        pytest.skip("cutlass_library is not installed (pip install nvidia-cutlass)")
    asked = []
    for problem, config in CUTLASS:
        tile = {f"cta_tile_{x}": getattr(config, f"tile_{x}") for x in "mnk"}
        cluster = {"cluster_m": config.cluster_m, "cluster_n": config.cluster_n, "cluster_k": 1}
        asked.append((cutlass_settings(problem, config)["heuristics_problem"], tile | cluster))
    run = subprocess.run(
        [sys.executable, "-c", CONSUMER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    for launch, names in zip(CUTLASS, json.loads(run.stdout), strict=True):
        assert cutlass_settings(*launch)["kernel"] in names


SAID = replace(ONE, raster_group=4, stages=5)


def test_a_triton_config_has_the_tile_the_warps_and_the_stages() -> None:
    said = triton_settings(replace(TWO, cluster_m=1))
    assert said["config"] == {
        "kwargs": {
            "BLOCK_SIZE_M": 128,
            "BLOCK_SIZE_N": 256,
            "BLOCK_SIZE_K": 64,
            "GROUP_SIZE_M": 8,
        },
        "num_warps": 8,
        "num_stages": 4,
        "num_ctas": 1,
    }


def test_triton_takes_it() -> None:
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    arguments = triton_settings(SAID)["config"]
    config = triton.Config(**arguments)
    rest = {name: arguments[name] for name in ("num_warps", "num_stages", "num_ctas")}
    assert config.all_kwargs() == arguments["kwargs"] | rest
    # What a block of its kernels may be.
    assert all(triton.next_power_of_2(value) == value for value in arguments["kwargs"].values())


@pytest.mark.parametrize(
    ("field", "value"),
    [("tile_n", 24), ("tile_m", 192), ("cluster_m", 2), ("split_k", 4), ("math_warpgroups", 3)],
)
def test_what_triton_cannot_be_told_is_none_and_named(field: str, value: int) -> None:
    said = triton_settings(replace(ONE, **{field: value}))
    assert said["config"] is None
    assert any(f"{field} {value}: must be one of" in words for words in said["cannot_express"])


def test_what_can_be_said_is_of_the_family() -> None:
    domains = {
        "tile_m": {m for m, _ in family.TILE_SHAPES},
        "tile_n": family.TILE_N,
        "math_warpgroups": {w for _, w in family.TILE_SHAPES},
        "cluster_m": {m for m, _ in family.CLUSTERS},
        "cluster_n": {n for _, n in family.CLUSTERS},
        "split_k": family.SPLIT_K,
    }
    for name, bound in EXPRESSIBLE["config"].items():
        assert set(bound["in"]) <= set(domains[name])


def as_a_server_reads(table: dict[str, Any], rows: int) -> dict[str, int]:
    """The entry that vLLM and SGLang launch with: of the nearest number of rows."""
    by_rows = {int(key): entry for key, entry in table.items()}
    found: dict[str, int] = by_rows[min(by_rows, key=lambda key: abs(key - rows))]
    return found


def test_a_servers_table_maps_rows_to_settings() -> None:
    rows = [
        (Problem(m, 512, 1024), replace(SAID, stages=stages))
        for m, stages in ((64, 3), (16, 4), (1024, 5), (16, 6))
    ]
    files, unsaid = server_files([*rows, (Problem(1, 64, 64), SAID)], "NVIDIA H200")
    assert list(files) == [
        "N=512,K=1024,device_name=NVIDIA_H200.json",
        "N=64,K=64,device_name=NVIDIA_H200.json",
    ]
    table = json.loads(json.dumps(next(iter(files.values()))))
    assert list(table) == ["16", "64", "1024"]
    assert [as_a_server_reads(table, m)["num_stages"] for m in (1, 50, 800)] == [4, 3, 5]
    assert set(table["16"]) == {
        *("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"),
        *("num_warps", "num_stages"),
    }
    assert any("experts and routing" in words for words in unsaid)
