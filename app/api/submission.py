"""How a job of any kind is handed in: once for each idempotency key, and within quota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Response
from starlette.concurrency import run_in_threadpool

from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.job_routes import JobKind
from app.api.request_headers import IDEMPOTENCY_PARAMETER, IdempotencyKeyDep
from app.keys import Caller
from app.logs import REQUEST_ID
from app.problem_documents import NO_FAMILY, NO_GPU, QUEUE_FULL, QUOTA, UNAVAILABLE
from app.quota import check_quota
from app.services import Services
from app.store.jobs import question_sha256


def submitting(kind: JobKind) -> dict[str, Any]:
    """What the routes that take jobs have in common, for their decorators."""
    earlier = {"model": kind.shape, "description": "The job of an earlier such request"}
    return {
        "status_code": 202,
        "response_model": kind.shape,
        "response_description": "The job, which waits for the GPU",
        "responses": problems(NO_FAMILY, QUOTA, QUEUE_FULL, NO_GPU, UNAVAILABLE) | {200: earlier},
        "openapi_extra": {"parameters": [IDEMPOTENCY_PARAMETER]},
    }


@dataclass(frozen=True, slots=True)
class Submission:
    """A request that hands in a job: where to, whose it is, and its name."""

    services: Services
    caller: Caller
    idempotency_key: str | None

    async def submit(
        self,
        kind: JobKind,
        question: Mapping[str, Any],
        *,
        priority: str,
        check: Callable[[], object],
        request: Callable[[], Awaitable[Mapping[str, Any]]],
    ) -> Response:
        """The answer with the job: a fresh one, or that of an earlier request of this name.

        ``question`` is what makes two requests one. ``check`` raises where it is none, before that
        costs quota; ``request`` makes of it what the job keeps.
        """
        services, caller = self.services, self.caller
        services.gpu.require_open()
        sha256 = question_sha256(kind.name, question)
        earlier = await run_in_threadpool(
            services.jobs.repeated, caller.key_id, self.idempotency_key, sha256
        )
        if earlier is not None:
            return kind.answer(earlier, 200)
        await run_in_threadpool(check)
        await run_in_threadpool(check_quota, caller, services.database, services.metrics)
        job, fresh = await run_in_threadpool(
            services.jobs.submit,
            kind.name,
            await request(),
            sha256=sha256,
            priority=priority,
            owner=caller.key_id,
            idempotency_key=self.idempotency_key,
            request_id=REQUEST_ID.get(),
        )
        services.gpu.wake()
        return kind.answer(job, 202 if fresh else 200)


async def _submission(
    services: ServicesDep, caller: CallerDep, idempotency_key: IdempotencyKeyDep
) -> Submission:
    return Submission(services, caller, idempotency_key)


SubmissionDep = Annotated[Submission, Depends(_submission)]
