"""POST and GET /v1/optimize, POST /v1/explain and POST /v1/simulate."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from app import answers
from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import ArrivedDep, ServicesDep
from app.api.documents import problems
from app.api.kept import addressed_response
from app.api.request_headers import header_parameter
from app.api.responses import answer_response, json_response
from app.keys import Scope
from app.problem_documents import INVALID, UNAVAILABLE, UNSATISFIABLE
from app.schemas.answers import SimulateAnswer
from app.schemas.explanations import ExplainAnswer
from app.schemas.norm_answers import AnyAnswer
from app.schemas.ops import AnyOptimize
from app.schemas.queries import question_parameters, read_question
from app.schemas.questions import ExplainRequest, SimulateRequest

IF_NONE_MATCH = header_parameter(
    "If-None-Match", "the `ETag` of an answer that you have: 304 where it is still that one"
)
NOT_KEPT = ((b"cache-control", b"no-store"),)

router = APIRouter(prefix="/v1", tags=["answers"], route_class=ParsedRoute)


@router.post(
    "/optimize",
    response_model=AnyAnswer,
    responses=problems(UNSATISFIABLE, UNAVAILABLE),
    summary="The best configuration for a problem, with its proof",
)
@needs(Scope.OPTIMIZE)
async def optimize(body: AnyOptimize, services: ServicesDep, arrived_s: ArrivedDep) -> Response:
    """By default minimises predicted time, then MATH-warp wait time, over the whole legal
    space; `objective` and `constraints` say otherwise. Constraints that leave nothing get 422
    with the ones that clash.

    With `op` `norm_activation` the question is of rows that are normalised and transformed in one
    kernel: `kind`, `ratio`, `depth` and `barrier` say how the answer divides its warps, `kinds` has
    the best of each kind, and `specialising` says in words whether dividing them pays.

    The proof is about the model; a verification is about the GPU. Where one found a configuration
    that is surely faster than the pick here, that is answered: `source` is `measured`, and
    `model_pick`, which the proof is about, stands beside it. `model_only` leaves that out.

    The body is a pure function of the question, the device profile, the model and, with `source`
    `measured`, of the measurement that it names; timings are in the `Server-Timing` header. Only
    where `time_limit_ms` came before the end of the proof does it depend on the machine:
    `proof.status` is then `timeout`, and it is not to be cached.
    """
    asked = body.root
    given = await services.answering.answer(
        asked.question(services.host.device), arrived_s=arrived_s, model_only=asked.model_only
    )
    late = given.answer.status == "timeout"
    return answer_response(given, headers=NOT_KEPT if late else ())


@router.get(
    "/optimize",
    response_model=AnyAnswer,
    responses=problems(INVALID, UNSATISFIABLE, UNAVAILABLE)
    | {304: {"description": "The caller has this answer already"}},
    openapi_extra={"parameters": [*question_parameters(), IF_NONE_MATCH]},
    summary="The same question in an address, whose answer may be kept",
)
@needs(Scope.OPTIMIZE)
async def optimize_by_address(request: Request, services: ServicesDep) -> Response:
    """The answer that `POST /v1/optimize` gives to the same members, byte by byte; `objective` and
    `constraints` are JSON text, and there is no `time_limit_ms`.

    `ETag` changes when the answer does: with the model's version, the device profile, what was
    measured, or the host's GPU where no device is named. `If-None-Match` with it gets 304.
    """
    query: bytes = request.scope["query_string"]
    asked = read_question(query)
    given = await services.answering.answer(
        asked.question(services.host.device), query=query, model_only=asked.model_only
    )
    return addressed_response(request.scope, given, services.settings.answer_max_age_s)


@router.post(
    "/explain",
    response_model=ExplainAnswer,
    responses=problems(UNSATISFIABLE, UNAVAILABLE),
    summary="Why this configuration, and what would change it",
)
@needs(Scope.OPTIMIZE)
async def explain(body: ExplainRequest, services: ServicesDep) -> Response:
    """The pick's explanation: where its time goes, which limits bind, what comes next, and the
    least change of a limit or of a constant that makes another configuration the first, each
    proved on both of its sides. `text` has it in words, the other members in figures. Takes
    what `/v1/optimize` takes, but for a pareto objective, which has no one pick, `top_k` and
    `time_limit_ms`.
    """
    begun = time.perf_counter()
    reply = await services.pool.ask(answers.explain, body.question(services.host.device))
    total_ms = (time.perf_counter() - begun) * 1e3
    return json_response(
        reply.value,
        timings_ms={"explain": reply.solve_ms, "queue": reply.queue_ms, "total": total_ms},
    )


@router.post(
    "/simulate",
    response_model=SimulateAnswer,
    responses=problems(UNAVAILABLE),
    summary="Play one configuration's events",
)
@needs(Scope.OPTIMIZE)
async def simulate(body: SimulateRequest, services: ServicesDep) -> Response:
    """Predicted time and wait of your own configuration, its timeline, the limits it
    touches and its gap to the optimum. A configuration that breaks a limit gets 422.
    """
    begun = time.perf_counter()
    device = services.host.device if body.device is None else body.device
    reply = await services.pool.ask(
        answers.simulate,
        body.problem(),
        body.config.config(),
        device,
        body.model,
        body.divergence,
        body.cache,
    )
    total_ms = (time.perf_counter() - begun) * 1e3
    return json_response(
        reply.value,
        timings_ms={"simulate": reply.solve_ms, "queue": reply.queue_ms, "total": total_ms},
    )
