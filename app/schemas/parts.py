"""Parts of answers; every member is documented."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Every member is documented: an answer with another one is a defect."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemShape(Shape):
    """The problem, output type and pitches filled in."""

    m: int
    n: int
    k: int
    dtype: str
    layout: str
    out_dtype: str
    lda: int
    ldb: int
    ldc: int
    a_offset: int
    b_offset: int
    c_offset: int


CopiedOperands = Annotated[
    list[Literal["a", "b"]],
    Field(
        description="operands that TMA can't take as they lie: a launch first copies each into "
        "an aligned buffer"
    ),
]


class Kernel(Shape):
    id: str | None = Field(
        description="compile key and source hash of the CUDA kernel; null where the model has none"
    )
    grid: int = Field(description="CTAs")
    threads: int = Field(description="threads of a CTA")
    smem_bytes: int = Field(description="dynamic shared memory of a CTA")
    registers_per_thread: int | None = Field(description="null in a model without a kernel")


class Breakdown(Shape):
    copy_us: float = Field(description="aligned copies of operands that TMA can't take")
    launch_us: float
    math_us: float
    wait_us: float
    epilogue_us: float


class Pipeline(Shape):
    load_us: float
    latency_us: float
    math_us: float
    early_us: float
    epilogue_us: float
    slots: int
    iterations: int
    units_per_cta: int
    waves: int


Bound = Literal[
    "math", "loads", "l2", "memory", "ring_depth", "latency", "copies", "launch", "epilogue"
]


class Sustained(Shape):
    """What launches that follow one another for seconds hold."""

    power_w: float = Field(description="of the whole device")
    power_high_w: int = Field(
        description="in whole watts, rounded up, with the margin that the profile has for what "
        "predictions are off by: what a constraint on power_w holds"
    )
    energy_j: float = Field(description="of one launch")
    time_us: float = Field(description="of one launch, at that clock")
    clock_mhz: int = Field(description="the SM clock that the power limit leaves")


class Predicted(Shape):
    time_us: float
    wait_us: float = Field(description="MATH-warp idle time of the critical CTA")
    tflops: float
    bound: Bound = Field(description="what decides the time")
    clock_mhz: int | None = Field(description="null in a model without a clock")
    sustained: Sustained | None = Field(
        None, description="present where the device's power was measured"
    )
    breakdown: Breakdown = Field(description="parts that add up to time_us")
    pipeline: Pipeline = Field(description="the recurrence's parameters")


class Event(Shape):
    unit: int
    iteration: int
    slot: int
    load_issue_us: float
    load_end_us: float
    math_start_us: float
    math_end_us: float


class DeviceUsed(Shape):
    name: str
    title: str
    memory_bytes: int
    profile_sha256: str
    constants_by_provenance: dict[str, int]
    must_measure: list[str] = Field(
        description="constants without whose measurement the answer means little"
    )


class LimitUse(Shape):
    name: str
    used: int
    limit: int
    share: float
