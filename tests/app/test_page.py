"""The page for people: what is sent, under which headers, and that it ships."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hatchling.builders.wheel import WheelBuilder

from app.api.ask_page import FIELDS, FURTHER, page
from app.api.routes.page import STATIC
from app.schemas.ops import AnyOptimize, members
from tests.app.key_tools import keyed_service

ROOT = Path(__file__).parents[2]
PATHS = ["/", *(f"/static/{name}" for name in STATIC)]


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and what stands between script or style tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.inline += data.strip()

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


TAGS = Tags(page(keys_required=False))


@pytest.fixture(scope="module")
def closed() -> Iterator[TestClient]:
    with keyed_service() as client:
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_it_is_sent_protected_and_to_whoever_asks(closed: TestClient, path: str) -> None:
    response = closed.get(path)
    assert response.status_code == 200
    media_type = STATIC.get(path.rpartition("/")[2], "text/html")
    assert response.headers["content-type"] == f"{media_type}; charset=utf-8"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "private, no-cache"
    assert len(response.headers.get_list("content-security-policy")) == 1


def test_the_pages_policy_lets_in_its_own_files_alone(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert (
        client.get("/static/page.js")
        .headers["content-security-policy"]
        .startswith("default-src 'none'")
    )


def test_it_has_no_inline_script_or_style_and_nothing_from_elsewhere() -> None:
    assert TAGS.inline == ""
    for tag, attributes in TAGS.tags:
        assert not {name for name in attributes if name == "style" or name.startswith("on")}, tag
    sent = {"docs"}
    named = {each[name] for _, each in TAGS.tags for name in ("src", "href") if name in each}
    assert named == sent | {path.removeprefix("/") for path in PATHS[1:]}
    for name in STATIC:
        text = (resources.files("app") / "web" / name).read_text("utf-8")
        assert not re.search(r"(?:url|import)\s*\(|innerHTML|\beval\b", text), name
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, name


@pytest.mark.parametrize("path", PATHS)
def test_what_a_browser_has_is_not_sent_again(client: TestClient, path: str) -> None:
    first = client.get(path)
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get(path, headers={"if-none-match": '"0"'}).content == first.content


@pytest.mark.parametrize("path", PATHS)
def test_nothing_can_be_posted_to_it(client: TestClient, path: str) -> None:
    response = client.post(path, json={})
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


def test_the_document_for_tools_has_none_of_it(client: TestClient) -> None:
    assert not set(PATHS) & set(client.get("/openapi.json").json()["paths"])


@pytest.mark.parametrize("op", FIELDS)
def test_every_field_is_the_requests_with_its_options_and_a_label(op: str) -> None:
    properties = members(AnyOptimize)[op].model_json_schema()["properties"]
    labels = {each["for"] for each in TAGS.named("label") if "for" in each}
    ids = {each["id"] for _, each in TAGS.tags if "id" in each}
    controls = {
        each["id"]: each
        for tag in ("input", "select", "textarea")
        for each in TAGS.named(tag)
        if "id" in each
    }
    for name in (*FIELDS[op], *FURTHER[op]):
        control = controls[f"{op}-{name}"]
        assert control["name"] == name in properties
        assert control["id"] in labels
        assert set((control["aria-describedby"] or "").split()) <= ids
    html = page(keys_required=False)
    for name, schema in properties.items():
        if name in FIELDS[op] and "enum" in schema:
            select = html.partition(f'<select id="{op}-{name}"')[2].partition("</select>")[0]
            shown = re.findall(r'<option value="([^"]*)"', select)
            assert shown == ["" if each is None else each for each in schema["enum"]]


def test_every_id_is_there_once() -> None:
    ids = [attributes["id"] for _, attributes in TAGS.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) >= 20


def test_a_key_is_asked_for_at_once_where_one_is_needed(
    client: TestClient, closed: TestClient
) -> None:
    def hidden(html: str) -> bool:
        (key,) = (each for each in Tags(html).named("div") if each.get("id") == "key")
        return "hidden" in key

    assert hidden(client.get("/").text)
    assert not hidden(closed.get("/").text)


def test_every_bound_has_words() -> None:
    from app.schemas.parts import Bound, Breakdown

    script = (ROOT / "app" / "web" / "page.js").read_text("utf-8")
    words = re.search(r"const BOUNDS = \{(.*?)\};", script, re.DOTALL)
    parts = re.search(r"const PARTS = \{(.*?)\};", script)
    assert words is not None
    assert parts is not None
    assert re.findall(r"^  (\w+):", words[1], re.MULTILINE) == list(Bound.__args__)
    named = {f"{name}_us" for name in re.findall(r"(\w+): ", parts[1])}
    assert named == set(Breakdown.model_fields)


def test_its_files_are_in_the_wheel_and_in_what_the_image_is_built_of() -> None:
    builder = WheelBuilder(str(ROOT))
    shipped = {Path(file.distribution_path) for file in builder.recurse_included_files()}
    names = {"index.html", *STATIC}
    assert {Path("app/web") / name for name in names} <= shipped
    assert {path.name for path in (ROOT / "app" / "web").iterdir()} == names
    taken = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert "!app" in taken
    assert not any("web" in line or "html" in line for line in taken)
    assert "COPY . /build/source" in (ROOT / "Dockerfile").read_text("utf-8")
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    assert "app" in packages["build"]["targets"]["wheel"]["packages"]
