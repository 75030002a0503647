"""A question as a query string: the members of POST's body as parameters of the same name.

A value is read as the JSON it would be in the body, so that both mean the same and break the
same limits: integers, numbers, true and false as JSON writes them, names without quotes,
`objective` and `constraints` as JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from app.schemas.faults import shown
from app.schemas.questions import QuestionRequest, Request
from app.strict_json import DIGITS_MAX, Refused, load
from solver.errors import InvalidInput
from solver.limits import shortened

INTEGER = re.compile(rf"-?(0|[1-9][0-9]{{0,{DIGITS_MAX - 1}}})")
NUMBER = re.compile(rf"-?(0|[1-9][0-9]{{0,{DIGITS_MAX - 1}}})(\.[0-9]+)?([eE][+-]?[0-9]+)?")
COMPONENTS = "#/components/schemas/{model}"


Asked = TypeVar("Asked", bound=Request)


def read_question(query: bytes) -> QuestionRequest:
    """The question of a raw query string, as ``read_query``."""
    values = _values(query, QuestionRequest)
    if "time_limit_ms" in values:
        raise InvalidInput(
            "time_limit_ms", "is not for GET, whose answers are whole; POST /v1/optimize takes it"
        )
    return QuestionRequest.read(values)


def read_query(query: bytes, model: type[Asked]) -> Asked:
    """The request that a raw query string is.

    Raises InvalidInput for a parameter that is repeated, has no value or can't be read, and
    InvalidRequest for values that break a limit of the model's.
    """
    return model.read(_values(query, model))


def _values(query: bytes, model: type[Request]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    kinds = _kinds(model)
    for name, text in _parameters(query):
        if name in values:
            raise _refused(name, "must be given once, it is there twice")
        values[name] = _READERS.get(kinds.get(name, "string"), _string)(name, text)
    return values


def _parameters(query: bytes) -> Iterator[tuple[str, str]]:
    for part in query.split(b"&"):
        name, equals, value = part.partition(b"=")
        if not part:
            continue
        if not equals:
            raise _refused(_decoded("query", name), "must have a value, as in name=value")
        yield (field := _decoded("query", name)), _decoded(field, value)


def _decoded(field: str, raw: bytes) -> str:
    try:
        return unquote_plus(raw.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise _refused(field, f"must be percent-encoded UTF-8, got {shown(raw)}") from None


def _refused(name: str, message: str) -> InvalidInput:
    return InvalidInput(shortened(name), message)


def _integer(name: str, text: str) -> Any:
    return int(text) if INTEGER.fullmatch(text) else text


def _number(name: str, text: str) -> Any:
    return float(text) if NUMBER.fullmatch(text) else text


def _string(name: str, text: str) -> Any:
    return text


def _boolean(name: str, text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _json(name: str, text: str) -> Any:
    try:
        return load(text)
    except Refused as refused:
        raise InvalidInput(name, f"must be JSON: {refused}") from None


_READERS: dict[str, Callable[[str, str], Any]] = {
    "integer": _integer,
    "number": _number,
    "string": _string,
    "boolean": _boolean,
    "json": _json,
}
"""What a value is read with that is none of its kind stays text, which its limit then names."""


@cache
def _kinds(model: type[Request]) -> dict[str, str]:
    """Each parameter's JSON type; ``json`` for what has members."""
    properties = model.model_json_schema()["properties"]
    return {name: _kind(schema) for name, schema in properties.items()}


def _kind(schema: dict[str, Any]) -> str:
    types = [option.get("type") for option in (schema, *schema.get("anyOf", ()))]
    return next((kind for kind in types if kind in _READERS), "json")


def query_parameters(
    model: type[Request] = QuestionRequest, *, optional: bool = False
) -> list[dict[str, Any]]:
    """The parameters as the OpenAPI document has them, from the body's own schema; ``optional``:
    there may be none of them.
    """
    schema = model.model_json_schema(ref_template=COMPONENTS)
    return [
        _parameter(name, node, required=name in schema["required"] and not optional)
        for name, node in schema["properties"].items()
    ]


def _parameter(name: str, node: dict[str, Any], *, required: bool) -> dict[str, Any]:
    # A query has no null: what that stands for in the body is left out here.
    words = node.pop("description", "").replace("null:", "left out:")
    described = {"description": words} if words else {}
    if _kind(node) == "json":
        schema = without_null(node) if _is_one_or_null(node) else node
        value: dict[str, Any] = {"content": {"application/json": {"schema": schema}}}
    else:
        value = {"schema": without_null(node)}
    return {"name": name, "in": "query", "required": required, **described, **value}


def _is_one_or_null(node: dict[str, Any]) -> bool:
    options = node.get("anyOf", ())
    return len(options) == 2 and {"type": "null"} in options


def without_null(node: dict[str, Any]) -> dict[str, Any]:
    """The schema of what a query's parameter may hold, which is never null."""
    node = dict(node)
    for option in node.pop("anyOf", ()):
        if option.get("type") != "null":
            node |= option
    if "enum" in node:
        node["enum"] = [value for value in node["enum"] if value is not None]
    if node.get("default", ...) is None:
        del node["default"]
    return node
