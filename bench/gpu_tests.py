"""The GPU tests, and a record of every case.

    python -m bench.gpu_tests --out bench/results/h200/gpu_tests.json

Runs pytest over ``tests/gpu`` in a process of its own and records what its JUnit report says of
each case, with the commit that it was run at. ``--files test_norm.py ...`` runs some of them, and
keeps what the record at ``--out`` has of the others, which must be of the same kernels, device and
packages: all of them take ten minutes and more. ``elapsed_s`` is then of all runs; commit, date,
command and exit code are the last one's.
Needs pytest and pytest-timeout, neither z3 nor pydantic.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench.evidence import ROOT, begin, parser_of
from bench.files import write
from kernels.files import check_place, read_json
from solver.device import NOT_PARSED
from solver.errors import InvalidInput

FOLDER = "tests/gpu"
SAME = ("source_hash", "copy_hash", "device", "driver", "nvrtc", "packages")
OUTCOMES = ("passed", "failed", "skipped")
_OUTCOME_OF = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def run_pytest(report: Path, files: Sequence[str]) -> int:
    """Run the GPU tests of some files, or of all, and write their JUnit report; pytest's exit code.

    What pytest prints goes to standard error.
    """
    places = [f"{FOLDER}/{name}" for name in files] or [FOLDER]
    command = [sys.executable, "-m", "pytest", *places, "-m", "gpu", f"--junitxml={report}"]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode


def cases_of(report: Path, commit: str) -> list[dict[str, Any]]:
    """Every case of a JUnit report: name, outcome, seconds, and the commit that it was run at; none
    where pytest wrote no report.

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
                "commit": commit,
            }
        )
    return cases


def counts_of(cases: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many cases had each outcome."""
    counts = Counter(case["outcome"] for case in cases)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def kept(
    out: Path, facts: Mapping[str, Any], files: Sequence[str]
) -> tuple[list[dict[str, Any]], float]:
    """What a run of some files adds to: cases of other files that are still there, and seconds.

    Raises InvalidInput where the record is none, or of other kernels, devices or packages.
    """
    if not files or not out.exists():
        return [], 0.0
    record = read_json(out, "out")
    try:
        other = [name for name in SAME if record[name] != facts[name]]
        cases = [case for case in record["cases"] if _file_of(case) not in files]
        elapsed_s = float(record["elapsed_s"])
    except NOT_PARSED as error:
        raise InvalidInput("out", f"{out} is no record of the GPU tests: {error!r}") from error
    if other:
        raise InvalidInput("out", f"{out} has another {', '.join(other)}: name another file")
    return [case for case in cases if Path(ROOT, FOLDER, _file_of(case)).exists()], elapsed_s


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every case that was not skipped passed, one at least; 1: not; 2: wrong usage; 3: no GPU or
    no family."""
    parser = parser_of("gpu_tests", __doc__)
    parser.add_argument("--files", nargs="+", default=[], help=f"of {FOLDER}; all of them")
    chosen, facts, _ = begin(parser, arguments)
    try:
        check_place(chosen.out)
        for name in chosen.files:
            if not Path(ROOT, FOLDER, name).is_file():
                raise InvalidInput("files", f"{name} is no file of {FOLDER}")
        others, before_s = kept(chosen.out, facts, chosen.files)
    except InvalidInput as error:
        parser.exit(2, f"error: {error}\n")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "junit.xml")
        exit_code = run_pytest(report, chosen.files)
        ran = cases_of(report, facts["commit"])
    cases = others + ran
    counts = counts_of(cases)
    elapsed_s = round(before_s + time.monotonic() - started, 1)
    beside = {"pytest_exit_code": exit_code, "elapsed_s": elapsed_s, "cases": cases}
    write(chosen.out, facts | counts | beside)
    right = exit_code == 0 and counts_of(ran)["passed"] and not counts["failed"]
    return 0 if right else 1


def _file_of(case: Mapping[str, Any]) -> str:
    """The file that a case is of."""
    name: str = case["name"]
    return f"{name.partition('::')[0].rpartition('.')[2]}.py"


if __name__ == "__main__":
    sys.exit(main())
