"""Calibrations: what is asked for, and how one stands."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.schemas.limits import between
from app.schemas.parts import Shape
from app.schemas.questions import Request
from app.schemas.service import JobShape
from kernels.calibration import ROWS_MAX, ROWS_MIN, SEED_MAX, Asked
from solver.calibration.design import ROWS, SEED


class CalibrationRequest(Request):
    """A calibration of the host's GPU."""

    from_scratch: bool = Field(
        False, description="forget the present constants: begin from datasheet and microbenchmarks"
    )
    dry_run: bool = Field(False, description="measure and judge, store nothing")
    rows: int = Field(
        ROWS,
        description="rows to fit to",
        json_schema_extra=between(ROWS_MIN, ROWS_MAX),
    )
    seed: int = Field(SEED, description="of the rows", json_schema_extra=between(0, SEED_MAX))
    priority: Literal["low", "normal", "high"] = Field(
        "normal",
        description="which of the jobs that wait goes first; those of one priority as accepted",
    )

    model_config = ConfigDict(json_schema_extra={"examples": [{"dry_run": True}]})

    def asked(self) -> Asked:
        """What is to be done; InvalidInput names the field and the limit."""
        return Asked(self.from_scratch, self.seed, self.rows)


class CalibrationJob(JobShape):
    """A calibration as it stands."""

    from_scratch: bool
    dry_run: bool
    rows: int
    seed: int
    result: dict[str, Any] | None = Field(
        description="what was measured and what it came to, once it ended; where it passed the "
        "`profile`, and the file it was `stored` in"
    )


class CalibrationPage(Shape):
    """Calibrations, the newest first."""

    calibrations: list[CalibrationJob]
    next: int | None = Field(description="`after` of the next page; null at the end")
