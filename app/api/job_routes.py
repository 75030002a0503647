"""What every kind of job has beside its own way in: a list, a state, a way out, events.

No ``from __future__ import annotations`` here: the endpoints' types are those of the kind.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from app.api.access import needs
from app.api.deps import CallerDep, ServicesDep
from app.api.documents import problems
from app.api.parameters import documented, query_of
from app.api.request_headers import LAST_EVENT_ID, LastEventDep, header_parameter
from app.api.responses import json_response
from app.keys import Scope
from app.problem_documents import ENDED, INVALID, NOT_FOUND, UNAVAILABLE
from app.schemas.service import JobPageQuery
from app.store.job import Job


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job as its routes have it: its name, its scope, the shapes of one and of a page,
    in which jobs are under ``plural``."""

    name: str
    plural: str
    scope: Scope
    shape: Any
    page: type[BaseModel]

    def answer(self, job: Job, status: int) -> Response:
        """A job, and where to follow it."""
        location = f"/v1/{self.plural}/{job.id}"
        return json_response(job.to_dict(), status=status, headers={"Location": location})


def add_job_routes(router: APIRouter, kind: JobKind) -> None:
    """Add to a router what callers may do with jobs of a kind that were handed in."""
    parameter = f"{kind.name}_id"
    JobId = Annotated[str, Path(alias=parameter)]

    @router.get(
        "",
        response_model=kind.page,
        responses=problems(INVALID, UNAVAILABLE),
        openapi_extra=documented(JobPageQuery),
        summary=f"{kind.plural.capitalize()}, the newest first",
    )
    @needs(kind.scope)
    def page(
        query: Annotated[JobPageQuery, query_of(JobPageQuery)],
        services: ServicesDep,
        caller: CallerDep,
    ) -> Response:
        """`next` is the `after` of the page that follows. Only your own are listed, unless you have
        the scope `admin`."""
        jobs, following = services.jobs.page(
            owner=caller.owner,
            kind=kind.name,
            status=query.status,
            after=query.after,
            limit=query.limit,
        )
        return json_response({kind.plural: [job.to_dict() for job in jobs], "next": following})

    @router.get(
        f"/{{{parameter}}}",
        response_model=kind.shape,
        responses=problems(NOT_FOUND, UNAVAILABLE),
        summary=f"Where a {kind.name} stands",
    )
    @needs(kind.scope)
    def read(job_id: JobId, services: ServicesDep, caller: CallerDep) -> Response:
        """`queued`, `running`, then `passed`, `failed` with a reason, or `cancelled`."""
        return json_response(services.jobs.get(job_id, caller.owner, kind.name).to_dict())

    @router.delete(
        f"/{{{parameter}}}",
        response_model=kind.shape,
        response_description="It waited, and is cancelled",
        responses=problems(NOT_FOUND, ENDED, UNAVAILABLE)
        | {202: {"model": kind.shape, "description": "It runs, and is being ended"}},
        summary=f"Cancel a {kind.name}",
    )
    @needs(kind.scope)
    def cancel(job_id: JobId, services: ServicesDep, caller: CallerDep) -> Response:
        """One that waits is `cancelled` at once. The process of one that runs is killed, and it is
        `cancelled` when that has gone. One that has ended gets 409.
        """
        job = services.gpu.cancel(job_id, caller.owner, kind.name)
        return kind.answer(job, 200 if job.ended is not None else 202)

    async def place(job_id: JobId, services: ServicesDep, caller: CallerDep) -> AsyncIterator[None]:
        """A place among those who follow events, until the answer has ended."""
        await run_in_threadpool(services.jobs.get, job_id, caller.owner, kind.name)
        with services.streams.place():
            yield

    following: dict[str, Any] = {
        "parameters": [
            header_parameter(
                LAST_EVENT_ID,
                "the id of the last event you have: those after it follow",
                "^[0-9]{1,9}$",
            )
        ]
    }

    @router.get(
        f"/{{{parameter}}}/events",
        response_class=EventSourceResponse,
        responses=problems(NOT_FOUND, INVALID, UNAVAILABLE),
        openapi_extra=following,
        dependencies=[Depends(place)],
        summary=f"Follow a {kind.name}",
    )
    @needs(kind.scope)
    async def events(
        job_id: JobId, services: ServicesDep, last_event: LastEventDep
    ) -> AsyncIterator[ServerSentEvent]:
        """Server-sent events from the job's beginning: `status` when it changes, `progress` while
        it runs. The stream ends with the job.
        """
        async for event in services.streams.follow(job_id, last_event):
            yield ServerSentEvent(id=str(event.number), event=event.name, data=event.data)
