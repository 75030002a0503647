"""Figures of a launch from Nsight Compute's metrics, by their own names or those of its pages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from solver.advice.figures import KernelFigures
from solver.advice.ncu import BLOCK, CAPABILITY, FIELD, GRID, Launch, number
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.limits import shortened

US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
US |= {"nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3, "second": 1e6}
BYTES = {f"{prefix}byte": 1e3**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
SMEM = {f"{unit}/block": factor for unit, factor in BYTES.items()} | BYTES
RATES = {
    f"{unit}/{time}": factor / us
    for unit, factor in BYTES.items()
    for time, us in (("second", 1e6), ("s", 1e6))
}
FRACTION = {"%": 0.01}
MOST_FRACTION = 1.5
"""Of a percentage or a share: measured ones exceed 1 by a little; beyond this the number was
written or read wrongly."""
PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
THINGS = ("", "inst", "block", "thread", "warp", "cycle", "ratio", "register/thread", "count")
COUNT = {
    f"{prefix}{thing}": factor
    for thing in THINGS
    for prefix, factor in PREFIXES.items()
    if thing or not prefix
}
MOST_UNITS = 12  # that a message lists
SIZE = re.compile(r"\(\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)|(\d{1,10})")

Units = Mapping[str, float]

TIME = ("gpu__time_duration.sum", "Duration")
READ = ("dram__bytes_read.sum",)
WRITTEN = ("dram__bytes_write.sum",)
MOVED = ("dram__bytes.sum",)
MOVED_RATE = ("dram__bytes.sum.per_second", "Memory Throughput")
REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
SMEM_STATIC = ("launch__shared_mem_per_block_static", "Static Shared Memory Per Block")
SMEM_DYNAMIC = ("launch__shared_mem_per_block_dynamic", "Dynamic Shared Memory Per Block")
WARPS = ("sm__warps_active.avg.per_cycle_active", "Achieved Active Warps Per SM")
MEMORY = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput",
)
COMPUTE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput")
ISSUE = (
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "Issue Slots Busy",
    "One or More Eligible",
)
L2_HITS = ("lts__t_sector_op_read_hit_rate.pct", "lts__t_sector_hit_rate.pct", "L2 Hit Rate")
BETWEEN_ISSUES = (
    "smsp__average_warps_active_per_issue_active.ratio",
    "smsp__average_warp_latency_per_inst_issued.ratio",
    "Warp Cycles Per Issued Instruction",
)
OPERATIONS = {
    f"{unit}__sass_thread_inst_executed_op_{kind}_pred_on.sum": weight
    for unit in ("smsp", "sm")
    for kind, weight in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}
SAMPLED = "smsp__pcsamp_warps_issue_stalled_"


def figures_of(launch: Launch, device: DeviceProfile) -> tuple[KernelFigures, list[str]]:
    """A launch's figures, and in words what had to be taken for something else.

    Raises InvalidInput naming the metric that is missing or wrong, and for a launch on another kind
    of GPU.
    """
    _check_device(launch, device)
    notes: list[str] = []
    time_us = _optional(launch, TIME, US)
    read, written = _bytes(launch, time_us, notes)
    figures = KernelFigures(
        threads_per_block=_size(launch, BLOCK, "launch__block_size"),
        registers_per_thread=round(_required(launch, REGISTERS, COUNT)),
        grid_blocks=_size(launch, GRID, "launch__grid_size"),
        read_bytes=read,
        written_bytes=written,
        smem_per_block_bytes=round(
            _required(launch, SMEM_STATIC, SMEM) + _required(launch, SMEM_DYNAMIC, SMEM)
        ),
        time_us=time_us,
        flops=_flops(launch),
        resident_warps=_optional(launch, WARPS, COUNT),
        long_scoreboard_fraction=_stall(launch, "long_scoreboard"),
        barrier_fraction=_stall(launch, "barrier"),
        issue_fraction=_fraction(launch, ISSUE),
        compute_fraction=_fraction(launch, COMPUTE),
        memory_fraction=_fraction(launch, MEMORY),
        l2_hit_fraction=_fraction(launch, L2_HITS),
    )
    return figures, notes


def _check_device(launch: Launch, device: DeviceProfile) -> None:
    metrics = launch.metrics.get(CAPABILITY, ())
    wanted = re.sub(r"^sm_(\d+)(\d)a?$", r"\1.\2", device.arch)
    for metric in metrics:
        if metric.text != wanted:
            raise InvalidInput(
                "device",
                f"must be the one that was profiled: the export's compute capability is "
                f"{shortened(metric.text)}, {device.name}'s is {wanted}",
            )


def _bytes(launch: Launch, time_us: float | None, notes: list[str]) -> tuple[int, int]:
    """Bytes of device memory, read and written."""
    read, written = _optional(launch, READ, BYTES), _optional(launch, WRITTEN, BYTES)
    if read is not None and written is not None:
        return round(read), round(written)
    if read is not None:
        notes.append(f"{WRITTEN[0]} is not in the export: nothing is taken to be written.")
        return round(read), 0
    moved = _optional(launch, MOVED, BYTES)
    rate = _optional(launch, MOVED_RATE, RATES)
    if moved is None and rate is not None and time_us is not None:
        moved = rate * time_us
    if moved is None:
        raise _lacks(launch, (*READ, *MOVED, *MOVED_RATE))
    notes.append(f"{READ[0]} is not in the export: all that memory moved is taken to be read.")
    return round(moved), 0


def _flops(launch: Launch) -> float | None:
    """Operations in fp32, where all of their counters are there."""
    for unit in ("smsp", "sm"):
        names = [name for name in OPERATIONS if name.startswith(f"{unit}__")]
        counts = [_optional(launch, (name,), COUNT) for name in names]
        known = [count for count in counts if count is not None]
        if len(known) == len(names):
            weights = [OPERATIONS[name] for name in names]
            return sum(weight * count for weight, count in zip(weights, known, strict=True))
    return None


def _stall(launch: Launch, kind: str) -> float | None:
    """The share of warps' time that a stall takes."""
    percent = _fraction(launch, (f"smsp__warp_issue_stalled_{kind}_per_warp_active.pct",))
    if percent is not None:
        return percent
    cycles = _optional(
        launch,
        (
            f"smsp__average_warps_issue_stalled_{kind}_per_issue_active.ratio",
            f"smsp__average_warp_latency_issue_stalled_{kind}.ratio",
            f"Stall {kind.replace('_', ' ').title()}",
        ),
        COUNT,
    )
    whole = _optional(launch, BETWEEN_ISSUES, COUNT)
    if cycles is not None and whole:
        return _share(f"stall {kind} over {BETWEEN_ISSUES[0]}", cycles / whole)
    samples = {
        name: _optional(launch, (name,), COUNT) or 0.0
        for name in launch.metrics
        if name.startswith(SAMPLED) and not name.endswith("_not_issued")
    }
    total = sum(samples.values())
    name = f"{SAMPLED}{kind}"
    return samples[name] / total if name in samples and total else None


