"""Answers, for the OpenAPI document; the tests hold real answers against these shapes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.objectives import (
    Axis,
    ConstraintsRequest,
    LexicographicRequest,
    ParetoRequest,
    WeightedRequest,
)
from app.schemas.parts import (
    CopiedOperands,
    DeviceUsed,
    Event,
    Kernel,
    LimitUse,
    Predicted,
    ProblemShape,
    Shape,
)
from app.schemas.questions import ConfigRequest


class WeightedAnswer(WeightedRequest):
    """The weighted objective as an answer repeats it."""

    units: Annotated[dict[Axis, str], Field(description="what each weight is per")]


Objective = Annotated[
    LexicographicRequest | WeightedAnswer | ParetoRequest, Field(discriminator="kind")
]


class Space(Shape):
    legal: int = Field(description="configurations that device and kernel family allow")
    excluded_by_constraints: int = Field(description="of these, what the user's own limits refuse")
    configurations: int = Field(description="what is left and was compared")


class Scope(Shape):
    """What was proved, and what was taken as given."""

    claim: str
    configurations: int
    excluded_by_constraints: int
    groups: int
    refuted_by_group_bound: int
    refuted_exactly: int
    finalists_over_event_arrays: int
    listed: int = Field(description="alternatives whose place in the order is proved too")
    unrolled_iterations: int
    lemmas: dict[str, str]
    controls: str
    table_sha256: str
    given: list[str]
    timeline: list[Event]


class Optimal(Shape):
    """The whole claim is proved."""

    status: Literal["optimal"]
    space: Space
    scope: Scope


class Timeout(Shape):
    """The time limit came before the end of the proof."""

    status: Literal["timeout"]
    space: Space
    undecided: int = Field(description="configurations that are not refuted yet")
    gap: float = Field(
        ge=0,
        le=1,
        description="how much better than the answer the best of them may be at most, as a "
        "fraction of the answer's",
    )
    gap_in: Literal["score", "time", "wait", "smem", "registers", "energy"] = Field(
        description="what the gap is a fraction of: the objective's first rank"
    )


class NotRequested(Shape):
    """The answer is the model's first, unproved."""

    status: Literal["not_requested"]
    space: Space


class Listed(Shape):
    """An alternative, or a point of a front."""

    config: ConfigRequest
    time_us: float
    wait_us: float
    smem_bytes: int
    registers_per_thread: int | None = Field(description="null in a model without a kernel")
    gap: float | None = Field(
        description="the objective's first rank over the answer's, less one (of a front: time "
        "over the least); null where that of the answer is 0"
    )
    power_w: float | None = Field(None, description="as `sustained` of what is predicted has it")
    power_high_w: int | None = Field(None, description="the same")
    energy_j: float | None = Field(None, description="the same")
    score: float | None = Field(None, description="present with a weighted objective")


class MeasuredFacts(Shape):
    """What a verification measured of the configuration that is answered, next to the pick."""

    time_us: float
    pick_time_us: float = Field(description="the pick's, of the same rounds")
    ratio: float = Field(description="median of paired times over the pick's")
    ratio_low: float
    ratio_high: float = Field(lt=1, description="below 1: it is surely faster")
    at: str
    verification_id: str
    measurements_revision: int = Field(description="the measurement that the answer rests on")


class ModelPick(Shape):
    """What is answered without measurements; the proof is about it."""

    config: ConfigRequest
    kernel: Kernel
    predicted: Predicted


class OptimizeAnswer(Shape):
    """The first configuration of what is allowed, and the proof that it is."""

    problem: ProblemShape
    operand_bytes: int = Field(description="bytes of A's, B's and C's elements")
    copied_operands: CopiedOperands
    fits_device_memory: bool = Field(
        description="false: the answer is the model's alone, no launch is possible"
    )
    model: str
    model_version: str
    cache: str = Field(description="cold or warm: where A and B were before the launch")
    divergence: float = Field(description="factor on compute time in the published model")
    objective: Objective
    constraints: ConstraintsRequest
    config: ConfigRequest = Field(description="of a front: its first point")
    kernel: Kernel
    predicted: Predicted
    source: Literal["model", "measured"] = Field(
        description="measured: a verification found the configuration faster than the model's pick"
    )
    measured: MeasuredFacts | None = Field(None, description="present with source measured")
    model_pick: ModelPick | None = Field(None, description="present with source measured")
    score: float | None = Field(None, description="present with a weighted objective")
    proof: Annotated[Optimal | Timeout | NotRequested, Field(discriminator="status")]
    alternatives: list[Listed]
    front: list[Listed] | None = Field(
        None, description="present with a pareto objective, in the order of its axes"
    )
    front_size: int | None = Field(None, description="points of the whole front")
    complete: bool | None = Field(
        None, description="whether the whole front is listed and, where asked for, proved"
    )
    device: DeviceUsed


class Optimum(Shape):
    config: ConfigRequest
    time_us: float


class SimulateAnswer(Shape):
    """What the model says of one configuration."""

    problem: ProblemShape
    copied_operands: CopiedOperands
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
