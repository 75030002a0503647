"""/docs: the OpenAPI document as one page, without scripts or files from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse

from app.api.access import PUBLIC, needs

router = APIRouter()

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { background: #f4f4f4; padding: .75rem; overflow: auto }
section { border-top: 1px solid #ccc; padding: .5rem 0 1rem }
table { border-collapse: collapse } td { padding: .1rem 1.5rem .1rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } pre { background: #262626 } a { color: #8bf }
}
"""


@router.get("/openapi.json", include_in_schema=False)
@needs(PUBLIC)
async def openapi(request: Request) -> JSONResponse:
    """The document for tools."""
    return JSONResponse(request.app.openapi())


@router.get("/docs", include_in_schema=False)
@needs(PUBLIC)
async def docs(request: Request) -> HTMLResponse:
    """The page."""
    schema: dict[str, Any] = request.app.openapi()
    return HTMLResponse(
        "".join(_page(schema)),
        headers={"Content-Security-Policy": POLICY},
    )


def _page(schema: Mapping[str, Any]) -> Iterator[str]:
    info = schema["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
    yield f"<style>{STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    yield f"<p>{escape(info['summary'])}</p>"
    yield '<p>The same as a document for tools: <a href="/openapi.json">/openapi.json</a>.</p>'
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method.upper(), path, operation, schema)
    yield "<h2>Shapes</h2>"
    for name, shape in schema["components"]["schemas"].items():
        yield f"<details id={escape(name)}><summary><code>{escape(name)}</code></summary>"
        yield f"<pre>{escape(json.dumps(shape, indent=2, ensure_ascii=False))}</pre></details>"


def _operation(
    method: str, path: str, operation: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<section><h2><code>{method} {escape(path)}</code></h2>"
    yield f"<p><strong>{escape(operation.get('summary', ''))}.</strong> "
    yield f"{escape(operation.get('description', ''))}</p>"
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        name = content["schema"]["$ref"].rpartition("/")[2]
        for example in schema["components"]["schemas"][name].get("examples", ()):
            yield f"<p>Body: {_link(content)}, for example</p>"
            yield f"<pre>{escape(json.dumps(example, indent=2))}</pre>"
    yield "<table>"
    for status, response in operation["responses"].items():
        links = ", ".join(_link(content) for content in response.get("content", {}).values())
        words = escape(response["description"])
        yield f"<tr><td><code>{status}</code><td>{words}<td>{links}"
    yield "</table></section>"


def _link(content: Mapping[str, Any]) -> str:
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>' if name else ""
