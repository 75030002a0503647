"""JUnit XML: a test case for each step of each pick."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable

from app.picks.report import Report
from app.picks.reports.text import xml_text
from app.picks.step import Status, Step

TAGS = {Status.FAILS: "failure", Status.LACKS: "error", Status.SKIPPED: "skipped"}


def junit(report: Report) -> bytes:
    """The document. A step that fails is a failure, one that could not be done an error."""
    counts = Counter(step.status for step in report.steps)
    totals = {
        "tests": str(counts.total()),
        "failures": str(counts[Status.FAILS]),
        "errors": str(counts[Status.LACKS]),
        "skipped": str(counts[Status.SKIPPED]),
        "time": f"{report.elapsed_s:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "warpwright check", **totals})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": xml_text(report.picks_file), **totals}
    )
    _cases(suite, report.lock_file, report.whole)
    for pick in report.picks:
        _cases(suite, pick.name, pick.steps)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _cases(suite: ElementTree.Element, of: str, steps: Iterable[Step]) -> None:
    for step in steps:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": xml_text(of),
                "name": xml_text(step.name),
                "time": f"{step.elapsed_s:.3f}",
            },
        )
        words = xml_text(step.words)
        if step.status is Status.HOLDS:
            ElementTree.SubElement(case, "system-out").text = words
            continue
        ended = ElementTree.SubElement(case, TAGS[step.status], {"message": words})
        if step.status is not Status.SKIPPED:
            ended.text = words
