"""GET /v1/kernels/{id}: a kernel and its launch to take home."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from app.api.access import needs
from app.api.conditional import caching, has_current
from app.api.deps import ServicesDep
from app.api.documents import problems
from app.api.responses import EncodedResponse, server_timing
from app.api.routes.answers import IF_NONE_MATCH
from app.exports import encoded_kernel
from app.keys import Scope
from app.problem_documents import (
    INVALID,
    LACKS,
    NO_COMPILER,
    NOT_FOUND,
    REFUSED,
    UNAVAILABLE,
)
from app.schemas.kernels import KernelExport
from app.schemas.queries import query_parameters, read_query
from app.schemas.questions import LaunchRequest
from kernels.sources import key_of

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])


@router.get(
    "/{kernel_id}",
    response_model=KernelExport,
    responses=problems(NOT_FOUND, INVALID, REFUSED, NO_COMPILER, LACKS, UNAVAILABLE)
    | {304: {"description": "The caller has this kernel already"}},
    openapi_extra={"parameters": [*query_parameters(LaunchRequest), IF_NONE_MATCH]},
    summary="A kernel to take home: source, cubin, and how it is launched",
)
@needs(Scope.OPTIMIZE)
async def kernel(kernel_id: str, request: Request, services: ServicesDep) -> Response:
    """The kernel whose id an answer has as `kernel.id`. With the problem's members (`m`, `n` and
    `k` at least) and `config` (JSON text; the pick without it) also the launch: a recipe, and
    programs that follow it. They must be of this kernel.

    The answer is a pure function of the address, the sources, the compiler and, without `config`
    or `device`, of the model and the host's GPU; `ETag` changes when it does.
    """
    begun = time.perf_counter()
    key_of(kernel_id)
    launch = None
    if query := request.scope["query_string"]:
        asked = read_query(query, LaunchRequest)
        config = None if asked.config is None else asked.config.config()
        device = services.host.device if asked.device is None else asked.device
        launch = (asked.problem(), config, device)
    reply = await services.pool.ask(encoded_kernel, kernel_id, launch)
    body, etag = reply.value
    validators = ((b"etag", etag), *caching(services.settings.answer_max_age_s))
    if has_current(request.scope["headers"], etag):
        return EncodedResponse(b"", validators, status=304)
    total_ms = (time.perf_counter() - begun) * 1e3
    timings = {"export": reply.solve_ms, "queue": reply.queue_ms, "total": total_ms}
    return EncodedResponse(
        body,
        (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"server-timing", server_timing(timings).encode()),
            *validators,
        ),
    )
