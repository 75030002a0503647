"""The GPU tests, and a record of every case.

    python -m bench.gpu_tests --out bench/results/h200/gpu_tests.json

Runs pytest over ``tests/gpu`` in a process of its own and records what its JUnit report says of
each case. Needs pytest and pytest-timeout, neither z3 nor pydantic.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.evidence import ROOT, begin, parser_of
from bench.files import write

FOLDER = "tests/gpu"
OUTCOMES = ("passed", "failed", "skipped")
_OUTCOME_OF = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def run_pytest(report: Path) -> int:
    """Run the GPU tests and write their JUnit report; pytest's exit code.

    What pytest prints goes to standard error.
    """
    command = [sys.executable, "-m", "pytest", FOLDER, "-m", "gpu", f"--junitxml={report}"]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode


def cases_of(report: Path) -> list[dict[str, Any]]:
    """Every case of a JUnit report: name, outcome, seconds; none where pytest wrote no report.

    A case whose set-up or tear-down went wrong failed, as did a file that can't be collected.
    """
    if not report.exists():
        return []
    cases = []
    for case in ElementTree.parse(report).iter("testcase"):
        ends = [_OUTCOME_OF[child.tag] for child in case if child.tag in _OUTCOME_OF]
        cases.append(
            {
                "name": "::".join(filter(None, (case.get("classname"), case.get("name")))),
                "outcome": "failed" if "failed" in ends else ends[0] if ends else "passed",
                "seconds": float(case.get("time", "0")),
            }
        )
    return cases


def counts_of(cases: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many cases had each outcome."""
    counts = Counter(case["outcome"] for case in cases)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every case that was not skipped passed, one at least; 1: not; 3: no GPU or no family."""
    chosen, facts, _ = begin(parser_of("gpu_tests", __doc__), arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        exit_code = run_pytest(report)
        cases = cases_of(report)
    counts = counts_of(cases)
    elapsed_s = round(time.monotonic() - started, 1)
    beside = {"pytest_exit_code": exit_code, "elapsed_s": elapsed_s, "cases": cases}
    write(chosen.out, facts | counts | beside)
    return 0 if exit_code == 0 and counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
