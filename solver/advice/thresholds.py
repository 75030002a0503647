"""What advice rests on: every threshold and every measured ratio, once, with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from solver.device import Constant

H200 = "measured on one H200, 2026-11-29"
GRID = (
    f"{H200}: LayerNorm and a polynomial of degree 0 to 512 or GELU, fp32 and bf16, rows of 1,024 "
    "to 16,384, 512 MiB and more"
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A figure that decides, its unit and where it comes from."""

    name: str
    value: float
    unit: str
    source: str

    def to_dict(self) -> dict[str, Any]:
        """The threshold as JSON-ready values."""
        return {"name": self.name, "value": self.value, "unit": self.unit, "source": self.source}


@dataclass(frozen=True, slots=True)
class Range:
    """A figure that is not known better: least, expected and most."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Time of two stages: ``whole`` times the longer one and ``lesser`` times the other.

    (1, 0) is perfect overlap, (1, 1) none; measured kernels lie between and beyond.
    """

    whole: Range
    lesser: Range
    source: str


SHORT = Threshold(
    "shortest time",
    5.0,
    "us",
    "a launch (1 us), the first chunk's load (0.7 us) and the hand-over of the last (0.5 us) are "
    f"paid in full, whatever overlaps: over 40 % of 5 us; {H200}",
)
UNEQUAL = Threshold(
    "least ratio of stages",
    0.1,
    "1",
    "overlap saves at most the shorter stage: a tenth, which is what dividing the warps costs "
    f"against the same work in like warps (1.11 in the median); {GRID}",
)
STALLED = Threshold(
    "least share of warps' time spent on loads",
    0.3,
    "1",
    "Nsight Compute's own rules report a stall from here on (WarpStateStats)",
)
BUSY = Threshold(
    "most use of a unit",
    0.8,
    "1",
    "Nsight Compute's own rules report latency below 0.8 of issue slots (WarpStateStats) and a "
    "used-up unit above 0.8 of its throughput (SpeedOfLight)",
)
LATENCY = Threshold(
    "throughput that tells of latency",
    0.6,
    "1",
    "Nsight Compute's own rules take less than 0.6 of both throughputs for latency (SpeedOfLight)",
)
EXPLAINED = Threshold(
    "most time over what stages explain",
    2.0,
    "1",
    "plain kernels took at most 1.37 times both stages, one after the other with every load waited "
    f"for: operations beside multiply-adds are not counted; {GRID}",
)
SERVED = Threshold(
    "share of sectors that L2 has",
    0.9,
    "1",
    "dividing the warps took 1.05 to 1.32 times the like warps' time in 24 of 24 L2-resident "
    f"cells; {H200}. What is written and read again hits at about a half in a streaming kernel",
)
CHUNKS = Threshold(
    "fewest chunks of an SM",
    4,
    "chunks",
    "two stages over n chunks take n + 1 turns: below 4, filling the pipeline is over a fifth",
)
WARPS = Threshold(
    "fewest resident warps",
    16,
    "warps of an SM",
    "CUDA C++ programming guide: 4 schedulers, and 4 cycles from an instruction to the next that "
    "needs it. A kernel that has fewer must keep those it has",
)
GAIN = Threshold(
    "least gain",
    1.1,
    "1",
    f"dividing the warps cost 11 % in the median against like warps; {GRID}",
)
TIE = Threshold(
    "what a gain may be off 1 and be none",
    0.02,
    "1",
    "as far apart as a measurement tells two kernels for sure. By forecasts it is said that "
    "divided warps win, or lose, where they do the opposite by more than that in at most one in "
    "ten problems",
)
SMALLEST_CHUNK_BYTES = 4096
LARGEST_CHUNK_BYTES = 16384
"""Chunks that are tried where none is given; of 16 to 32 KiB were the best where loads are all."""
SLOTS = 2
"""Of a ring: more of them changed the time by at most 3 % (one H200, depth 2 to 6)."""

ASSUMED_IN_FLIGHT = Range(512, 512, 1024)
"""Bytes that a warp asks for before it waits: one vector of 16 bytes a lane, or two. Where this
decides, the figure is asked for."""
LOADED_LATENCY = Constant(
    1.3,
    "1",
    "measured",
    "latency of a chunk with every SM loading (0.65 to 0.70 us) over an idle machine's (0.51 us); "
    + H200,
)
REACHED_BANDWIDTH = Constant(
    0.87, "1", "measured", f"a copy moves 4.19 TB/s of the H200's 4.8; {H200}"
)
L2_BANDWIDTH = Constant(
    1.48, "1", "measured", f"a copy in L2 moves 6.2 TB/s where memory's moves 4.19; {H200}"
)

DIVIDED = Overlap(
    Range(1.02, 1.06, 1.38),
    Range(0.0, 0.35, 0.6),
    f"producer and consumer warps, the best of each cell; {GRID}; up to 1.38 with five warps on "
    "an SM",
)
LIKE = Overlap(
    Range(1.0, 1.04, 1.5),
    Range(0.0, 0.25, 0.75),
    f"like warps with the row in registers, or a ring of their own; {GRID}; up to 1.5 with four "
    "warps on an SM",
)
HIDDEN = Overlap(Range(1.0, 1.0, 1.1), Range(0.0, 0.25, 0.75), LIKE.source)
"""A kernel whose occupancy hides the latency."""
WAITING = Overlap(
    Range(1.0, 1.0, 1.0), Range(0.7, 1.0, 1.8), f"a plain kernel, a warp to a row; {GRID}"
)
"""A kernel that waits on its loads."""
UNCLEAR = Overlap(
    Range(1.0, 1.0, 1.0), Range(0.0, 0.7, 1.8), "between a kernel that waits and one that does not"
)
