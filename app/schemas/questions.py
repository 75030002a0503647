"""Requests: names and types. What values mean and how far they go is the solver's to say.

A limit that the solver checks appears here as schema only, for the OpenAPI document; it is
never checked twice.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from app.errors import InvalidRequest
from app.schemas.limits import OFFSET_MAX, OFFSETS_WORDS, Name, between, one_of
from app.schemas.objectives import (
    DEFAULT_OBJECTIVE,
    NO_CONSTRAINTS,
    ConstraintsRequest,
    ObjectiveRequest,
    RankingRequest,
)
from solver.config import Config
from solver.constraints import Constraints
from solver.device import device_names
from solver.objective import objective_from_dict
from solver.problem import (
    CACHES,
    ELEMENT_BYTES,
    LAYOUTS,
    MAX_EXTENT,
    OUT_BYTES,
    Problem,
)
from solver.question import (
    DIVERGENCE_MAX,
    MODELS,
    PROOFS,
    TIME_LIMIT_MS_MAX,
    TOP_K_MAX,
    Question,
)

Extent = Annotated[int, Field(json_schema_extra=between(1, MAX_EXTENT))]
Pitch = Annotated[
    int | None,
    Field(
        description="elements from a row (t) or column (n) to the next, no less than it holds; "
        "null: packed",
        json_schema_extra=between(1, MAX_EXTENT),
    ),
]
Offset = Annotated[
    int,
    Field(
        description="elements from a 16-byte boundary to the first; fewer than fill 16 bytes",
        json_schema_extra=between(0, OFFSET_MAX),
    ),
]
Device = Annotated[
    Name | None,
    Field(
        description="a profile of /v1/devices; by default the host's GPU's where a kernel family "
        "runs on it, else h200",
        json_schema_extra=one_of([*device_names(), None]),
    ),
]
Cache = Annotated[
    Name,
    Field(
        description="where A and B are before the launch: in device memory, or in the L2",
        json_schema_extra=one_of(CACHES),
    ),
]
Divergence = Annotated[
    float,
    Field(
        description="model paper: a factor on compute time for threads of a warp that diverge",
        json_schema_extra=between(1, DIVERGENCE_MAX),
    ),
]
TimeLimit = Annotated[
    int | None,
    Field(
        description="when the answer is due, counted from the question's arrival; what is not "
        "proved by then is said",
        json_schema_extra=between(1, TIME_LIMIT_MS_MAX),
    ),
]
Model = Annotated[Name, Field(json_schema_extra=one_of(MODELS))]
Proof = Annotated[Name, Field(json_schema_extra=one_of(PROOFS))]
TopK = Annotated[
    int,
    Field(
        description="how many of the best configurations to list, the pick included",
        json_schema_extra=between(1, TOP_K_MAX),
    ),
]
Priority = Annotated[
    Literal["low", "normal", "high"],
    Field(description="which of the jobs that wait goes first; those of one priority as accepted"),
]


Read = TypeVar("Read", bound=BaseModel)


def read(model: type[Read], values: Any) -> Read:
    """The ``model`` that JSON values are; InvalidRequest names what breaks a limit."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidRequest(error.errors(), model) from None


class Request(BaseModel):
    """Strict: no value is converted, no field is ignored."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @classmethod
    def read(cls, values: Any) -> Self:
        """The request that JSON values are; InvalidRequest names what breaks a limit."""
        return read(cls, values)


OTHER_OP = "other_op"
"""The type of the error of a request for products alone that names another op."""


class ProblemRequest(Request):
    """C[m, n] = A[m, k] · B[k, n], and how its operands lie in memory."""

    m: Extent = Field(description="rows of A and C")
    n: Extent = Field(description="columns of B and C")
    k: Extent = Field(description="columns of A, rows of B")
    dtype: Name = Field("bf16", json_schema_extra=one_of(ELEMENT_BYTES))
    layout: Name = Field(
        "tn",
        description="first letter A as M×K, second B as K×N; t row-major, n column-major",
        json_schema_extra=one_of(LAYOUTS),
    )
    out_dtype: Name | None = Field(
        None, description="C's type; null: dtype", json_schema_extra=one_of([*OUT_BYTES, None])
    )
    lda: Pitch = None
    ldb: Pitch = None
    ldc: Pitch = None
    a_offset: Offset = 0
    b_offset: Offset = 0
    c_offset: Offset = Field(
        0,
        description="elements from a 16-byte boundary to C's first; by out_dtype at most "
        + OFFSETS_WORDS,
    )

    def problem(self) -> Problem:
        """The solver's problem; InvalidProblem names the field and the limit."""
        return Problem(**{field.name: getattr(self, field.name) for field in fields(Problem)})


class ProductRequest(ProblemRequest):
    """A problem that names its op, as it may, since there are others."""

    op: Literal["gemm"] = Field("gemm", description="what is asked about")

    @model_validator(mode="before")
    @classmethod
    def _of_products(cls, values: Any) -> Any:
        """One error for another op, not one for each of its members."""
        if isinstance(values, dict) and values.get("op", "gemm") != "gemm":
            raise PydanticCustomError(
                OTHER_OP,
                "other ops are answered by /v1/optimize, /v1/optimize/batch and /v1/advise, and "
                "run by /v1/verifications",
            )
        return values


