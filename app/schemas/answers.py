"""Answers, for the OpenAPI document; the tests hold real answers against these shapes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.schemas.questions import ConfigRequest


class Shape(BaseModel):
    """Every member is documented: an answer with another one is a defect."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemShape(Shape):
    m: int
    n: int
    k: int
    dtype: str
    layout: str


class Kernel(Shape):
    id: str | None = Field(
        description="compile key and source hash of the CUDA kernel; null where the model has none"
    )
    grid: int = Field(description="CTAs")
    threads: int = Field(description="threads of a CTA")
    smem_bytes: int = Field(description="dynamic shared memory of a CTA")
    registers_per_thread: int | None = Field(description="null in a model without a kernel")


class Breakdown(Shape):
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


class Predicted(Shape):
    time_us: float
    wait_us: float = Field(description="MATH-warp idle time of the critical CTA")
    tflops: float
    bound: str = Field(description="what decides the time: loads, math or ring_depth")
    clock_mhz: int | None = Field(description="null in a model without a clock")
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


class Space(Shape):
    configurations: int


class Scope(Shape):
    """What was proved, and what was taken as given."""

    claim: str
    configurations: int
    groups: int
    refuted_by_group_bound: int
    refuted_exactly: int
    finalists_over_event_arrays: int
    unrolled_iterations: int
    lemmas: dict[str, str]
    controls: str
    table_sha256: str
    given: list[str]
    timeline: list[Event]


class Proof(Shape):
    status: Literal["optimal", "not_requested"]
    space: Space
    scope: Scope | None = Field(None, description="present where status is optimal")


class Alternative(Shape):
    config: ConfigRequest
    time_us: float
    wait_us: float
    smem_bytes: int
    registers_per_thread: int | None = Field(description="null in a model without a kernel")
    gap: float = Field(description="time over the pick's, less one")


class DeviceUsed(Shape):
    name: str
    title: str
    memory_bytes: int
    profile_sha256: str
    constants_by_provenance: dict[str, int]
    must_measure: list[str] = Field(
        description="constants without whose measurement the answer means little"
    )


class OptimizeAnswer(Shape):
    """The first configuration of the legal space, and the proof that it is."""

    problem: ProblemShape
    operand_bytes: int = Field(description="bytes of A, B and C")
    fits_device_memory: bool = Field(
        description="false: the answer is the model's alone, no launch is possible"
    )
    model: str
    model_version: str
    cache: str = Field(description="cold or warm: where A and B were before the launch")
    divergence: float = Field(description="factor on compute time in the published model")
    config: ConfigRequest
    kernel: Kernel
    predicted: Predicted
    proof: Proof
    alternatives: list[Alternative]
    device: DeviceUsed


class LimitUse(Shape):
    name: str
    used: int
    limit: int
    share: float


class Optimum(Shape):
    config: ConfigRequest
    time_us: float


class SimulateAnswer(Shape):
    """What the model says of one configuration."""

    problem: ProblemShape
    model: str
    model_version: str
    cache: str
    divergence: float
    config: ConfigRequest
    kernel: Kernel
    predicted: Predicted
    timeline: list[Event]
    played_whole: bool = Field(description="every event was played and held against the price")
    limits: list[LimitUse]
    gap_to_optimum: float = Field(description="time over the optimum's, less one")
    optimum: Optimum
    device: DeviceUsed


class VerificationJob(Shape):
    """A verification as it stands."""

    id: str
    status: Literal["queued", "running", "passed", "failed", "cancelled"]
    reason: str | None = Field(description="why it failed or was cancelled")
    problem: ProblemShape
    config: ConfigRequest
    predicted_us: float
    created_at: str
    started_at: str | None
    finished_at: str | None
    result: dict[str, Any] | None = Field(description="the measurement, once it ended")


class DeviceSummary(Shape):
    name: str
    title: str
    vendor: str
    arch: str
    families: list[str] = Field(description="kernel families that run on it")
    models: list[str] = Field(description="models that can price it")
    limits: dict[str, Any]
    constants: dict[str, Any]
    must_measure: list[str]
    profile_sha256: str


class HostGpuShape(Shape):
    name: str
    profile: str | None


class Devices(Shape):
    host: HostGpuShape | None
    devices: list[DeviceSummary]


class Health(Shape):
    status: Literal["ok"]


class Ready(Shape):
    status: Literal["ready", "starting"]
    gpu: str = Field(description="the GPU's name, or `absent`")
    solver_processes: int
