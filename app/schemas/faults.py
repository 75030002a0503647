"""A pydantic error in the user's words: the field, its limit, and what was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

TYPE_WORDS = {"integer": "an integer", "string": "a string"}
LONGEST_SHOWN = 60


def describe(fault: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, str]:
    """(field, message) of one entry of ``ValidationError.errors()`` for ``model``.

    The field is the value's path in the request (``config.tile_m``); the message states the
    limit as the model's own JSON schema has it.
    """
    path = [str(part) for part in fault["loc"] if part != "body"]
    whole = model.model_json_schema()
    field = ".".join(_name(part) for part in path) or "body"
    given = fault["input"]
    match fault["type"]:
        case "missing" if path:
            return field, f"is required and must be {_limit(_node(path, whole))}"
        case "missing":
            return field, "must be a JSON object, got nothing"
        case "extra_forbidden":
            siblings = ", ".join(_node(path[:-1], whole).get("properties", {}))
            return field, f"is no field of this request; there are {siblings}"
        case _:
            return field, f"must be {_limit(_node(path, whole))}, got {_typed(given)}"


def _name(part: str) -> str:
    """A field's name as a message can carry it: short, and without half of a character."""
    return shortened(part.encode("utf-8", "backslashreplace").decode())


def shown(value: Any) -> str:
    """A given value in a message: its repr, cut where it is long."""
    return shortened(repr(value))


def shortened(text: str) -> str:
    """``text``, or its first characters and an ellipsis."""
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _typed(value: Any) -> str:
    """A given value with its type, cut where it is long."""
    return "null" if value is None else f"{type(value).__name__} {shown(value)}"


def _limit(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"] if value is not None)
    words = TYPE_WORDS.get(schema.get("type", "object"), "a JSON object")
    if "maxLength" in schema:
        words += f" of at most {schema['maxLength']} characters"
    if "minimum" in schema:
        words += f" between {schema['minimum']} and {schema['maximum']}"
    return words


def _node(path: list[str], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of the field at ``path``; empty where the model has none."""
    node = whole
    for part in path:
        node = _resolved(node.get("properties", {}).get(part, {}), whole)
    return node


def _resolved(node: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """``node`` with a reference, or a choice between something and null, followed."""
    for option in node.get("anyOf", ()):
        if option.get("type") != "null":
            return {**_resolved(option, whole), **{k: v for k, v in node.items() if k != "anyOf"}}
    if "$ref" in node:
        return whole["$defs"][node["$ref"].rpartition("/")[2]]  # type: ignore[no-any-return]
    return node
