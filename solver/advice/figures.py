"""What is known of a kernel: figures of one launch, measured or worked out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from solver.errors import InvalidInput
from solver.limits import check_choice, check_integer, check_number

MEMORY, L2 = "memory", "l2"
SOURCES = (MEMORY, L2)
MAX_COUNT = 2**31 - 1
MAX_BYTES = 2**60
MAX_FLOPS = 1e24
MIN_TIME_US, MAX_TIME_US = 1e-3, 1e9
MAX_WARPS = 64

INTEGERS = {
    "threads_per_block": (1, 1024),
    "registers_per_thread": (1, 255),
    "smem_per_block_bytes": (0, 2**20),
    "grid_blocks": (1, MAX_COUNT),
    "read_bytes": (0, MAX_BYTES),
    "written_bytes": (0, MAX_BYTES),
    "bytes_in_flight_per_warp": (1, 2**20),
    "chunk_bytes": (16, 2**20),
}
"""Limits of whole figures, both ends included."""

NUMBERS = {
    "time_us": (MIN_TIME_US, MAX_TIME_US),
    "flops": (0.0, MAX_FLOPS),
    "tensor_flops": (0.0, MAX_FLOPS),
    "load_us": (MIN_TIME_US, MAX_TIME_US),
    "compute_us": (MIN_TIME_US, MAX_TIME_US),
    "resident_warps": (0.1, float(MAX_WARPS)),
    "long_scoreboard_fraction": (0.0, 1.0),
    "barrier_fraction": (0.0, 1.0),
    "issue_fraction": (0.0, 1.0),
    "compute_fraction": (0.0, 1.0),
    "memory_fraction": (0.0, 1.0),
    "l2_hit_fraction": (0.0, 1.0),
}
"""Limits of the others."""


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """One launch of a kernel. None: not known. Fractions are of 1.

    threads_per_block, registers_per_thread, grid_blocks   of the launch
    smem_per_block_bytes      shared memory of a block, static and dynamic
    read_bytes, written_bytes what a launch reads and writes, each byte as often as it comes from
                              where ``data_in`` says
    data_in                   memory, or l2: where reads come from
    time_us                   of a launch, measured
    flops                     operations on the general pipes; a multiply-add is two
    tensor_flops              operations of the tensor cores (16-bit inputs)
    load_us, compute_us       the launch's two stages, each as if the other took no time and enough
                              warps were resident
    bytes_in_flight_per_warp  what a warp asks for before it waits
    chunk_bytes               what a stage would hand to the next at a time
    resident_warps            of an SM on average, measured
    long_scoreboard_fraction  of the time of resident warps, spent waiting for loads
    barrier_fraction          the same, waiting at a block's barrier
    issue_fraction            of cycles, in which a scheduler issues
    compute_fraction          of its peak, what the SM's busiest unit did (Compute (SM) Throughput)
    memory_fraction           of its peak, what device memory moved (DRAM Throughput)
    l2_hit_fraction           of sectors asked of the L2, those it had

    Raises InvalidInput for a figure outside its limits, naming it.
    """

    threads_per_block: int
    registers_per_thread: int
    grid_blocks: int
    read_bytes: int
    written_bytes: int = 0
    smem_per_block_bytes: int = 0
    data_in: str = MEMORY
    time_us: float | None = None
    flops: float | None = None
    tensor_flops: float | None = None
    load_us: float | None = None
    compute_us: float | None = None
    bytes_in_flight_per_warp: int | None = None
    chunk_bytes: int | None = None
    resident_warps: float | None = None
    long_scoreboard_fraction: float | None = None
    barrier_fraction: float | None = None
    issue_fraction: float | None = None
    compute_fraction: float | None = None
    memory_fraction: float | None = None
    l2_hit_fraction: float | None = None

    def __post_init__(self) -> None:
        required = {field.name for field in fields(self) if "None" not in str(field.type)}
        for name, (low, high) in INTEGERS.items():
            if (value := getattr(self, name)) is not None or name in required:
                check_integer(name, value, low, high)
        for name, ends in NUMBERS.items():
            if (number := getattr(self, name)) is not None:
                check_number(name, number, *ends)
        check_choice("data_in", self.data_in, SOURCES)
        waits = [self.long_scoreboard_fraction or 0.0, self.barrier_fraction or 0.0]
        if sum(waits) > 1:
            raise InvalidInput(
                "barrier_fraction",
                f"and long_scoreboard_fraction must be at most 1 together, got {sum(waits):g}",
            )

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes

    @property
    def block_warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads_per_block // 32)

    def to_dict(self) -> dict[str, Any]:
        """The figures under their own names."""
        return asdict(self)
