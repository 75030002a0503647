"""HEAD: what GET answers, without the body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Asks every route that takes GET as if HEAD were one, so that no route can forget it
    (RFC 9110 asks it of all), and sends the status and the headers alone.

    Stands inside of what refuses requests, which knows HEAD by itself: ``AccessTable`` has it
    under GET's scope.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _headers_alone(send)
        await self._app(scope, receive, send)


def _headers_alone(send: Send) -> Send:
    """``send`` that ends the answer with its headers: a stream then sees that its caller has
    gone, and what it sends until then goes nowhere.
    """
    ended = False

    async def once(message: Message) -> None:
        nonlocal ended
        if not ended and message["type"] == "http.response.start":
            ended = True
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return once
