"""A pydantic error in the user's words: the field, its limit, and what was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from solver.limits import shortened

TYPE_WORDS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
}

Schema = Mapping[str, Any]


def describe(
    fault: Mapping[str, Any], model: type[BaseModel], whole: str = "this request"
) -> tuple[str, str]:
    """(field, message) of one entry of ``ValidationError.errors()`` for ``model``.

    The field is the value's path in the request (``config.tile_m``, ``objective.order.1``);
    the message states the limit as the model's own JSON schema has it. ``whole`` is what the
    model is of, in words.
    """
    path, parent, node = _walk(fault["loc"], _schema(model))
    given, kind = fault["input"], fault["type"]
    if kind.startswith("union_tag"):  # found at the union, to be mended in its discriminator
        tag = node["discriminator"]["propertyName"]
        path, node = [*path, tag], {"enum": list(node["discriminator"]["mapping"])}
        kind = "missing" if kind == "union_tag_not_found" else kind
        given = given.get(tag)
    field = ".".join(path) or "body"
    match kind:
        case "other_op":
            limit = limit_words(node["properties"]["op"])
            return "op", f"must be {limit} here, got {_typed(given['op'])}: {fault['msg']}"
        case "missing" if path:
            return field, f"is required and must be {limit_words(node)}"
        case "missing":
            return field, "must be a JSON object, got nothing"
        case "extra_forbidden":
            siblings = ", ".join(parent.get("properties", {}))
            return field, f"is no field of {whole}; there are {siblings}"
        case _:
            return field, f"must be {limit_words(node)}, got {_typed(given)}"


@cache
def _schema(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _walk(loc: Iterable[int | str], whole: Schema) -> tuple[list[str], Schema, Schema]:
    """The path that ``loc`` is, and the schemas of what holds the value and of the value.

    A schema is empty where the model has none: below a field that it does not know.
    """
    path: list[str] = []
    parent: Schema = {}
    node = whole
    for part in loc:
        if "discriminator" in node:  # pydantic's own step: which of the union's it took
            node = _resolved({"$ref": node["discriminator"]["mapping"][part]}, whole)
            continue
        path.append(_name(str(part)))
        parent = node
        below = parent.get("items") if isinstance(part, int) else None
        node = _resolved(below or parent.get("properties", {}).get(part, {}), whole)
    return path, parent, node


def _name(part: str) -> str:
    """A field's name as a message can carry it: short, and without half of a character."""
    return shortened(part.encode("utf-8", "backslashreplace").decode())


def shown(value: Any) -> str:
    """A given value in a message: its repr, cut where it is long."""
    return shortened(repr(value))


def _typed(value: Any) -> str:
    """A given value with its type, cut where it is long."""
    return "null" if value is None else f"{type(value).__name__} {shown(value)}"


def limit_words(schema: Schema) -> str:
    """What a value of a schema must be, in words: its type and how far it goes."""
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return f"one of {_options(schema)}"
    if schema.get("type") == "array":
        return f"a list of {schema['minItems']} to {schema['maxItems']} {_items(schema['items'])}"
    if schema.get("format") == "date-time":
        return "a moment with its time zone, as 2026-03-01T12:00:00Z"
    words = TYPE_WORDS.get(schema.get("type", "object"), "a JSON object")
    if "maxLength" in schema:
        least, most = schema.get("minLength"), schema["maxLength"]
        length = f"at most {most}" if least is None else f"{least} to {most}"
        words += f" of {most if least == most else length} characters"
    elif schema.get("minLength") == 1:
        words += " that is not empty"
    return words + _range(schema)


def _items(schema: Schema) -> str:
    """What the values of a list must be, in words."""
    if not schema:  # read one by one, each with a message of its own
        return "values"
    if "$ref" in schema:
        return "JSON objects"
    return f"names: {_options(schema)}" if "enum" in schema else f"integers{_range(schema)}"


def _options(schema: Schema) -> str:
    return ", ".join(str(value) for value in schema["enum"] if value is not None)


def _range(schema: Schema) -> str:
    if "maximum" not in schema:
        return ""
    high = _figure(schema["maximum"])
    if "exclusiveMinimum" in schema:
        return f" above {_figure(schema['exclusiveMinimum'])} and at most {high}"
    return f" between {_figure(schema['minimum'])} and {high}"


def _figure(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _resolved(node: Schema, whole: Schema) -> Schema:
    """``node`` with a reference, or a choice between something and null, followed."""
    for option in node.get("anyOf", ()):
        if option.get("type") != "null":
            return {**_resolved(option, whole), **{k: v for k, v in node.items() if k != "anyOf"}}
    if "$ref" in node:
        return whole["$defs"][node["$ref"].rpartition("/")[2]]  # type: ignore[no-any-return]
    return node
