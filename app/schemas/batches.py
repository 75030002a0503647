"""Many questions at once: the request, and one line of its answer."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from app.problem_documents import ProblemDocument
from app.schemas.limits import up_to
from app.schemas.norm_answers import AnyAnswer
from app.schemas.parts import Shape
from app.schemas.queries import COMPONENTS
from app.schemas.questions import Request

PROBLEMS_MAX = 1000


class BatchRequest(Request):
    """Problems to answer as if each had been posted to /v1/optimize.

    Their members are read one problem at a time, so that a wrong one is that problem's alone.
    """

    problems: list[Any] = Field(
        description="each as `AnyOptimize`, without the members that `defaults` has for it; "
        "one that is not gets an error in its line",
        json_schema_extra=up_to(PROBLEMS_MAX),
    )
    defaults: dict[str, Any] = Field(
        {}, description="members of every problem that has none of the name"
    )

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "defaults": {"n": 4096, "k": 4096, "dtype": "fp16"},
                    "problems": [{"m": 16}, {"m": 4096, "dtype": "bf16"}, {"m": 0}],
                }
            ]
        }
    )


class BatchLine(Shape):
    """One problem's end: an answer or what is wrong."""

    index: int = Field(description="the problem's place in the request, from 0")
    answer: AnyAnswer | None = Field(None, description="/v1/optimize's body, where it is 200")
    error: ProblemDocument | None = Field(None, description="else its problem document")


def line_schema() -> dict[str, Any]:
    """BatchLine's schema, with references into the OpenAPI document, which has its parts."""
    schema = BatchLine.model_json_schema(ref_template=COMPONENTS)
    del schema["$defs"]
    return schema
