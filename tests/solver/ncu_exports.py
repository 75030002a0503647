"""Exports as Nsight Compute writes them, small: the same launches on both pages."""

from __future__ import annotations

import csv
import io

RAW_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC"'
)
COLUMNS = {
    "gpu__time_duration.sum": ("us", "640.00"),
    "dram__bytes_read.sum": ("Mbyte", "536.87"),
    "dram__bytes_write.sum": ("Mbyte", "530.11"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "34.7"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "38.25"),
    "launch__registers_per_thread": ("register/thread", "255"),
    "launch__shared_mem_per_block_static": ("byte/block", "0"),
    "launch__shared_mem_per_block_dynamic": ("Kbyte/block", "4.10"),
    "launch__grid_size": ("", "4,096"),
    "launch__block_size": ("", "128"),
    "sm__warps_active.avg.per_cycle_active": ("warp", "7.91"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "21.30"),
    "smsp__average_warps_active_per_issue_active.ratio": ("", "8.00"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("", "5.20"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("", "0.40"),
    "lts__t_sector_hit_rate.pct": ("%", "50.1"),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", "8,000,000,000"),
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": ("inst", "500,000,000"),
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": ("inst", "500,000,000"),
}
NAMES = {
    "0": "void copy_rows<float, 4>(float *, const float *)",
    "1": 'transform(const float *, "x")',
    "2": "void copy_rows<float, 4>(float *, const float *)",
}
PREFACE = '==PROF== Connected to process 1234 (/opt/app)\nrows done: 3, all "well\n'


def raw(columns: dict[str, tuple[str, str]] = COLUMNS, ids: tuple[str, ...] = ("1",)) -> str:
    """``ncu --csv --page raw``: a header, units, a row for each launch."""
    out = io.StringIO()
    out.write(f"{PREFACE}{RAW_HEADER}," + ",".join(f'"{name}"' for name in columns) + "\n")
    write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write([*[""] * 11, *(unit for unit, _ in columns.values())])
    for each in ids:
        launch = [each, "1234", "app", "127.0.0.1", NAMES[each], "1", "7", "(128, 1, 1)"]
        write([*launch, "(4096, 1, 1)", "0", "9.0", *(text for _, text in columns.values())])
    return out.getvalue() + "==PROF== Disconnected from process 1234\n"


DETAILS_HEADER = (
    f'{RAW_HEADER},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name",'
    '"Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'
)
ROWS = (
    ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "38.25"),
    ("GPU Speed Of Light Throughput", "DRAM Throughput", "%", "34.70"),
    ("GPU Speed Of Light Throughput", "Duration", "us", "640.00"),
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "38.25"),
    ("Compute Workload Analysis", "Issue Slots Busy", "%", "21.30"),
    ("Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "1,667.16"),
    ("Memory Workload Analysis", "L2 Hit Rate", "%", "50.10"),
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction", "cycle", "8.00"),
    ("Launch Statistics", "Block Size", "", "128"),
    ("Launch Statistics", "Function Cache Configuration", "", "CachePreferNone"),
    ("Launch Statistics", "Grid Size", "", "4,096"),
    ("Launch Statistics", "Registers Per Thread", "register/thread", "255"),
    ("Launch Statistics", "Driver Shared Memory Per Block", "Kbyte/block", "1.02"),
    ("Launch Statistics", "Dynamic Shared Memory Per Block", "Kbyte/block", "4.10"),
    ("Launch Statistics", "Static Shared Memory Per Block", "byte/block", "0"),
    ("Occupancy", "Achieved Active Warps Per SM", "warp", "7.91"),
)


def details(rows: tuple[tuple[str, ...], ...] = ROWS, ids: tuple[str, ...] = ("1",)) -> str:
    """``ncu --csv --page details``: a row for each metric, and rules' words between."""
    out = io.StringIO()
    out.write(PREFACE + DETAILS_HEADER)
    write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    for each in ids:
        launch = [each, "1234", "app", "127.0.0.1", NAMES[each], "1", "7", "(128, 1, 1)"]
        launch += ["(4096, 1, 1)", "0", "9.0"]
        for row in rows:
            write([*launch, *row, ""])  # Nsight Compute leaves out the rules' columns
        words = 'Warps wait: "Stall Long Scoreboard", 65.0%,\nsee the guide.'
        write([*launch, "WarpStateStats", "", "", "", "CPIStall", "OPT", words, "local", "61.2"])
    return out.getvalue()
