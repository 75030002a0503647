"""/v1/calibrations: the model's constants measured on the host's GPU."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import ServicesDep
from app.api.job_routes import JobKind, add_job_routes
from app.api.submission import SubmissionDep, submitting
from app.calibration import KIND, request_of
from app.keys import Scope
from app.schemas.calibrations import CalibrationJob, CalibrationPage, CalibrationRequest
from kernels.verify import require_gpu
from solver.device import load_profile

router = APIRouter(prefix="/v1/calibrations", tags=["calibrations"], route_class=ParsedRoute)
CALIBRATION = JobKind(KIND, "calibrations", Scope.ADMIN, CalibrationJob, CalibrationPage)


@router.post("", summary="Fit the model's constants to the host's GPU", **submitting(CALIBRATION))
@needs(Scope.ADMIN)
async def submit(
    body: CalibrationRequest, services: ServicesDep, submission: SubmissionDep
) -> Response:
    """Queues a calibration: microbenchmarks and some two hundred kernel runs, under three minutes.

    It passes where its profile predicts fresh rows no worse than the present one; that profile
    then stands in for it, and answers change at once, unless this is a dry run. It fails with the
    reason where the GPU was shared or held back. Without a GPU: 503. On a GPU that no kernel
    family runs on: 422. Where too many jobs wait: 429.
    """

    async def request() -> dict[str, Any]:
        _, device = await run_in_threadpool(services.gpus.require, require_gpu)
        load_profile(
            device
        )  # where it can't be read there is nothing to hold a calibration against
        return request_of(body.asked(), body.dry_run)

    return await submission.submit(
        CALIBRATION,
        body.model_dump(),
        priority=body.priority,
        check=lambda: request_of(body.asked(), body.dry_run),
        request=request,
    )


add_job_routes(router, CALIBRATION)
