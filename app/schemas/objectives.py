"""What "best" and "allowed" mean, as a request writes them.

They are dictionaries in the form that the solver reads, so that a member that is left out
stays out. Strictness and the refusal of unknown members come from the request they stand in.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import FailFast, Field
from typing_extensions import TypedDict

from app.schemas.limits import between, up_to
from solver.constraints import BOUND_MAX, VALUES_MAX
from solver.objective import AXES, CAP, CAP_MAX, DEFAULT, WEIGHT_MAX, WITHIN, WITHIN_MAX

Axis = Literal["time", "wait", "smem", "registers", "energy"]
"""Energy on devices whose power was measured alone."""
Axes = Annotated[
    list[Axis], FailFast(), Field(json_schema_extra={**up_to(len(AXES)), "uniqueItems": True})
]
Weight = Annotated[float, Field(json_schema_extra=between(0, WEIGHT_MAX))]
Value = Annotated[int, Field(json_schema_extra=between(0, BOUND_MAX))]


class LexicographicRequest(TypedDict):
    """Ranked by the values named, in order, then by the others."""

    kind: Literal["lexicographic"]
    order: Axes


class Weights(TypedDict, total=False):
    """Each 0 or at least 1e-9, one above 0."""

    time: Annotated[Weight, Field(description="per µs")]
    wait: Annotated[Weight, Field(description="per µs")]
    smem: Annotated[Weight, Field(description="per KiB")]
    registers: Annotated[Weight, Field(description="per register of a thread")]
    energy: Annotated[
        Weight,
        Field(description="per mJ of a launch, on devices whose power was measured"),
    ]


class WeightedRequest(TypedDict):
    """Ranked by an exact weighted sum, the score."""

    kind: Literal["weighted"]
    weights: Weights


class ParetoRequest(TypedDict):
    """Every trade-off between the axes among configurations that are fast enough."""

    kind: Literal["pareto"]
    axes: Axes
    within: NotRequired[
        Annotated[
            float,
            Field(
                description=f"the most time, as a factor on the least; {WITHIN} by default",
                json_schema_extra=between(1, WITHIN_MAX),
            ),
        ]
    ]
    cap: NotRequired[
        Annotated[
            int,
            Field(
                description=f"how many points to list; {CAP} by default",
                json_schema_extra=between(1, CAP_MAX),
            ),
        ]
    ]


ObjectiveRequest = Annotated[
    LexicographicRequest | WeightedRequest | ParetoRequest, Field(discriminator="kind")
]
RankingRequest = Annotated[LexicographicRequest | WeightedRequest, Field(discriminator="kind")]
"""An objective by which one configuration is first."""

DEFAULT_OBJECTIVE: Any = DEFAULT.to_dict()

BoundRequest = TypedDict(
    "BoundRequest",
    {
        "min": Value,
        "max": Value,
        "in": Annotated[list[Value], FailFast(), Field(json_schema_extra=up_to(VALUES_MAX))],
    },
    total=False,
)
BoundRequest.__doc__ = "At least one of the three; a value must satisfy all that are given."


class CapRequest(TypedDict):
    """An upper bound."""

    max: Value


class ConfigBounds(TypedDict, total=False):
    """Bounds on a configuration's own fields."""

    tile_m: BoundRequest
    tile_n: BoundRequest
    tile_k: BoundRequest
    stages: BoundRequest
    mma_in_flight: BoundRequest
    dma_warps: BoundRequest
    math_warpgroups: BoundRequest
    register_split: BoundRequest
    cluster_m: BoundRequest
    cluster_n: BoundRequest
    split_k: BoundRequest
    raster_group: BoundRequest


class ConstraintsRequest(TypedDict, total=False):
    """Limits of the user's own, besides those of device and kernel family."""

    smem_bytes: Annotated[BoundRequest, Field(description="dynamic shared memory of a CTA")]
    registers_per_thread: Annotated[BoundRequest, Field(description="launch registers")]
    sms: Annotated[BoundRequest, Field(description="SMs to use, one CTA on each")]
    power_w: Annotated[
        CapRequest,
        Field(
            description="watts of the device where launches follow one another for seconds, with "
            "the margin that its profile has for what predictions are off by (power_high_w), which "
            "measured ones may still exceed; where its power was measured"
        ),
    ]
    config: ConfigBounds


NO_CONSTRAINTS: ConstraintsRequest = {}
