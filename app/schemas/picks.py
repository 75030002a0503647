"""Picks files: problems whose picks a CI job guards. Members and limits are those of
POST /v1/optimize.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from app.schemas.batches import PROBLEMS_MAX
from app.schemas.limits import NAME_LONGEST, Name, one_of
from app.schemas.objectives import (
    DEFAULT_OBJECTIVE,
    NO_CONSTRAINTS,
    ConstraintsRequest,
    RankingRequest,
)
from app.schemas.questions import AGAINST_MAX, Cache, ProblemRequest, Request
from solver.constraints import Constraints
from solver.device import device_names, families_of
from solver.objective import objective_from_dict
from solver.problem import ELEMENT_BYTES, LAYOUTS, OUT_BYTES
from solver.question import Question

SHARED = ("dtype", "layout", "out_dtype", "cache", "objective", "constraints")
"""Members that a file may have for every problem that has none of its own."""

TOLERANCE_MAX = 10.0

DEVICES = tuple(name for name in device_names() if families_of(name))
"""Devices that a kernel family runs on: elsewhere there is nothing to compile or launch."""

PickName = Annotated[str, Field(min_length=1, max_length=NAME_LONGEST)]
Tolerance = Annotated[float, Field(ge=0, le=TOLERANCE_MAX)]
Ranking = Annotated[RankingRequest, Field(description="what is best; one configuration is first")]
Allowed = Annotated[ConstraintsRequest, Field(description="what is allowed")]


class Tolerances(Request):
    """How far a measured pick may be off, each a fraction."""

    time: Tolerance = Field(default=0.05, description="more time than the lock's measured time")
    regret: Tolerance = Field(default=0.1, description="more time than the fastest of `top_k`")
    top_k: int = Field(
        default=8,
        ge=2,
        le=AGAINST_MAX + 1,
        description="candidates for the fastest, the pick included, by the model's order: the "
        "first of each tile",
    )


class PickRequest(ProblemRequest):
    """A problem, what is best and allowed for it, and what it is called."""

    name: PickName | None = Field(
        None, description="printable, each once; by default the problem in words"
    )
    cache: Cache = "cold"
    objective: Ranking = DEFAULT_OBJECTIVE
    constraints: Allowed = NO_CONSTRAINTS

    def question(self, device: str) -> Question:
        """The solver's question; InvalidInput names the field and the limit."""
        return Question(
            problem=self.problem(),
            device=device,
            cache=self.cache,
            objective=objective_from_dict(self.objective),
            constraints=Constraints.from_dict(self.constraints),
        )


class PicksRequest(Request):
    """A picks file: a device, tolerances, and problems with what most of them share."""

    device: Name = Field(
        description="the profile that the picks are for", json_schema_extra=one_of(DEVICES)
    )
    dtype: Name = Field("bf16", json_schema_extra=one_of(ELEMENT_BYTES))
    layout: Name = Field("tn", json_schema_extra=one_of(LAYOUTS))
    out_dtype: Name | None = Field(
        None, description="by default dtype", json_schema_extra=one_of([*OUT_BYTES, None])
    )
    cache: Cache = "cold"
    objective: Ranking = DEFAULT_OBJECTIVE
    constraints: Allowed = NO_CONSTRAINTS
    tolerances: Tolerances = Tolerances()
    problems: list[PickRequest] = Field(
        min_length=1, max_length=PROBLEMS_MAX, description="one table `[[problems]]` each"
    )

    model_config = ConfigDict(title="Picks file")

    def whole(self, pick: PickRequest) -> PickRequest:
        """A problem with the members that it does not have itself: the file's."""
        own = pick.model_fields_set
        shared: dict[str, Any] = {
            name: getattr(self, name)
            for name in SHARED
            if name in self.model_fields_set and name not in own
        }
        return pick.model_copy(update=shared)


if __name__ == "__main__":
    print(json.dumps(PicksRequest.model_json_schema(), indent=1, ensure_ascii=False))
