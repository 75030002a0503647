"""/v1/verifications: hand in, list, follow and cancel."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app import answers
from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.job_routes import JobKind, add_job_routes
from app.api.request_headers import IDEMPOTENCY_PARAMETER, IdempotencyKeyDep
from app.host import check_memory
from app.keys import Scope
from app.problem_documents import NO_FAMILY, NO_GPU, QUEUE_FULL, QUOTA, UNAVAILABLE
from app.quota import check_quota
from app.schemas.questions import VerificationRequest
from app.schemas.service import VerificationJob, VerificationPage
from app.store.jobs import question_sha256
from app.verification import KIND, request_of
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest as Verification
from kernels.verify import require_gpu
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import sm90_gemm_legality as legality
from solver.problem import Problem
from solver.question import Question

router = APIRouter(prefix="/v1/verifications", tags=["verifications"], route_class=ParsedRoute)
VERIFICATION = JobKind(KIND, "verifications", Scope.VERIFY, VerificationJob, VerificationPage)


@router.post(
    "",
    status_code=202,
    response_model=VerificationJob,
    response_description="The job, which waits for the GPU",
    responses=problems(NO_FAMILY, QUOTA, QUEUE_FULL, NO_GPU, UNAVAILABLE)
    | {200: {"model": VerificationJob, "description": "The job of an earlier such request"}},
    openapi_extra={"parameters": [IDEMPOTENCY_PARAMETER]},
    summary="Compile, launch, check and time a kernel on the host's GPU",
)
@needs(Scope.VERIFY)
async def submit(
    body: VerificationRequest,
    services: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKeyDep,
) -> Response:
    """Queues a verification of the given configuration, or of the pick where there is none.

    The job outlives the service from here on; `Location` says where to follow it. Without a GPU:
    503. On a GPU that no kernel family runs on, for a problem beyond its memory, or for an illegal
    configuration: 422. Where too many wait: 429.
    """
    services.gpu.require_open()
    owner = caller.key_id
    # Members that a request need not have leave the digest of one without them as it was.
    unset = {name for name in ("cache", "against") if name not in body.model_fields_set}
    sha256 = question_sha256(KIND, body.model_dump(exclude=unset))
    earlier = await run_in_threadpool(services.jobs.repeated, owner, idempotency_key, sha256)
    if earlier is not None:
        return VERIFICATION.answer(earlier, 200)
    problem = body.problem()
    await run_in_threadpool(check_quota, caller, services.database, services.metrics)
    gpu, device = await run_in_threadpool(require_gpu)
    check_memory(problem, gpu)
    if body.config is None:
        question = Question(problem, device=device, proof="none", cache=body.cache)
        answer, _ = (await services.pool.ask(answers.optimize, question)).value
    else:
        config = body.config.config()
        reply = await services.pool.ask(
            answers.simulate, problem, config, device, "calibrated", 1.0, body.cache
        )
        answer = reply.value
    others = _others(body, problem, device)
    job, fresh = await run_in_threadpool(
        services.jobs.submit,
        KIND,
        request_of(
            Verification(
                problem,
                Config.from_dict(answer["config"]),
                answer["predicted"]["time_us"],
                protocol=VERIFY.with_cache(body.cache),
                against=others,
            )
        ),
        sha256=sha256,
        priority=body.priority,
        owner=owner,
        idempotency_key=idempotency_key,
    )
    services.gpu.wake()
    return VERIFICATION.answer(job, 202 if fresh else 200)


def _others(body: VerificationRequest, problem: Problem, device: str) -> tuple[Config, ...]:
    """The configurations to time against. Raises InvalidInput with an illegal one's path."""
    others = tuple(other.config() for other in body.against)
    for place, other in enumerate(others):
        try:
            legality.check(other, problem, load_profile(device))
        except IllegalConfig as error:
            raise InvalidInput(f"against.{place}.{error.field}", error.message) from None
    return others


add_job_routes(router, VERIFICATION)
