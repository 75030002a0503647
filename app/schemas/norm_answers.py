"""Answers of norm_activation, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.answers import NotRequested, Objective, Optimal, OptimizeAnswer, Timeout
from app.schemas.norm_questions import NormConfigRequest
from app.schemas.parts import Bound, Breakdown, DeviceUsed, Kernel, Pipeline, Shape
from solver.advice.advise import Verdict

Kind = Literal["plain", "strong", "ring", "specialised"]


class NormProblemShape(Shape):
    """The problem with every member."""

    rows: int
    width: int
    dtype: str
    norm: str
    activation: str
    degree: int


class NormPredicted(Shape):
    time_us: float
    wait_us: float = Field(description="idle time of the warps that compute, on the critical SM")
    bytes_per_us: float = Field(description="x, y, scale and shift over the time")
    bound: Bound = Field(description="what decides the time")
    clock_mhz: int
    breakdown: Breakdown = Field(description="parts that add up to time_us")
    pipeline: Pipeline = Field(description="the recurrence's parameters")


class NormListed(Shape):
    """An alternative, or a point of a front."""

    config: NormConfigRequest
    time_us: float
    wait_us: float
    smem_bytes: int
    registers_per_thread: int
    gap: float | None = Field(
        description="the objective's first rank over the answer's, less one (of a front: time "
        "over the least); null where that of the answer is 0"
    )
    score: float | None = Field(None, description="present with a weighted objective")


class OfKind(Shape):
    """The configuration of a kind that takes the least time by the model."""

    config: NormConfigRequest
    time_us: float
    wait_us: float
    over_answer: float = Field(description="its time over the answer's")


class Kinds(Shape):
    """The best of each kind, null where none is legal for the problem."""

    plain: OfKind | None = Field(description="a warp for each row, in passes over memory")
    strong: OfKind | None = Field(description="all warps alike, the row in registers")
    ring: OfKind | None = Field(description="all warps alike, with rings of their own")
    specialised: OfKind | None = Field(description="producer warps fill the consumers' rings")


class NormOptimizeAnswer(Shape):
    """The first of all legal kernels of norm_activation, the proof that it is, and whether dividing
    the warps pays."""

    op: Literal["norm_activation"]
    problem: NormProblemShape
    storage_bytes: int = Field(description="bytes of x, y, scale and shift")
    fits_device_memory: bool = Field(
        description="false: the answer is the model's alone, no launch is possible"
    )
    model: str
    model_version: str
    cache: str = Field(description="cold or warm: where x was before the launch")
    objective: Objective
    config: NormConfigRequest = Field(description="of a front: its first point")
    kernel: Kernel
    predicted: NormPredicted
    kind: Kind
    ratio: str | None = Field(description="producer warps : consumer warps; null: all are alike")
    depth: int | None = Field(description="slots of a ring; null: no ring")
    chunk_bytes: int | None = Field(description="of a slot at most; null: no ring")
    barrier: Literal["mbarrier", "named"] | None = Field(description="of a ring; null: no ring")
    resident_blocks: int = Field(description="blocks that an SM holds at once")
    strong_time_us: float | None = Field(description="as `kinds.strong.time_us`")
    specialised_time_us: float | None = Field(description="as `kinds.specialised.time_us`")
    kinds: Kinds
    advice: Verdict = Field(description="whether to divide the warps, as `/v1/advise` has it")
    specialising: str = Field(description="the same in words, and by how much")
    source: Literal["model"]
    score: float | None = Field(None, description="present with a weighted objective")
    proof: Annotated[Optimal | Timeout | NotRequested, Field(discriminator="status")]
    alternatives: list[NormListed]
    front: list[NormListed] | None = Field(
        None, description="present with a pareto objective, in the order of its axes"
    )
    front_size: int | None = Field(None, description="points of the whole front")
    complete: bool | None = Field(
        None, description="whether the whole front is listed and, where asked for, proved"
    )
    device: DeviceUsed


AnyAnswer = OptimizeAnswer | NormOptimizeAnswer