def _fraction(launch: Launch, names: tuple[str, ...]) -> float | None:
    """A percentage as a fraction."""
    value = _optional(launch, names, FRACTION)
    name = next((name for name in names if name in launch.metrics), names[0])
    return None if value is None else _share(name, value)


def _share(name: str, value: float) -> float:
    """A part of a whole, at most 1."""
    if value > MOST_FRACTION:
        raise InvalidInput(
            FIELD,
            f"{name} must be at most 100 %, got {value:.6g} times that: numbers must have a "
            "decimal point; export with LC_ALL=C",
        )
    return min(1.0, value)


def _size(launch: Launch, column: str, metric: str) -> int:
    """Blocks of a grid or threads of a block: (x, y, z), or their product."""
    for name in (metric, column):
        for found in launch.metrics.get(name, ()):
            text = found.text.replace(",", "") if "(" not in found.text else found.text
            if match := SIZE.fullmatch(text):
                return math.prod(int(part) for part in match.groups() if part is not None)
            raise InvalidInput(
                FIELD, f"{name} must be a number or (x, y, z), got {shortened(repr(found.text))}"
            )
    raise _lacks(launch, (metric, column))


def _required(launch: Launch, names: tuple[str, ...], units: Units) -> float:
    value = _optional(launch, names, units)
    if value is None:
        raise _lacks(launch, names)
    return value


def _optional(launch: Launch, names: tuple[str, ...], units: Units) -> float | None:
    """The first of these metrics that is there, in these units; a page's name may stand for several
    metrics, of which those in other units are others."""
    for name in names:
        metrics = launch.metrics.get(name, ())
        for metric in metrics:
            if metric.unit not in units:
                continue
            value = number(name, metric.text)
            if value is not None:
                return _finite(name, value * units[metric.unit])
        if metrics and "__" in name and all(metric.unit not in units for metric in metrics):
            raise InvalidInput(
                FIELD,
                f"{name} must be in {_listed(units)}, got {shortened(repr(metrics[0].unit))}",
            )
    return None


def _listed(units: Units) -> str:
    """Units as a message lists them: of many, those without a prefix."""
    shown = [unit for unit, factor in units.items() if factor == 1 or len(units) <= MOST_UNITS]
    return ", ".join(unit or "no unit" for unit in shown)


def _finite(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise InvalidInput(FIELD, f"{name} must be no less than 0 and finite, got {value:g}")
    return value


def _lacks(launch: Launch, names: tuple[str, ...]) -> InvalidInput:
    return InvalidInput(
        FIELD,
        f"launch {shortened(launch.id)} has none of {', '.join(names)}: profile with "
        "`ncu --set full` or `--metrics`",
    )
