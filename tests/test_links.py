"""Links between the project's own pages lead somewhere, down to the heading."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a page: words with hyphens, repeats numbered."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def broken(page: Path) -> list[str]:
    """Targets of a page's relative links at which there is no file, or no such heading in it."""
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text("utf-8"))):
        file, _, anchor = target.partition("#")
        if re.match(r"\w+:", file):
            continue
        there = (page.parent / file).resolve() if file else page
        if not there.exists() or (
            anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8"))
        ):
            lost.append(target)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page) == []


def test_a_link_to_no_file_or_no_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    headings = "# `GET /v1` twice\n# b\n# b\n"
    page.write_text(headings + "[1](#b-1) [2](#c) [3](gone.md) [4](#get-v1-twice)", "utf-8")
    assert broken(page) == ["#c", "gone.md"]
