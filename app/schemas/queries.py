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

from app.ops import GEMM
from app.schemas.faults import shown
from app.schemas.norm_questions import NormQuestionRequest
from app.schemas.ops import AnyQuestion, members
from app.schemas.questions import EXAMPLES, QuestionRequest, Request, read
from app.strict_json import DIGITS_MAX, Refused, load
from solver.errors import InvalidInput
from solver.limits import shortened

INTEGER = re.compile(rf"-?(0|[1-9][0-9]{{0,{DIGITS_MAX - 1}}})")
NUMBER = re.compile(rf"-?(0|[1-9][0-9]{{0,{DIGITS_MAX - 1}}})(\.[0-9]+)?([eE][+-]?[0-9]+)?")
COMPONENTS = "#/components/schemas/{model}"
EXAMPLE = EXAMPLES[0]
"""Of parameters that go together; without it no made-up address would have those it needs."""


Asked = TypeVar("Asked", bound=Request)


def read_question(query: bytes) -> QuestionRequest | NormQuestionRequest:
    """The question of a raw query string, of the op that it names, as ``read_query``."""
    values = _values(query, *members(AnyQuestion).values())
    if "time_limit_ms" in values:
        raise InvalidInput(
            "time_limit_ms", "is not for GET, whose answers are whole; POST /v1/optimize takes it"
        )
    return read(AnyQuestion, values).root


def read_query(query: bytes, model: type[Asked]) -> Asked:
    """The request that a raw query string is.

    Raises InvalidInput for a parameter that is repeated, has no value or can't be read, and
    InvalidRequest for values that break a limit of the model's.
    """
    return model.read(_values(query, model))


def _values(query: bytes, *models: type[Request]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    kinds = _kinds(models)
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
def _kinds(models: tuple[type[Request], ...]) -> dict[str, str]:
    """Each parameter's JSON type; ``json`` for what has members. Where several models have it, it
    is of one type."""
    properties = {
        name: schema
        for model in models
        for name, schema in model.model_json_schema()["properties"].items()
    }
    return {name: _kind(schema) for name, schema in properties.items()}


def _kind(schema: dict[str, Any]) -> str:
    types = [option.get("type") for option in (schema, *schema.get("anyOf", ()))]
    return next((kind for kind in types if kind in _READERS), "json")


def query_parameters(model: type[Request]) -> list[dict[str, Any]]:
    """The parameters as the OpenAPI document has them, from the body's own schema, where there may
    be none of them."""
    return [*_parameters_of(model).values()]


def question_parameters() -> list[dict[str, Any]]:
    """The parameters of every op, each once. The document can't say of a parameter that it depends
    on another: which go together is said in words. Defaults are those of a question that names no
    op, of which there is an example too.
    """
    models = members(AnyQuestion)
    documented = _parameters_of(models[GEMM])
    for name, parameter in documented.items():
        if name in EXAMPLE:
            parameter["example"] = EXAMPLE[name]
        if not all(name in model.model_fields for model in models.values()):
            _say_of(parameter, _goes_with(name, GEMM))
    for op, model in models.items():
        for name, parameter in _parameters_of(model).items() if op != GEMM else ():
            schema, here = parameter.get("schema", {}), documented.get(name)
            usual = schema.pop("default", None)
            if here is None:
                documented[name] = parameter
                if usual is None:
                    _say_of(parameter, _goes_with(name, op))
            elif "enum" in here.get("schema", {}):  # it takes what either does
                both = (*here["schema"]["enum"], *schema["enum"])
                here["schema"]["enum"] = list(dict.fromkeys(both))
            if usual is not None and (here is None or here["schema"].get("default") != usual):
                _say_of(documented[name], f"{usual} by default with op {op}")
    return [*documented.values()]


def _goes_with(name: str, op: str) -> str:
    needed = members(AnyQuestion)[op].model_fields[name].is_required()
    return f"required with op {op}" if needed else f"with op {op}"


def _say_of(parameter: dict[str, Any], words: str) -> None:
    said = parameter.get("description")
    parameter["description"] = words if said is None else f"{said}; {words}"


def _parameters_of(model: type[Request]) -> dict[str, dict[str, Any]]:
    schema = model.model_json_schema(ref_template=COMPONENTS)
    return {name: _parameter(name, node) for name, node in schema["properties"].items()}


def _parameter(name: str, node: dict[str, Any]) -> dict[str, Any]:
    # A query has no null: what that stands for in the body is left out here.
    words = node.pop("description", "").replace("null:", "left out:")
    described = {"description": words} if words else {}
    if _kind(node) == "json":
        schema = without_null(node) if _is_one_or_null(node) else node
        value: dict[str, Any] = {"content": {"application/json": {"schema": schema}}}
    else:
        schema = without_null(node)
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        value = {"schema": schema}
    return {"name": name, "in": "query", "required": False, **described, **value}


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
