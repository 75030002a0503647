"""What routes ask for, as annotated aliases.

Each is a coroutine though none waits: FastAPI runs a plain function in a thread, which costs a
request more than all else it does here.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from app.keys import Caller
from app.services import Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerDep = Annotated[Caller, Depends(_caller)]
"""Whose key the request came with."""


async def _arrived_s(request: Request) -> float:
    arrived_s: float = request.state.arrived_s
    return arrived_s


ArrivedDep = Annotated[float, Depends(_arrived_s)]
"""When the request's body had arrived, as ``time.monotonic`` has it."""
