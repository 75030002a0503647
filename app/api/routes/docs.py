"""/docs and /openapi.json: what the service takes and gives, for people and for tools."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from app.api.access import PUBLIC, needs
from app.api.docs_page import POLICY, page

router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
@needs(PUBLIC)
async def openapi(request: Request) -> JSONResponse:
    """The document for tools."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False)
@needs(PUBLIC)
async def docs(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(
        page(request.app.openapi()),
        headers={"Content-Security-Policy": POLICY},
    )
