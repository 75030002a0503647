"""/docs says of every operation what /openapi.json does: parameters, limits, keys, responses."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from app.api.docs_page import page
from app.main import create_app
from app.settings import Settings
from app.store.database import Database


class Sections(HTMLParser):
    """The text of each section, by its heading: paragraphs, and tables as rows of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self.text: dict[str, str] = {}
        self._heading = ""
        self._in_heading = False
        self._in_table = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("section", "h2"):
            self._heading = ""
        self._in_heading = tag == "h2" or (self._in_heading and tag == "code")
        self._in_table = tag == "table" or self._in_table
        if tag == "tr":
            self.rows.setdefault(self._heading, []).append([])
        elif tag == "td":
            self.rows[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "h2":
            self._in_heading = False
        elif tag == "table":
            self._in_table = False

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self._heading += data
            return
        self.text[self._heading] = self.text.get(self._heading, "") + data
        if self._in_table:
            self.rows[self._heading][-1][-1] += data


def documented(**settings: Any) -> tuple[dict[str, Any], Sections]:
    """The document of a service with these settings, and its page."""
    app = create_app(Settings(**settings), Database(Settings().database))  # never opened
    sections = Sections()
    sections.feed(page(app.openapi()))
    return app.openapi(), sections


DOCUMENT, PAGE = documented(require_keys="always")
OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
PARAMETERS = [
    (heading, parameter)
    for heading, operation in OPERATIONS
    for parameter in operation.get("parameters", ())
]


def plain(words: str) -> str:
    """Prose of the document without its markup."""
    return words.replace("`", "")


def row(heading: str, first: str) -> list[str]:
    (found,) = (cells for cells in PAGE.rows[heading] if cells[0] == first)
    return found


def test_there_is_much_to_say() -> None:
    assert len(OPERATIONS) >= 15
    assert len(PARAMETERS) >= 30


@pytest.mark.parametrize(
    ("heading", "parameter"), PARAMETERS, ids=lambda it: it if isinstance(it, str) else it["name"]
)
def test_a_parameter_is_there_with_its_limits(heading: str, parameter: dict[str, Any]) -> None:
    where, required, limit, words = row(heading, parameter["name"])[1:]
    assert where == parameter["in"]
    assert required == ("required" if parameter["required"] else "")
    assert words == plain(parameter.get("description", ""))
    if "content" in parameter:
        assert limit.startswith("JSON text: ")
        return
    schema = parameter["schema"]
    for member in ("minimum", "maximum", "maxLength", "pattern", "default"):
        if member in schema and "enum" not in schema:
            assert json.dumps(schema[member], ensure_ascii=False).strip('"') in limit
    for value in schema.get("enum", ()):
        assert value in limit


@pytest.mark.parametrize("parameter", [p for _, p in PARAMETERS if p["in"] == "query"])
def test_a_querys_parameter_has_limits_and_is_never_null(parameter: dict[str, Any]) -> None:
    schema = parameter.get("schema")
    if schema is None:
        assert list(parameter["content"]) == ["application/json"]
        return
    assert "anyOf" not in schema
    assert None not in schema.get("enum", ())
    if schema["type"] == "string":
        assert {"enum", "maxLength", "format"} & set(schema)
    elif schema["type"] != "boolean":
        assert {"minimum", "maximum"} <= set(schema)


@pytest.mark.parametrize(("heading", "operation"), OPERATIONS, ids=[each for each, _ in OPERATIONS])
def test_the_key_and_every_response_are_there(heading: str, operation: dict[str, Any]) -> None:
    scopes = [scope for each in operation.get("security", ()) for scope in each["key"]]
    assert len(scopes) <= 1
    for scope in scopes:
        assert f"an API key of scope {scope}" in PAGE.text[heading]
    assert ("No key is needed." in PAGE.text[heading]) is (not scopes)
    for status, response in operation["responses"].items():
        assert plain(response["description"]) in row(heading, status)[1]


def test_where_no_key_is_needed_the_page_says_so() -> None:
    _, sections = documented()
    assert "No key is needed here" in sections.text["POST /v1/optimize"]
    assert "must have the scope optimize" in sections.text["POST /v1/optimize"]


def test_names_stand_as_code_and_paragraphs_apart() -> None:
    assert "`" not in "".join(PAGE.text[heading] for heading, _ in OPERATIONS)
    html = page(DOCUMENT)
    described = DOCUMENT["paths"]["/v1/optimize"]["post"]["description"]
    assert "`objective`" in described
    assert "<code>objective</code>" in html
    first, _, second = described.partition("\n\n")
    assert first.split()[-1] + "<p>" + second.split()[0] in html


def test_words_are_escaped_inside_names_too() -> None:
    described = {**DOCUMENT["info"], "description": "`a<b>` & c"}
    assert "<code>a&lt;b&gt;</code> &amp; c</p>" in page({**DOCUMENT, "info": described})
