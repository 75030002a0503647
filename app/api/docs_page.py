"""The OpenAPI document as one page, without scripts or files from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from app.schemas.faults import limit_words

Document = Mapping[str, Any]

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of the page."""

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


def page(document: Document) -> str:
    """The page's HTML."""
    return "".join(_page(document))


def _page(document: Document) -> Iterator[str]:
    info = document["info"]
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
    yield f"<style>{STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    yield f"<p>{_words(info['summary'])} {_words(info['description'])}</p>"
    yield '<p>The same as a document for tools: <a href="/openapi.json">/openapi.json</a>.</p>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _operation(method.upper(), path, operation, document)
    yield "<h2>Shapes</h2>"
    for name, shape in document["components"]["schemas"].items():
        yield f"<details id={escape(name)}><summary><code>{escape(name)}</code></summary>"
        yield f"<pre>{escape(json.dumps(shape, indent=2, ensure_ascii=False))}</pre></details>"


def _operation(method: str, path: str, operation: Document, document: Document) -> Iterator[str]:
    yield f"<section><h2><code>{method} {escape(path)}</code></h2>"
    yield f"<p><strong>{_words(operation.get('summary', ''))}.</strong> "
    yield f"{_words(operation.get('description', ''))}</p>"
    yield f"<p>{_security(operation)}</p>"
    parameters = operation.get("parameters", ())
    if parameters:
        yield "<table>"
        for parameter in parameters:
            yield from _parameter(parameter)
        yield "</table>"
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content:
        yield f"<p>Body: {_links(content['schema'])}, for example</p>"
        name = content["schema"]["$ref"].rpartition("/")[2]
        for example in document["components"]["schemas"][name]["examples"]:
            yield f"<pre>{escape(json.dumps(example, indent=2))}</pre>"
    yield "<table>"
    for status, response in operation["responses"].items():
        links = ", ".join(_links(each.get("schema", {})) for each in _contents(response))
        words = _words(response["description"])
        yield f"<tr><td><code>{status}</code><td>{words}<td>{links}"
    yield "</table></section>"


def _words(text: str) -> str:
    """Prose as the document has it, Markdown: an empty line begins a paragraph, names are between
    backticks."""
    paragraphs = "<p>".join(escape(part) for part in re.split(r"\n\s*\n", text))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", paragraphs)


def _security(operation: Document) -> str:
    """Who may ask, in words."""
    options = operation.get("security", ())
    scopes = [scope for option in options for named in option.values() for scope in named]
    if not scopes:
        return "No key is needed."
    scope = f"<code>{escape(scopes[0])}</code>"
    if {} in options:
        return f"No key is needed here; one that is sent must have the scope {scope}."
    return f"Needs an API key of scope {scope}: <code>Authorization: Bearer …</code>."


def _parameter(parameter: Document) -> Iterator[str]:
    yield f"<tr><td><code>{escape(parameter['name'])}</code><td>{escape(parameter['in'])}"
    yield f"<td>{'required' if parameter['required'] else ''}<td>"
    if "content" in parameter:
        schema = parameter["content"]["application/json"]["schema"]
        yield f"JSON text: {_links(schema)}"
    else:
        schema = parameter["schema"]
        yield escape(limit_words(schema))
        if "pattern" in schema:
            yield f" like <code>{escape(schema['pattern'])}</code>"
    if "default" in schema:
        default = json.dumps(schema["default"], ensure_ascii=False).strip('"')
        yield f"; <code>{escape(default)}</code> by default"
    yield f"<td>{_words(parameter.get('description', ''))}"


def _contents(response: Document) -> list[Document]:
    return list(response.get("content", {}).values())


def _links(schema: Document) -> str:
    """Links to the shapes that a schema names: one, or one of several."""
    options = schema.get("oneOf") or schema.get("anyOf") or [schema]
    names = [option.get("$ref", "").rpartition("/")[2] for option in options]
    links = [f'<a href="#{escape(n)}"><code>{escape(n)}</code></a>' for n in names if n]
    return " or ".join(links)
