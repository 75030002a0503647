"""Right kernels that show which kinds of order racecheck can't follow (``hand_over.cu``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sanitize_races import TOOL
from kernels.sources import headers_named


@dataclass(frozen=True)
class Probe:
    """A right kernel of ``bench/hand_over.cu`` in which a tool may see a race."""

    what: str
    kernel: str
    tool: str = TOOL
    scope: str = "probes"


PROBES = {
    "in_warp": Probe("lanes that meet at their warp's barrier", "hand_over_in_warp"),
    "each_arrives": Probe("every lane arrives at an mbarrier", "hand_over_each_arrives"),
    "one_arrives": Probe(
        "lanes meet, and one arrives at an mbarrier for its warp", "hand_over_one_arrives"
    ),
    "named": Probe("bar.arrive and bar.sync at a named barrier", "hand_over_named"),
}
HAND_OVER = Path(__file__).with_name("hand_over.cu")
ROUNDS, THREADS, SMEM_BYTES = 64, 64, 16 + 64 * 4


def hand_over_source() -> str:
    """The probes' kernels with the header that they include."""
    include = '#include "ptx.cuh"'
    return HAND_OVER.read_text("utf-8").replace(
        include, headers_named(lambda name: name == "ptx.cuh")["ptx.cuh"]
    )


def arguments(sums: int, rounds: int) -> Any:
    """A kernel's one argument, an array of one that is passed by value."""
    import numpy as np

    return np.array([(sums, rounds)], np.dtype([("sums", "u8"), ("rounds", "u4")], align=True))


def launch_probe(name: str) -> None:
    """Launch one probe. Raises RuntimeError where a lane has taken other words than were put."""
    import cupy as cp
    import numpy as np

    kernel = cp.RawModule(code=hand_over_source(), options=("--std=c++17",)).get_function(
        PROBES[name].kernel
    )
    sums = cp.zeros(THREADS, np.uint32)
    kernel((1,), (THREADS,), (arguments(sums.data.ptr, ROUNDS),), shared_mem=SMEM_BYTES)
    if not np.array_equal(sums.get(), expected_sums(name)):
        raise RuntimeError(f"probe {name}: wrong sums")


def expected_sums(name: str) -> Any:
    """What each thread of a probe comes to."""
    import numpy as np

    lanes = np.arange(THREADS) % 32
    sums = ROUNDS * (31 - lanes) + ROUNDS * (ROUNDS - 1) // 2
    takes = (np.arange(THREADS) >= 32) | (name == "in_warp")
    return np.where(takes, sums, 0).astype(np.uint32)
