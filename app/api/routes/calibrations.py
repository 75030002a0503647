"""/v1/calibrations: the model's constants measured on the host's GPU."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.job_routes import JobKind, add_job_routes
from app.api.request_headers import IDEMPOTENCY_PARAMETER, IdempotencyKeyDep
from app.calibration import KIND, request_of
from app.keys import Scope
from app.problem_documents import NO_FAMILY, NO_GPU, QUEUE_FULL, QUOTA, UNAVAILABLE
from app.quota import check_quota
from app.schemas.calibrations import CalibrationJob, CalibrationPage, CalibrationRequest
from app.store.jobs import question_sha256
from kernels.verify import require_gpu
from solver.device import load_profile

router = APIRouter(prefix="/v1/calibrations", tags=["calibrations"], route_class=ParsedRoute)
CALIBRATION = JobKind(KIND, "calibrations", Scope.ADMIN, CalibrationJob, CalibrationPage)


@router.post(
    "",
    status_code=202,
    response_model=CalibrationJob,
    response_description="The job, which waits for the GPU",
    responses=problems(NO_FAMILY, QUOTA, QUEUE_FULL, NO_GPU, UNAVAILABLE)
    | {200: {"model": CalibrationJob, "description": "The job of an earlier such request"}},
    openapi_extra={"parameters": [IDEMPOTENCY_PARAMETER]},
    summary="Fit the model's constants to the host's GPU",
)
@needs(Scope.ADMIN)
async def submit(
    body: CalibrationRequest,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKeyDep,
) -> Response:
    """Queues a calibration: microbenchmarks and some two hundred kernel runs, under three minutes.

    It passes where its profile predicts fresh rows no worse than the present one; that profile
    then stands in for it, and answers change at once, unless this is a dry run. It fails with the
    reason where the GPU was shared or held back. Without a GPU: 503. On a GPU that no kernel
    family runs on: 422. Where too many jobs wait: 429.
    """
    services.gpu.require_open()
    sha256 = question_sha256(KIND, body.model_dump())
    earlier = await run_in_threadpool(
        services.jobs.repeated, caller.key_id, idempotency_key, sha256
    )
    if earlier is not None:
        return CALIBRATION.answer(earlier, 200)
    request = request_of(body.asked(), body.dry_run)
    await run_in_threadpool(check_quota, caller, services.database, services.metrics)
    _, device = await run_in_threadpool(require_gpu)
    load_profile(device)  # where it can't be read there is nothing to hold a calibration against
    job, fresh = await run_in_threadpool(
        services.jobs.submit,
        KIND,
        request,
        sha256=sha256,
        priority=body.priority,
        owner=caller.key_id,
        idempotency_key=idempotency_key,
    )
    services.gpu.wake()
    return CALIBRATION.answer(job, 202 if fresh else 200)


add_job_routes(router, CALIBRATION)
