"""/v1/sweeps: many configurations of given problems, measured on the host's GPU."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.job_routes import JobKind, add_job_routes
from app.api.parameters import documented, query_of
from app.api.responses import json_response
from app.api.submission import SubmissionDep, submitting
from app.host import check_memory
from app.keys import Scope
from app.problem_documents import INVALID, NOT_FOUND, UNAVAILABLE
from app.schemas.sweeps import RowsQuery, SweepJob, SweepPage, SweepRequest, SweptRows
from app.store import result_rows
from app.sweep import KIND, request_of
from kernels.host import HostGpu
from kernels.verify import require_gpu
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import sm90_gemm_legality as legality
from solver.problem_sweep import ProblemSweep

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"], route_class=ParsedRoute)
SWEEP = JobKind(KIND, "sweeps", Scope.VERIFY, SweepJob, SweepPage)


@router.post(
    "", summary="Time many configurations of given problems on the host's GPU", **submitting(SWEEP)
)
@needs(Scope.VERIFY)
async def submit(body: SweepRequest, services: ServicesDep, submission: SubmissionDep) -> Response:
    """Queues a sweep: of each problem your `configs`, the model's first `top_k` and `covering`
    further ones. Outputs are not checked, a verification does that.

    It passes where every row was measured. Rows can be read as they come, and one that is cut off
    goes on with those that are left. Without a GPU: 503. On a GPU that no kernel family runs on,
    for a problem beyond its memory, or for an illegal configuration: 422. Where too many jobs
    wait: 429.
    """

    async def request() -> dict[str, Any]:
        sweep = body.sweep()
        gpu, _ = await run_in_threadpool(services.gpus.require, require_gpu)
        _check_memory(sweep, gpu)
        return request_of(sweep)

    return await submission.submit(
        SWEEP,
        body.model_dump(),
        priority=body.priority,
        check=lambda: _check_legal(body.sweep(), services.host.device),
        request=request,
    )


def _check_legal(sweep: ProblemSweep, device: str) -> None:
    """Raise InvalidInput with the path of a configuration that is illegal on ``device``: the
    host's, or where there is none the one that answers are for."""
    profile = load_profile(device)
    for place, problem in enumerate(sweep.problems):
        for index, config in enumerate(sweep.configs):
            try:
                legality.check(config, problem, profile)
            except IllegalConfig as error:
                raise InvalidInput(
                    f"configs.{index}.{error.field}", f"for problems.{place}: {error.message}"
                ) from None


def _check_memory(sweep: ProblemSweep, gpu: HostGpu) -> None:
    """Raise InvalidInput with the path of a problem beyond the GPU's memory."""
    for place, problem in enumerate(sweep.problems):
        try:
            check_memory(problem, gpu)
        except InvalidInput as error:
            raise InvalidInput(f"problems.{place}.{error.field}", error.message) from None


@router.get(
    "/{sweep_id}/rows",
    response_model=SweptRows,
    responses=problems(NOT_FOUND, INVALID, UNAVAILABLE),
    openapi_extra=documented(RowsQuery),
    summary="What a sweep measured",
)
@needs(Scope.VERIFY)
def rows(
    sweep_id: str,
    query: Annotated[RowsQuery, query_of(RowsQuery)],
    services: ServicesDep,
    caller: CallerDep,
) -> Response:
    """Rows by their number, those that are measured so far; they stay where the sweep failed or was
    cancelled. `next` is the `after` of the page that follows."""
    job = services.jobs.get(sweep_id, caller.owner, KIND)
    found, following = result_rows.page(
        services.database, job.id, after=query.after, limit=query.limit
    )
    return json_response({"rows": found, "next": following})


add_job_routes(router, SWEEP)
