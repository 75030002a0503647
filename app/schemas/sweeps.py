"""Sweeps: what is asked for, how one stands, and what was measured."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field

from app.schemas.limits import between, up_to
from app.schemas.parts import ProblemShape, Shape
from app.schemas.questions import Cache, ConfigRequest, Priority, ProblemRequest, Request
from app.schemas.service import JobShape
from solver.errors import InvalidInput
from solver.problem import Problem
from solver.problem_sweep import (
    CONFIGS_MAX,
    COVERING_MAX,
    COVERING_ROWS,
    PROBLEMS_MAX,
    ROWS_MAX,
    SEED,
    SEED_MAX,
    TOP_MAX,
    TOP_ROWS,
    ProblemSweep,
)

ROWS_PAGE_MAX = 500


class SweepRequest(Request):
    """Problems to run on the host's GPU, and how many configurations of each."""

    problems: Annotated[list[ProblemRequest], FailFast()] = Field(
        description=f"none twice; all rows together are at most {ROWS_MAX}",
        json_schema_extra=up_to(PROBLEMS_MAX),
    )
    configs: Annotated[list[ConfigRequest], FailFast()] = Field(
        [],
        description="your own, none twice: each is measured for every problem",
        json_schema_extra=up_to(CONFIGS_MAX) | {"minItems": 0},
    )
    top_k: int = Field(
        TOP_ROWS,
        description="how many of the model's first are measured, the pick included",
        json_schema_extra=between(0, TOP_MAX),
    )
    covering: int = Field(
        COVERING_ROWS,
        description="how many further ones, drawn so that they cover the legal space evenly",
        json_schema_extra=between(0, COVERING_MAX),
    )
    cache: Cache = "cold"
    seed: int = Field(
        SEED,
        description="of what is drawn, and of the order",
        json_schema_extra=between(0, SEED_MAX),
    )
    priority: Priority = "normal"

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"problems": [{"m": 512, "n": 512, "k": 512}], "covering": 30}]
        }
    )

    def sweep(self) -> ProblemSweep:
        """What is to be measured; InvalidInput names the field and the limit."""
        return ProblemSweep(
            tuple(_problem(place, each) for place, each in enumerate(self.problems)),
            tuple(each.config() for each in self.configs),
            top_k=self.top_k,
            covering=self.covering,
            cache=self.cache,
            seed=self.seed,
        )


def _problem(place: int, asked: ProblemRequest) -> Problem:
    try:
        return asked.problem()
    except InvalidInput as error:
        raise InvalidInput(f"problems.{place}.{error.field}", error.message) from None


class SweepJob(JobShape):
    """A sweep as it stands."""

    problems: list[ProblemShape]
    configs: list[ConfigRequest]
    top_k: int
    covering: int
    cache: str
    seed: int
    result: dict[str, Any] | None = Field(
        description="what the rows came to, once it ended: of each of `problems` the `best`, the "
        "`pick` and its `regret`; and what was measured on what, and how"
    )


class SweepPage(Shape):
    """Sweeps, the newest first."""

    sweeps: list[SweepJob]
    next: int | None = Field(description="`after` of the next page; null at the end")


class RowsQuery(Request):
    """Which rows."""

    limit: int = Field(100, ge=1, le=ROWS_PAGE_MAX, description="how many at most")
    after: int | None = Field(
        None, ge=0, le=2**31 - 1, description="`next` of the page before; from the first without it"
    )


class SweptRow(Shape):
    """One configuration of one problem, measured."""

    number: int = Field(description="its place among the sweep's rows, from 0")
    problem: int = Field(description="the place of its problem in `problems`, from 0")
    role: Literal["given", "top", "covering"] = Field(
        description="yours, one of the model's first, or drawn to cover"
    )
    pick: bool = Field(description="whether it is the model's first")
    config: ConfigRequest
    predicted_us: float
    median_us: float | None = Field(description="null where it failed")
    p95_us: float | None
    sm_clock_mhz: int | None
    power_w: float | None
    throttle: list[str] = Field(description="what held the clock down around it")
    reason: str | None = Field(description="why it failed; null where it was measured")


class SweptRows(Shape):
    """Rows in their order, those that are measured so far."""

    rows: list[SweptRow]
    next: int | None = Field(description="`after` of the next page; null at the end")
