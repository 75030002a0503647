"""What is read of the profiler's output, and which rows it is asked about."""

from __future__ import annotations

import json
from pathlib import Path

from bench.gpu_profile import kernels_of, losing

OUTPUT = """==PROF== Connected to process 7
"ID","Kernel Name","Block Size","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active","smsp__inst_executed.sum"
"","","","%","ns","%","inst"
"0","sm90_gemm","(384, 1, 1)","61.25","21,504","n/a","77"
"1","nvjet_tst_64x8","(384, 1, 1)","70","18000","18.7","78"
"""  # noqa: E501


def test_kernels_come_with_the_metrics_that_are_kept_and_their_units() -> None:
    ours, cublas = kernels_of(OUTPUT)
    assert ours == {
        "kernel": "sm90_gemm",
        "metrics": {
            "dram__throughput.avg.pct_of_peak_sustained_elapsed [%]": 61.25,
            "gpu__time_duration.sum [ns]": 21504.0,
        },
    }
    assert cublas["kernel"] == "nvjet_tst_64x8"
    assert cublas["metrics"]["sm__warps_active.avg.pct_of_peak_sustained_active [%]"] == 18.7


def test_words_without_a_table_have_no_kernels() -> None:
    assert list(kernels_of("==ERROR== the driver does not allow it")) == []


def test_rows_that_lose_are_taken_the_worst_first(tmp_path: Path) -> None:
    rows = [
        {"role": "best", "ratio_high": high, "m": m}
        for m, high in enumerate([0.94, 0.95, None, 0.5])
    ]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": [*rows, {"role": "pick", "ratio_high": 0.1, "m": 9}]}))
    assert [row["m"] for row in losing(path, 0.95)] == [3, 0]
