"""POST /v1/verifications and GET /v1/verifications/{id}."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from app import answers
from app.api.access import needs
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.responses import json_response
from app.host import check_memory
from app.keys import Scope
from app.quota import check_quota
from app.schemas.questions import VerificationRequest
from app.schemas.service import VerificationJob
from kernels.verify import require_gpu
from solver.config import Config
from solver.question import Question

router = APIRouter(prefix="/v1/verifications", tags=["verifications"])


@router.post(
    "",
    status_code=202,
    response_model=VerificationJob,
    responses=problems(400, 408, 413, 415, 422, 503),
    summary="Compile, launch, check and time a kernel on the host's GPU",
)
@needs(Scope.VERIFY)
async def submit(body: VerificationRequest, services: ServicesDep, caller: CallerDep) -> Response:
    """Queues a verification of the given configuration, or of the pick where there is none.

    `Location` says where to follow it. Without a GPU: 503. On a GPU that no kernel family
    runs on, for a problem beyond its memory, or for an illegal configuration: 422.
    """
    problem = body.problem()
    await asyncio.to_thread(check_quota, caller, services.database, services.metrics)
    gpu, device = await asyncio.to_thread(require_gpu)
    check_memory(problem, gpu)
    if body.config is None:
        question = Question(problem, device=device, proof="none")
        answer, _ = (await services.pool.ask(answers.optimize, question)).value
    else:
        config = body.config.config()
        reply = await services.pool.ask(answers.simulate, problem, config, device, "calibrated")
        answer = reply.value
    job = services.jobs.submit(
        problem, Config.from_dict(answer["config"]), answer["predicted"]["time_us"]
    )
    location = f"/v1/verifications/{job.id}"
    return json_response(job.to_dict(), status=202, headers={"Location": location})


@router.get(
    "/{verification_id}",
    response_model=VerificationJob,
    responses=problems(404),
    summary="Where a verification stands",
)
@needs(Scope.VERIFY)
async def read(verification_id: str, services: ServicesDep) -> Response:
    """`queued`, `running`, then `passed`, `failed` with a reason, or `cancelled`."""
    return json_response(services.jobs.get(verification_id).to_dict())
