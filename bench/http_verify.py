"""Ask a running service for every problem of some suites, verify each pick over HTTP, record it.

    python -m bench.http_verify --url http://127.0.0.1:8000 --out result.json llm FILE.csv ...

Needs this checkout and rich alone. Exit code 1 where a pick failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from solver.suites import load_suite

POLL_S = 0.05


def call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """POST ``body``, or GET, and the JSON answered. Raises HTTPError for an error status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def verify(url: str, suite: str, problem: dict[str, Any]) -> dict[str, Any]:
    """One problem: the proven answer, then the verdict of a verification of its pick."""
    answer = call(f"{url}/v1/optimize", problem)
    job = call(f"{url}/v1/verifications", problem | {"config": answer["config"]})
    while job["status"] in ("queued", "running"):
        time.sleep(POLL_S)
        job = call(f"{url}/v1/verifications/{job['id']}")
    result = job["result"] or {}
    return {
        "suite": suite,
        **problem,
        "config": answer["config"],
        "proof": answer["proof"]["status"],
        "configurations": answer["proof"]["space"]["configurations"],
        "predicted_us": answer["predicted"]["time_us"],
        "status": job["status"],
        "reason": job["reason"],
        "result": result,
    }


def main() -> int:
    """Run, record, and summarise on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    work = [(Path(s).stem, p) for s in arguments.suites for p in load_suite(s)]
    rows = []
    for suite, p in track(work, "verify", console=Console(stderr=True)):
        rows.append(verify(arguments.url, suite, p.to_dict()))
        arguments.out.write_text(json.dumps({"rows": rows}), "utf-8")
    passed = sum(row["status"] == "passed" for row in rows)
    proven = sum(row["proof"] == "optimal" for row in rows)
    print(json.dumps({"verified": len(rows), "passed": passed, "proven": proven}))
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
