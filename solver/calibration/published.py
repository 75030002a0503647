"""The published model's constants that follow from those of the kernel family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.calibration.rows import FAMILY


def paper_constants(own: Mapping[str, Any]) -> dict[str, Any]:
    """The published model's constants from the kernel family's, one SM's at full clock."""
    k = {name: constant["value"] for name, constant in own.items()}
    cycles_per_us = k["clock_ghz"] * 1e3
    rules = {
        "init_us": (
            k["launch_us"] + k["launch_warpgroup_us"],
            "us",
            "launch_us and launch_warpgroup_us of one warpgroup",
        ),
        "dma_startup_us": (
            (k["load_latency_cycles"] + k["miss_latency_cycles"]) / cycles_per_us,
            "us",
            "load_latency_cycles and miss_latency_cycles at clock_ghz",
        ),
        "dma_bytes_per_us": (
            k["load_bytes_per_cycle"] * cycles_per_us,
            "B/us/SM",
            "load_bytes_per_cycle at clock_ghz",
        ),
        "math_startup_us": (
            k["mma_drain_cycles"] / cycles_per_us,
            "us",
            "mma_drain_cycles at clock_ghz",
        ),
        "math_macs_per_us": (
            k["mma_macs_per_cycle"] / k["mma_overhead"] * cycles_per_us,
            "MAC/us/SM",
            "mma_macs_per_cycle over mma_overhead at clock_ghz",
        ),
    }
    return {
        name: {
            "value": rounded(value),
            "unit": unit,
            "provenance": "derived",
            "source": f"{source}: {FAMILY}'s constants of this profile",
        }
        for name, (value, unit, source) in rules.items()
    }


def rounded(value: float) -> float:
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short
