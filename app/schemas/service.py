"""Jobs, devices and health, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.schemas.parts import ProblemShape, Shape
from app.schemas.questions import ConfigRequest


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
