"""The page for people: a form whose fields, limits and options are those of POST /v1/optimize.

The frame, the style, the script and the icon are files of ``app/web``, sent as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from string import Template
from typing import Any

from app import __version__
from app.ops import GEMM, NORM
from app.schemas.ops import AnyOptimize, members

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; require-trusted-types-for 'script'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of the page."""

OPS = {GEMM: "a product of matrices", NORM: "a norm and an activation of rows"}

FIELDS = {
    GEMM: ("m", "n", "k", "dtype", "layout", "device"),
    NORM: ("rows", "width", "dtype", "norm", "activation", "degree", "device"),
}
FURTHER = {
    GEMM: ("out_dtype", "cache", "model", "top_k", "constraints"),
    NORM: ("cache", "top_k"),
}
"""The fields that can be left as they are, folded away."""

UNSET = {"device": "the host's GPU, else h200", "out_dtype": "as dtype"}
"""What null stands for, by field."""

SHOWN = {"top_k": 4}
"""What a field shows at first where that is neither its default nor the first example's."""

Schema = Mapping[str, Any]


def web_file(name: str) -> bytes:
    """A file of ``app/web``."""
    return (resources.files("app") / "web" / name).read_bytes()


def page(keys_required: bool) -> str:
    """The page's HTML; the field for a key is there at once where ``keys_required``."""
    return Template(web_file("index.html").decode()).substitute(
        version=escape(__version__),
        ops="".join(_op(op, words) for op, words in OPS.items()),
        forms="".join("".join(_form(op)) for op in OPS),
        key_hidden="" if keys_required else " hidden",
    )


def _op(op: str, words: str) -> str:
    checked = " checked" if op == GEMM else ""
    return f'<label><input type="radio" name="op" value="{op}"{checked}> {escape(words)}</label>'


def _form(op: str) -> Iterator[str]:
    """The fields of an op."""
    schema = members(AnyOptimize)[op].model_json_schema()
    hidden = "" if op == GEMM else " hidden disabled"
    yield f'<fieldset data-op="{op}"{hidden}><div class="fields">'
    yield from (_field(op, name, schema) for name in FIELDS[op])
    yield '</div><details><summary>Further</summary><div class="fields">'
    yield from (_field(op, name, schema) for name in FURTHER[op])
    yield "</div></details></fieldset>"


def _field(op: str, name: str, whole: Schema) -> str:
    """A field with its label, its limits in words, and room for what is wrong with it."""
    schema = whole["properties"][name]
    default = schema.get("default")
    shown = SHOWN.get(name, whole["examples"][0].get(name, default))
    id_ = f"{op}-{name}"
    attributes = (
        f'id="{id_}" name="{name}" data-default="{_value(default)}" '
        f'aria-describedby="{id_}-hint {id_}-error"'
    )
    hint = schema.get("description", "")
    if name in UNSET:
        hint = hint.partition(";")[0]
    wide = ""
    if "enum" in schema:
        options = "".join(_option(name, each, each == shown) for each in schema["enum"])
        control = f'<select {attributes} data-type="string">{options}</select>'
    elif schema.get("type") == "integer":
        hint += f"; {schema['minimum']} to {schema['maximum']}"
        control = (
            f'<input {attributes} data-type="integer" inputmode="numeric" spellcheck="false" '
            f'value="{_value(shown)}">'
        )
    else:
        wide = " wide"
        hint += ', as JSON: {"smem_bytes": {"max": 98304}}'
        control = f'<textarea {attributes} data-type="json" rows="3" spellcheck="false"></textarea>'
    return (
        f'<div class="field{wide}"><label for="{id_}">{name}</label>{control}'
        f'<small id="{id_}-hint">{escape(hint.lstrip("; "))}</small>'
        f'<p class="error" id="{id_}-error"></p></div>'
    )


def _option(name: str, value: str | None, selected: bool) -> str:
    words = UNSET[name] if value is None else value
    chosen = " selected" if selected else ""
    return f'<option value="{_value(value)}"{chosen}>{escape(words)}</option>'


def _value(value: Any) -> str:
    """A default as the form has it; empty for none, and for what is written as JSON."""
    return "" if value is None or isinstance(value, dict) else escape(str(value))
