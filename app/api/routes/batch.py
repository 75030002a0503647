"""POST /v1/optimize/batch."""

from __future__ import annotations

import logging
import time
from typing import Any

from fastapi import APIRouter, Response

from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import CallerDep, ServicesDep
from app.api.ndjson import NdjsonResponse, as_completed
from app.keys import Scope
from app.problem_documents import DEFECT, from_exception
from app.schemas.batches import PROBLEMS_MAX, BatchRequest, line_schema
from app.schemas.ops import AnyOptimize
from app.schemas.questions import read
from app.services import Services
from app.strict_json import dump
from solver.errors import InvalidInput

log = logging.getLogger(__name__)

PATH = "/v1/optimize/batch"

LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "NDJSON: a line of this shape for each problem, in order of completion",
        "content": {NdjsonResponse.media_type: {"schema": line_schema()}},
    }
}

router = APIRouter(tags=["answers"], route_class=ParsedRoute)


@router.post(
    PATH,
    response_class=Response,  # else FastAPI calls every line a string
    responses=LINES,
    summary="The best configurations for up to 1,000 problems, as they are found",
)
@needs(Scope.OPTIMIZE)
async def batch(body: BatchRequest, services: ServicesDep, caller: CallerDep) -> Response:
    """Each problem is answered as if it had been posted to `/v1/optimize` with the members of
    `defaults` that it does not have itself. Lines come in order of completion, `index` says
    whose each is: `answer` has the very bytes of the single answer, `error` the problem
    document. One wrong problem is one line; the others are answered.

    Of all batches together at most one question fewer than there are solver processes is under
    way, so that single questions are not kept waiting. A `time_limit_ms` counts from when
    its problem's turn has come. Problems of a client that has gone are not solved.
    """
    if not 1 <= len(body.problems) <= PROBLEMS_MAX:
        raise InvalidInput(
            "problems",
            f"must be a list of 1 to {PROBLEMS_MAX} problems, got {len(body.problems)}",
        )

    caller.charge(len(body.problems) - 1)  # the request itself was counted as one

    async def line(index: int, problem: Any) -> bytes:
        return await _line(services, index, body.defaults, problem)

    return NdjsonResponse(as_completed(body.problems, line, window=services.settings.workers))


async def _line(services: Services, index: int, defaults: dict[str, Any], problem: Any) -> bytes:
    try:
        answer = await _answer(services, defaults, problem)
    except Exception as error:
        document = from_exception(error)
        if document.status == DEFECT.status:
            log.exception("problem %d of a batch failed", index)
        return b'{"index":%d,"error":%s}\n' % (index, dump(document.body()))
    return b'{"index":%d,"answer":%s}\n' % (index, answer)


async def _answer(services: Services, defaults: dict[str, Any], problem: Any) -> bytes:
    values = {**defaults, **problem} if isinstance(problem, dict) else problem
    asked = read(AnyOptimize, values).root
    question = asked.question(services.host.device)
    async with services.batches:
        given = await services.answering.answer(
            question, arrived_s=time.monotonic(), patient=True, model_only=asked.model_only
        )
    return given.answer.body
