"""Requests about norm_activation; limits are the solver's, as in ``app.schemas.questions``."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.schemas.limits import Name, between, one_of
from app.schemas.objectives import DEFAULT_OBJECTIVE, ObjectiveRequest
from app.schemas.questions import Device, Priority, Proof, Request, TimeLimit, TopK
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.objective import objective_from_dict
from solver.problem import CACHES
from solver.question import NormQuestion

Rows = Annotated[
    int,
    Field(description="rows of x and y", json_schema_extra=between(1, family.MAX_ROWS)),
]
Width = Annotated[
    int,
    Field(description="elements of a row", json_schema_extra=between(1, family.MAX_WIDTH)),
]
Dtype = Annotated[
    Name,
    Field(
        description="type of x, scale, shift and y", json_schema_extra=one_of(family.ELEMENT_BYTES)
    ),
]
Norm = Annotated[
    Name,
    Field(description="over each row", json_schema_extra=one_of(family.NORMS)),
]
Activation = Annotated[
    Name,
    Field(
        description="what rows go through once they are normalised",
        json_schema_extra=one_of(family.ACTIVATIONS),
    ),
]
Degree = Annotated[
    int,
    Field(
        description="of activation poly; 0 with the others",
        json_schema_extra=between(0, family.MAX_DEGREE),
    ),
]
Cache = Annotated[
    Name,
    Field(
        description="where x is before the launch: in device memory, or in the L2",
        json_schema_extra=one_of(CACHES),
    ),
]


class NormProblemRequest(Request):
    """y = activation(normalised(x)·scale + shift) of rows that follow one another."""

    op: Literal["norm_activation"] = Field(description="what is asked about")
    rows: Rows
    width: Width
    dtype: Dtype = "fp32"
    norm: Norm = "layer"
    activation: Activation = "gelu"
    degree: Degree = 0

    def problem(self) -> NormProblem:
        """The solver's problem; InvalidProblem names the field and the limit."""
        return NormProblem.asked(**{f.name: getattr(self, f.name) for f in fields(NormProblem)})


class NormConfigRequest(Request):
    """A kernel of norm_activation; `docs/norm.md` says what each field decides."""

    kind: Name = Field(json_schema_extra=one_of(family.KINDS))
    consumers: int
    producers: int = 0
    groups: int = 1
    team: int = 1
    vector_bytes: int = family.VECTOR_BYTES
    copies: Name = Field("bulk", json_schema_extra=one_of(family.COPIES))
    barrier: Name = Field("mbarrier", json_schema_extra=one_of(family.BARRIERS))
    depth: int = 0
    chunk_bytes: int = 0
    hold: Name = Field("registers", json_schema_extra=one_of(family.HOLDS))
    stores: Name = Field("vector", json_schema_extra=one_of(family.STORES))
    rounds: int = 1
    blocks_per_sm: int = 1
    register_split: int = 0

    def config(self) -> NormConfig:
        """The solver's configuration; its legality is checked against a problem later."""
        return NormConfig(**self.model_dump())


class NormQuestionRequest(NormProblemRequest):
    """A problem of norm_activation, and how to answer it."""

    device: Device = None
    proof: Proof = "full"
    cache: Cache = "cold"
    objective: ObjectiveRequest = Field(DEFAULT_OBJECTIVE, description="what is best")
    top_k: TopK = 1

    def question(self, host_device: str) -> NormQuestion:
        """The solver's question; InvalidInput names the field and the limit."""
        return self._asked(host_device)

    def _asked(self, host_device: str, **more: Any) -> NormQuestion:
        return NormQuestion(
            problem=self.problem(),
            device=host_device if self.device is None else self.device,
            proof=self.proof,
            cache=self.cache,
            objective=objective_from_dict(self.objective),
            top_k=self.top_k,
            **more,
        )

    @property
    def model_only(self) -> bool:
        """Always: what verifications measure of this family is not remembered."""
        return True


EXAMPLES: tuple[dict[str, Any], ...] = (
    {"op": "norm_activation", "rows": 131072, "width": 1024, "activation": "gelu"},
    {
        "op": "norm_activation",
        "rows": 65536,
        "width": 4096,
        "dtype": "bf16",
        "norm": "rms",
        "activation": "poly",
        "degree": 32,
        "top_k": 3,
    },
)


class NormOptimizeRequest(NormQuestionRequest):
    """A problem of norm_activation, how to answer it, and when at the latest."""

    time_limit_ms: TimeLimit = None

    def question(self, host_device: str) -> NormQuestion:
        return self._asked(host_device, time_limit_ms=self.time_limit_ms)

    model_config = ConfigDict(json_schema_extra={"examples": [*EXAMPLES]})


VERIFICATION_EXAMPLE: dict[str, Any] = {"op": "norm_activation", "rows": 4096, "width": 1000}


class NormVerificationRequest(NormProblemRequest):
    """A problem of norm_activation to run on the host's GPU, with a configuration or with the pick:
    checked, and timed in turn with the best kernel of each kind."""

    config: NormConfigRequest | None = Field(None, description="none: the solver's pick")
    cache: Cache = "cold"
    priority: Priority = "normal"

    model_config = ConfigDict(json_schema_extra={"examples": [VERIFICATION_EXAMPLE]})