class ConfigRequest(Request):
    """A configuration of a kernel family; `docs/api.md` says what each field decides."""

    family: Name
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    mma_in_flight: int = 0
    dma_warps: int = 1
    math_warpgroups: int = 1
    register_split: int = 0
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    raster_group: int = 1

    def config(self) -> Config:
        """The solver's configuration; its legality is checked against a problem later."""
        return Config(**self.model_dump())


class AskedRequest(ProductRequest):
    """A problem, and what every question about it may say."""

    device: Device = None
    model: Model = "calibrated"
    proof: Proof = "full"
    cache: Cache = "cold"
    divergence: Divergence = 1.0
    objective: ObjectiveRequest = Field(DEFAULT_OBJECTIVE, description="what is best")
    constraints: ConstraintsRequest = Field(NO_CONSTRAINTS, description="what is allowed")

    def _asked(self, host_device: str, **more: Any) -> Question:
        """The solver's question, the device filled in where none was named."""
        return Question(
            problem=self.problem(),
            device=host_device if self.device is None else self.device,
            model=self.model,
            proof=self.proof,
            cache=self.cache,
            divergence=self.divergence,
            objective=objective_from_dict(self.objective),
            constraints=Constraints.from_dict(self.constraints),
            **more,
        )


class QuestionRequest(AskedRequest):
    """A problem, and how to answer it."""

    top_k: TopK = 1
    model_only: bool = Field(
        False, description="answer from the model, whatever verifications measured"
    )

    def question(self, host_device: str) -> Question:
        """The solver's question; InvalidInput names the field and the limit."""
        return self._asked(host_device, top_k=self.top_k)


EXAMPLES: tuple[dict[str, Any], ...] = (
    {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"},
    {"m": 300, "n": 500, "k": 777, "layout": "tt", "out_dtype": "fp32", "ldb": 512},
    {
        "m": 4096,
        "n": 4096,
        "k": 4096,
        "objective": {"kind": "weighted", "weights": {"time": 1, "smem": 0.05}},
        "constraints": {
            "smem_bytes": {"max": 98304},
            "config": {"tile_m": {"in": [64, 128]}, "stages": {"min": 3}},
        },
    },
)


class OptimizeRequest(QuestionRequest):
    """A problem, how to answer it, and when at the latest."""

    time_limit_ms: TimeLimit = None

    def question(self, host_device: str) -> Question:
        return replace(super().question(host_device), time_limit_ms=self.time_limit_ms)

    model_config = ConfigDict(json_schema_extra={"examples": [*EXAMPLES]})


class ExplainRequest(AskedRequest):
    """A problem whose one best configuration is to be explained, however long that takes."""

    objective: RankingRequest = Field(DEFAULT_OBJECTIVE, description="what is best")

    def question(self, host_device: str) -> Question:
        """The solver's question; InvalidInput names the field and the limit."""
        return self._asked(host_device)

    model_config = ConfigDict(json_schema_extra={"examples": [*EXAMPLES]})


class SimulateRequest(ProductRequest):
    """A problem and a configuration of the user's own."""

    config: ConfigRequest
    device: Device = None
    model: Model = "calibrated"
    divergence: Divergence = 1.0
    cache: Cache = "cold"

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "m": 4096,
                    "n": 4096,
                    "k": 4096,
                    "config": {
                        "family": "sm90_gemm",
                        "tile_m": 128,
                        "tile_n": 128,
                        "tile_k": 64,
                        "stages": 4,
                        "math_warpgroups": 2,
                    },
                }
            ]
        }
    )


class LaunchRequest(ProductRequest):
    """A problem whose launch is wanted, with a configuration or with the pick."""

    config: ConfigRequest | None = Field(None, description="null: the solver's pick")
    device: Device = None


AGAINST_MAX = 16
"""Each may have to be compiled before it is raced, within the verification's deadline."""

RACED_MAX = 16
"""As AGAINST_MAX, the pick included."""


VERIFICATION_EXAMPLE: dict[str, Any] = {"m": 512, "n": 512, "k": 512, "top_k": 5}


class VerificationRequest(ProductRequest):
    """A problem to run on the host's GPU, with a configuration or with the pick."""

    config: ConfigRequest | None = Field(None, description="none: the solver's pick")
    cache: Cache = "cold"
    against: Annotated[list[ConfigRequest], FailFast()] = Field(
        [],
        min_length=0,
        max_length=AGAINST_MAX,
        description="other configurations: the fastest of them is timed next to this one",
    )
    trace: bool = Field(
        False, description="run a traced build too, and lay the GPU's timeline over the model's"
    )
    top_k: int = Field(
        1,
        description="race the pick against alternatives, so many in all: where one is surely "
        "faster, `/v1/optimize` answers with it from then on",
        json_schema_extra=between(1, RACED_MAX),
    )
    priority: Priority = "normal"

    model_config = ConfigDict(json_schema_extra={"examples": [VERIFICATION_EXAMPLE]})
