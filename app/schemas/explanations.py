"""Explanations, for the OpenAPI document; the tests hold real ones against these shapes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.answers import NotRequested, Objective, Optimal
from app.schemas.objectives import ConstraintsRequest
from app.schemas.parts import CopiedOperands, DeviceUsed, Kernel, Predicted, ProblemShape, Shape
from app.schemas.questions import ConfigRequest


class Flip(Shape):
    """One number moved until another configuration is first, proved before and after."""

    kind: Literal["constraint", "limit", "constant"] = Field(
        description="one of the user's, of the device's limits, of the profile's constants"
    )
    name: str = Field(description="as `constraints.smem_bytes.max`, or the profile's name")
    before: int | float | list[int] | None = Field(description="null: no such constraint")
    stands_at: int | float | list[int] | None = Field(
        description="the nearest value at which the pick is still first"
    )
    after: int | float | list[int]
    change: float = Field(description="the distance as a fraction of the value")
    config: ConfigRequest = Field(description="what is first then")
    time_us: float
    time_change: float = Field(description="its time over the pick's, less one")


class Flips(Shape):
    nearest: Flip | None
    limits: list[Flip] = Field(description="of constraints and of the device, nearest first")
    constants: list[Flip] = Field(description="of the profile's constants, nearest first")


class Alignment(Shape):
    """The same question with operands that lie so that TMA takes them."""

    operands: list[Literal["a", "b", "c"]] = Field(
        description="a and b, which need no copy then, and c, which TMA stores then"
    )
    before: dict[str, int] = Field(description="pitches and offsets of the problem that change")
    after: dict[str, int] = Field(description="the same, in whole pieces of 16 bytes")
    config: ConfigRequest = Field(description="what is first then")
    time_us: float
    time_change: float = Field(description="its time over the pick's, less one")


class Rival(Shape):
    """Another configuration, to compare with."""

    config: ConfigRequest
    gap: float | None = Field(description="the objective's first rank over the pick's, less one")
    predicted: Predicted


class ExplainAnswer(Shape):
    """Why the pick is the pick."""

    text: list[str] = Field(description="the explanation in words, a paragraph each")
    problem: ProblemShape
    copied_operands: CopiedOperands
    model: str
    model_version: str
    cache: str
    divergence: float
    objective: Objective
    constraints: ConstraintsRequest
    config: ConfigRequest
    kernel: Kernel
    predicted: Predicted
    proof: Annotated[Optimal | NotRequested, Field(discriminator="status")]
    device: DeviceUsed
    binding: list[Flip] = Field(description="limits without which another would be first")
    alignments: list[Alignment] = Field(
        description="operands that TMA can't take as they lie, each alone and then all"
    )
    runner_up: Rival | None = Field(description="null where nothing else is allowed")
    best_other_tile: Rival | None
    flips: Flips
