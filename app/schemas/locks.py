"""Lock files: the picks of a picks file, and what they came of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from app.schemas.batches import PROBLEMS_MAX
from app.schemas.limits import Name
from app.schemas.objectives import ConstraintsRequest, RankingRequest
from app.schemas.picks import PickName
from app.schemas.questions import ConfigRequest, ProblemRequest, Request

FORMAT = "warpwright-picks/1"
LEAST = 1e-6
TIME_US_MAX = 1e15

Digest = Annotated[str, Field(min_length=64, max_length=64)]
Time = Annotated[float, Field(ge=LEAST, le=TIME_US_MAX)]
Ratio = Annotated[float, Field(ge=LEAST, le=1e6)]


class LockedPrediction(Request):
    time_us: float = Field(ge=0, le=TIME_US_MAX)
    wait_us: float = Field(ge=0, le=TIME_US_MAX)


class LockedProof(Request):
    configurations: int = Field(ge=1, le=2**62, description="those that competed")
    sha256: Digest = Field(description="the proved answer's certificate's")


class LockedReference(Request):
    """A library's product timed in turn with the pick: its time over the pick's."""

    name: Annotated[str, Field(max_length=200)]
    ratio: Ratio
    low: Ratio
    high: Ratio


class LockedMeasurement(Request):
    """The pick's time on a GPU: the median over rounds, and what that lies between."""

    gpu: Name
    driver: Name
    nvrtc: Name
    kernel_source_hash: Digest
    copy_source_hash: Digest
    time_us: Time
    low_us: Time
    high_us: Time
    rounds: int = Field(ge=1, le=10**9)
    reference: LockedReference | None


class LockedPick(Request):
    name: PickName
    problem: ProblemRequest
    cache: Name
    objective: RankingRequest
    constraints: ConstraintsRequest
    config: ConfigRequest
    predicted: LockedPrediction
    proof: LockedProof
    measured: LockedMeasurement | None = Field(description="null where it was not")


class LockFile(Request):
    """What `warpwright lock` writes."""

    format: Literal["warpwright-picks/1"]
    model_version: Name
    device: Name
    profile_sha256: Digest
    kernel_source_hash: Digest = Field(description="of the kernels")
    copy_source_hash: Digest = Field(description="of the kernels that copy operands first")
    nvrtc: Name = Field(description="the compiler that the register table was measured with")
    picks: list[LockedPick] = Field(min_length=1, max_length=PROBLEMS_MAX)
