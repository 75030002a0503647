"""/v1/verifications: hand in, list, follow and cancel."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app import answers, norm_verification
from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.job_routes import JobKind, add_job_routes
from app.api.submission import SubmissionDep, submitting
from app.errors import NotFound
from app.host import check_memory
from app.keys import Scope
from app.plan import candidates
from app.problem_documents import NOT_FOUND, UNAVAILABLE
from app.schemas.norm_questions import NormVerificationRequest
from app.schemas.ops import AnyVerification
from app.schemas.questions import VerificationRequest
from app.schemas.service import AnyVerificationJob, VerificationPage
from app.services import Services
from app.timeline import timeline_svg
from app.verification import KIND, request_of
from app.verification_input import check_asked
from kernels.norm.verify import NormVerificationRequest as NormVerification
from kernels.norm.verify import require_norm_gpu
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest as Verification
from kernels.verify import require_gpu
from solver.config import Config
from solver.problem import Problem
from solver.question import Question
from solver.report import problem_words

router = APIRouter(prefix="/v1/verifications", tags=["verifications"], route_class=ParsedRoute)
VERIFICATION = JobKind(KIND, "verifications", Scope.VERIFY, AnyVerificationJob, VerificationPage)


@router.post(
    "",
    summary="Compile, launch, check and time a kernel on the host's GPU",
    **submitting(VERIFICATION),
)
@needs(Scope.VERIFY)
async def submit(
    body: AnyVerification, services: ServicesDep, submission: SubmissionDep
) -> Response:
    """Queues a verification of the given configuration, or of the pick where there is none. With
    `top_k` the pick is raced against alternatives, each the model's first of a further tile. Picks
    are remembered, and so is what beats one.

    With `op` `norm_activation` it is checked and then timed in turn with the best kernel of each
    kind, and fails with `slower_than_strong` where it is surely slower than the strong one.

    The job outlives the service from here on; `Location` says where to follow it. Without a GPU:
    503. On a GPU that no kernel family runs on, for a problem beyond its memory, or for an illegal
    configuration: 422. Where too many wait: 429.
    """
    asked = body.root

    async def request() -> dict[str, Any]:
        if isinstance(asked, VerificationRequest):
            return request_of(await _of_product(asked, services))
        return request_of(await _of_rows(asked, services))

    return await submission.submit(
        VERIFICATION,
        _identity(asked),
        priority=asked.priority,
        check=lambda: check_asked(asked, services.host.device),
        request=request,
    )


def _identity(asked: VerificationRequest | NormVerificationRequest) -> dict[str, Any]:
    """What makes two requests one. Members that one of a product need not have leave the digest of
    one without them as it was."""
    unset: set[str] = set()
    if isinstance(asked, VerificationRequest):
        optional = ("cache", "against", "top_k", "trace")
        unset = {"op", *(name for name in optional if name not in asked.model_fields_set)}
    return asked.model_dump(exclude=unset)


async def _of_product(asked: VerificationRequest, services: Services) -> Verification:
    problem = asked.problem()
    gpu, device = await run_in_threadpool(services.gpus.require, require_gpu)
    check_memory(problem, gpu)
    alternatives: list[tuple[Config, float]] = []
    if asked.config is None:
        question = Question(problem, device=device, proof="none", cache=asked.cache)
        raced = (await services.pool.ask(candidates, question, asked.top_k)).value
        pick, *alternatives = [(Config.from_dict(each), time_us) for each, time_us in raced]
        config, predicted_us = pick
    else:
        config = asked.config.config()
        reply = await services.pool.ask(
            answers.simulate, problem, config, device, "calibrated", 1.0, asked.cache
        )
        predicted_us = reply.value["predicted"]["time_us"]
    return Verification(
        problem,
        config,
        predicted_us,
        protocol=VERIFY.with_cache(asked.cache),
        against=tuple(other.config() for other in asked.against),
        trace=asked.trace,
        alternatives=tuple(alternatives),
        picked=asked.config is None,
    )


async def _of_rows(asked: NormVerificationRequest, services: Services) -> NormVerification:
    problem = asked.problem()
    gpu, device = await run_in_threadpool(services.gpus.require, require_norm_gpu)
    check_memory(problem, gpu)
    config = None if asked.config is None else asked.config.config()
    reply = await services.pool.ask(
        norm_verification.verification, problem, config, device, asked.cache
    )
    request: NormVerification = reply.value
    return request


class SvgResponse(Response):
    """A picture."""

    media_type = "image/svg+xml"


@router.get(
    "/{verification_id}/trace.svg",
    response_class=SvgResponse,
    response_description="Measured above predicted",
    responses=problems(NOT_FOUND, UNAVAILABLE),
    summary="The GPU's own timeline over the model's",
)
@needs(Scope.VERIFY)
def trace_picture(verification_id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """A picture of `result.trace.timeline`. 404 also for a verification without a trace: not asked
    for, not there yet, or not reached because the verification failed.
    """
    job = services.jobs.get(verification_id, caller.owner, KIND)
    trace = (job.result or {}).get("trace")
    if trace is None:
        raise NotFound(f"verification {job.id} is {job.status} and has no trace")
    problem = Problem(**job.request["problem"])
    return SvgResponse(timeline_svg(trace, problem_words(problem)))


add_job_routes(router, VERIFICATION)
