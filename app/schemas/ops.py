"""Requests that are of one op or another, told apart by their member ``op``."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import ConfigDict, Field, RootModel, model_validator

from app.ops import GEMM
from app.schemas import norm_questions, questions
from app.schemas.norm_questions import (
    NormOptimizeRequest,
    NormQuestionRequest,
    NormVerificationRequest,
)
from app.schemas.questions import OptimizeRequest, QuestionRequest, Request, VerificationRequest


def _examples(*given: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(given)})


class _ByOp:
    """What the unions below share; ``root`` is the request."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """A request that names no op is of a product."""
        return {"op": GEMM, **values} if isinstance(values, dict) else values


class AnyOptimize(
    _ByOp,
    RootModel[Annotated[OptimizeRequest | NormOptimizeRequest, Field(discriminator="op")]],
):
    """A question; `op` says of what, `gemm` where it is left out."""

    model_config = _examples(*questions.EXAMPLES, *norm_questions.EXAMPLES)


class AnyQuestion(
    _ByOp,
    RootModel[Annotated[QuestionRequest | NormQuestionRequest, Field(discriminator="op")]],
):
    """A question that is answered whole; `op` says of what, `gemm` where it is left out."""


class AnyVerification(
    _ByOp,
    RootModel[Annotated[VerificationRequest | NormVerificationRequest, Field(discriminator="op")]],
):
    """What is to be run; `op` says of what, `gemm` where it is left out."""

    model_config = _examples(questions.VERIFICATION_EXAMPLE, norm_questions.VERIFICATION_EXAMPLE)


def members(union: type[RootModel[Any]]) -> dict[str, type[Request]]:
    """The requests of a union, by op."""
    models: tuple[type[Request], ...] = get_args(union.model_fields["root"].annotation)
    return {get_args(model.model_fields["op"].annotation)[0]: model for model in models}
