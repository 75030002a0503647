"""Jobs, devices and health, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.schemas.norm_answers import NormProblemShape
from app.schemas.norm_questions import NormConfigRequest
from app.schemas.parts import ProblemShape, Shape
from app.schemas.questions import ConfigRequest, Request
from app.store.jobs import PAGE_MAX

Status = Literal["queued", "running", "passed", "failed", "cancelled"]


class Alternative(Shape):
    config: ConfigRequest
    predicted_us: float


class JobShape(Shape):
    """What every job has."""

    id: str
    status: Status
    reason: str | None = Field(description="why it failed or was cancelled")
    priority: Literal["low", "normal", "high"]
    attempts: int = Field(description="how often it was begun")
    cancel_requested: bool = Field(description="whether a running one is being ended")
    request_id: str | None = Field(
        description="`X-Request-ID` of the request that handed it in, which the lines of its runs "
        "in the log have too; null of a job of an earlier version"
    )
    gpu: str | None = Field(description="UUID of the GPU of its last run; null while it waits")
    created_at: str
    started_at: str | None
    finished_at: str | None


class VerificationJob(JobShape):
    """A verification as it stands."""

    problem: ProblemShape
    config: ConfigRequest
    predicted_us: float
    cache: str = Field("cold", description="cold or warm; absent: cold")
    against: list[ConfigRequest] = Field(
        [], description="other configurations it is timed against; absent: none"
    )
    trace: bool = Field(False, description="whether it is traced; absent: no")
    alternatives: list[Alternative] = Field(
        [], description="what it is raced against; absent: nothing"
    )
    picked: bool = Field(False, description="whether it is the solver's pick; absent: it is not")
    result: dict[str, Any] | None = Field(description="the measurement, once it ended")


class NormEntrant(Shape):
    """A kernel that a verification of norm_activation runs."""

    roles: list[Literal["verified", "plain", "strong", "ring", "specialised"]] = Field(
        description="`verified`, and the kinds that it is the best of by the model"
    )
    config: NormConfigRequest
    predicted_us: float


class NormVerificationJob(JobShape, NormEntrant):
    """A verification of norm_activation as it stands."""

    op: Literal["norm_activation"]
    problem: NormProblemShape
    cache: str = Field(description="cold or warm")
    others: list[NormEntrant] = Field(description="what it is timed in turn with")
    picked: bool = Field(description="whether it is the solver's pick")
    result: dict[str, Any] | None = Field(description="the measurement, once it ended")


AnyVerificationJob = VerificationJob | NormVerificationJob


class VerificationPage(Shape):
    """Verifications, the newest first."""

    verifications: list[AnyVerificationJob]
    next: int | None = Field(description="`after` of the next page; null at the end")


class JobPageQuery(Request):
    """Which jobs, and where to go on."""

    status: Status | None = Field(None, description="only those that stand so")
    limit: int = Field(20, ge=1, le=PAGE_MAX, description="how many at most")
    after: int | None = Field(
        None, ge=1, le=2**63 - 1, description="`next` of the page before; the newest without it"
    )


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
    calibration: dict[str, Any] | None = Field(
        description="what was calibrated when, from which rows, with which errors; null as it ships"
    )


class HostGpuShape(Shape):
    name: str
    profile: str | None


class Devices(Shape):
    host: HostGpuShape | None
    devices: list[DeviceSummary]


class DriftShape(Shape):
    """How far the host's GPU is off its profile, by verifications of picks."""

    device: str | None = Field(description="the profile; null where nothing is measured here")
    measurements_revision: int = Field(
        description="the last race that answers know of; 0: none of this device, driver, compiler "
        "and kernel sources"
    )
    found: bool | None = Field(description="null: too few problems to tell")
    problems: int = Field(description="distinct problems verified last that count")
    ratio: float | None = Field(description="median of measured over predicted time")
    off: int = Field(description="of the problems, those whose ratio is further from 1 than band")
    band: float = Field(
        description="how far the model may be off by itself: of two bands the one that says most"
    )
    usual: float = Field(description="the part of a suite's picks that may be further off")
    advice: str | None = Field(description="the command that mends it")


class Health(Shape):
    status: Literal["ok"]


WorkerState = Literal["absent", "lost", "idle", "running", "restarting", "failing", "stopped"]


class GpuReady(Shape):
    """A GPU that jobs run on, and the process that runs them."""

    gpu: int = Field(description="its number among those that are used, from 0")
    name: str | None = Field(description="null where the driver does not report it now")
    uuid: str | None
    worker: WorkerState
    failures: int = Field(description="how often in a row the process did not start or was lost")


class Ready(Shape):
    status: Literal["ready", "not_ready"]
    gpu: str = Field(description="the name of the first GPU that is there now, or `absent`")
    gpu_worker: WorkerState = Field(
        description="of the GPU that can do most; `lost` where it was there and is not now; "
        "`restarting` while jobs wait for its process, which did not start, could not reach the "
        "GPU or was lost and is started again, with longer and longer pauses; `failing` where a "
        "defect keeps them from being begun, which the log shows"
    )
    gpu_worker_failures: int = Field(
        description="the most often in a row that a process did not start or was lost; the log "
        "says why"
    )
    gpus: list[GpuReady]
    database: Literal["held", "unreachable", "another_service"]
    solver_processes: int = Field(description="warm ones")
