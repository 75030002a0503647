"""Requests for advice on dividing warps, and its shape."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.schemas.limits import Name, between, one_of
from app.schemas.norm_answers import Kind
from app.schemas.parts import Shape
from app.schemas.questions import Cache, Device, Request
from solver.advice.advise import Source, Verdict
from solver.advice.figures import INTEGERS, NUMBERS, SOURCES
from solver.advice.ncu import MAX_CHARS
from solver.families import norm_activation as family
from solver.families.norm_activation_advice import LEAST_WARPS, MOST_WARPS
from solver.families.norm_activation_rivals import DEFAULT_RIVAL, RIVALS


def _whole(name: str, words: str, *default: Any) -> Any:
    """A whole figure, its limits from the solver."""
    return Field(*default, description=words, json_schema_extra=between(*INTEGERS[name]))


def _number(name: str, words: str) -> Any:
    return Field(None, description=words, json_schema_extra=between(*NUMBERS[name]))


def _nothing() -> Any:
    return None


def _absent(**words: Any) -> Any:
    """A member that may be left out but not null."""
    return Field(default_factory=_nothing, **words)


class FiguresRequest(Request):
    """Figures of one launch; null: not known. Fractions are of 1."""

    threads_per_block: int = _whole("threads_per_block", "threads of a block")
    registers_per_thread: int = _whole("registers_per_thread", "registers of a thread")
    grid_blocks: int = _whole("grid_blocks", "blocks of the launch")
    read_bytes: int = _whole("read_bytes", "bytes that the launch reads from where `data_in` says")
    written_bytes: int = _whole("written_bytes", "bytes that it writes", 0)
    smem_per_block_bytes: int = _whole(
        "smem_per_block_bytes", "shared memory of a block, static and dynamic", 0
    )
    data_in: Name = Field(
        "memory", description="where it reads from", json_schema_extra=one_of(SOURCES)
    )
    time_us: float | None = _number("time_us", "time of the launch, measured")
    flops: float | None = _number("flops", "operations, a multiply-add counted as two")
    tensor_flops: float | None = _number("tensor_flops", "operations of the tensor cores")
    load_us: float | None = _number("load_us", "all loads, as if computing took no time")
    compute_us: float | None = _number("compute_us", "all computing, as if loading took no time")
    bytes_in_flight_per_warp: int | None = _whole(
        "bytes_in_flight_per_warp", "what a warp asks for before it waits", None
    )
    chunk_bytes: int | None = _whole(
        "chunk_bytes", "what one stage would hand to the next at a time", None
    )
    resident_warps: float | None = _number("resident_warps", "of an SM on average, measured")
    long_scoreboard_fraction: float | None = _number(
        "long_scoreboard_fraction", "share of warps' time that they wait for loads"
    )
    barrier_fraction: float | None = _number(
        "barrier_fraction", "share of warps' time that they wait at a block's barrier"
    )
    issue_fraction: float | None = _number(
        "issue_fraction", "share of cycles in which a scheduler issues"
    )
    compute_fraction: float | None = _number(
        "compute_fraction", "throughput of the SM's busiest unit, of its peak"
    )
    memory_fraction: float | None = _number(
        "memory_fraction", "throughput of device memory, of its peak"
    )
    l2_hit_fraction: float | None = _number(
        "l2_hit_fraction", "share of sectors asked of the L2 that it had"
    )


OPS = (family.NAME,)
EXAMPLES: tuple[dict[str, Any], ...] = (
    {"op": "norm_activation", "rows": 131072, "width": 1024, "activation": "gelu"},
    {
        "figures": {
            "threads_per_block": 128,
            "registers_per_thread": 255,
            "grid_blocks": 4096,
            "read_bytes": 536870912,
            "written_bytes": 536870912,
            "time_us": 640.0,
            "flops": 4.3e9,
            "resident_warps": 4,
        }
    },
)


class AdviseRequest(Request):
    """One of: a problem (`op` and its members), `figures` of a kernel, an export of Nsight Compute
    (`ncu_csv`, and `kernel` where it has several launches).
    """

    op: Name = _absent(description="a family of kernels", json_schema_extra=one_of(OPS))
    rows: int = _absent(json_schema_extra=between(1, family.MAX_ROWS))
    width: int = _absent(json_schema_extra=between(1, family.MAX_WIDTH))
    dtype: Name = Field("fp32", json_schema_extra=one_of(family.ELEMENT_BYTES))
    norm: Name = Field("layer", json_schema_extra=one_of(family.NORMS))
    activation: Name = Field("gelu", json_schema_extra=one_of(family.ACTIVATIONS))
    degree: int = Field(
        0,
        description="of activation poly; 0 with the others",
        json_schema_extra=between(0, family.MAX_DEGREE),
    )
    cache: Cache = "cold"
    warps_per_sm: int | None = Field(
        None,
        description="of a problem: so many warps fit on an SM, the rest is taken up; null: all "
        "that fit",
        json_schema_extra=between(LEAST_WARPS, MOST_WARPS),
    )
    rival: Name = Field(
        DEFAULT_RIVAL,
        description="of a problem: what divided warps are held against",
        json_schema_extra=one_of(RIVALS),
    )
    figures: FiguresRequest = _absent(description="figures of one launch")
    ncu_csv: str = _absent(
        description="what `ncu --csv --page raw` or `--page details` prints",
        json_schema_extra={"maxLength": MAX_CHARS},
    )
    kernel: Annotated[str, Field(max_length=4096)] = _absent(
        description="which launch of `ncu_csv`: its ID, its kernel's name or a part of it"
    )
    device: Device = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [*EXAMPLES],
            "oneOf": [
                {"required": ["op", "rows", "width"]},
                {"required": ["figures"]},
                {"required": ["ncu_csv"]},
            ],
        }
    )


class ThresholdShape(Shape):
    name: str
    value: float
    unit: str
    source: str


class StepShape(Shape):
    step: Literal["waits_on_loads", "stages", "buffers"]
    outcome: Literal["yes", "no", "unknown"] = Field(
        description="yes speaks for dividing the warps"
    )
    words: str
    figures: dict[str, float | None]
    thresholds: list[ThresholdShape]
    missing: list[str] = Field(description="figures that would decide it")


class ReasonShape(Shape):
    reason: Literal[
        "short_kernel",
        "served_by_l2",
        "small_gain",
        "slower",
        "used_up",
        "does_not_wait",
        "latency_hidden",
        "unequal_stages",
        "too_little_data",
        "scarce_shared_memory",
    ]
    words: str


class RangeShape(Shape):
    expected: float
    low: float
    high: float


class PresentShape(RangeShape):
    measured: bool = Field(description="whether it was measured; else it is of the figures")


class AlternativeShape(Shape):
    words: str
    gain: RangeShape | None
    gain_rests_on: str


class ForecastShape(Shape):
    kind: Kind
    time_us: float
    config: dict[str, Any]


class LaunchShape(Shape):
    id: str
    kernel: str


class DeviceNamed(Shape):
    name: str
    title: str


class AdviseAnswer(Shape):
    """Whether to divide a kernel's warps."""

    problem: dict[str, Any] | None = Field(description="of `op`; else null")
    cache: str | None = Field(description="of `op`, as asked: where x is")
    warps_per_sm: int | None = Field(description="of `op`, as asked: null, too, where all that fit")
    rival: str | None = Field(description="of `op`, as asked: what divided warps are held against")
    config: dict[str, Any] | None = Field(description="the kernel of `op` that figures are of")
    kernels: list[ForecastShape] = Field(
        description="of `op`: the fastest kernel of each kind, by races beside it or by the model; "
        "empty where the advice is by figures"
    )
    launch: LaunchShape | None = Field(description="of `ncu_csv`; else null")
    notes: list[str] = Field(
        description="what had to be taken for something else, and what times overrule"
    )
    verdict: Verdict
    source: Source = Field(description="what the answer is by")
    steps: list[StepShape]
    reasons: list[ReasonShape] = Field(description="all that speak against it")
    missing: list[str] = Field(
        description="figures that would decide an undecided verdict; `verification` where the "
        "kinds must be raced"
    )
    present_us: PresentShape | None = Field(description="time of a launch now")
    gain: RangeShape | None = Field(
        description="present time over that of divided warps; null where a stage's time is not "
        "known, or less than what a launch pays once"
    )
    gain_rests_on: str
    alternative: AlternativeShape
    caveat: str
    thresholds: list[ThresholdShape] = Field(description="of the reasons that belong to no step")
    figures: FiguresRequest
    device: DeviceNamed
