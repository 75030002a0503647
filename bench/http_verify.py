"""Ask a running service for every problem of some suites, verify each pick over HTTP, record it.

    python -m bench.http_verify --url http://127.0.0.1:8000 --out result.json llm FILE.csv ...

The record says what the service says of itself in the results of its verifications: device,
driver, NVRTC, protocol, and of the kernels' source hash the 12 digits that kernel ids carry. The
service does not say which packages or which commit it runs: packages are left out, and the
commit, which need not be this client's, is there where ``--commit`` names it.

Needs this checkout and rich alone. Exit code 1 where a pick failed, or where the results do not
agree on one of these facts; 3 where no service answers or it refuses a request, as one without a
GPU does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from bench.files import write
from solver.suites import load_suite

POLL_S = 0.05
WHAT = (
    "POST /v1/optimize and POST /v1/verifications to the running service, by bench/http_verify.py"
)
MISSING = 3
FACTS = ("device", "driver", "nvrtc", "protocol", "source_hash")


class Refused(Exception):
    """The service does not do what it was asked, or is not there."""


def call(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """POST ``body``, or GET, and the JSON answered. Raises Refused, with the reason, for an error
    status and where nobody answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        raise Refused(f"{url}: {error.code}, {_detail(error.read()) or error.reason}") from error
    except OSError as error:
        raise Refused(
            f"{url}: no answer ({getattr(error, 'reason', error)}); is `warpwright serve` running"
            " there, and is --url its address?"
        ) from error


def _detail(body: bytes) -> str | None:
    """What a problem document says went wrong; None where the body is none."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):
        return None


def verify(url: str, suite: str, problem: dict[str, Any], top_k: int = 1) -> dict[str, Any]:
    """One problem: the proven answer of the model, then the verdict of a verification of its pick,
    raced against alternatives where ``top_k`` is above 1; then ``answered`` and ``source`` are what
    is answered from then on."""
    answer = call(f"{url}/v1/optimize", problem | {"model_only": True})
    asked = {"config": answer["config"]} if top_k == 1 else {"top_k": top_k}
    job = call(f"{url}/v1/verifications", problem | asked)
    while job["status"] in ("queued", "running"):
        time.sleep(POLL_S)
        job = call(f"{url}/v1/verifications/{job['id']}")
    result = job["result"] or {}
    learnt = {}
    if top_k > 1:
        after = call(f"{url}/v1/optimize", problem)
        learnt = {"answered": after["config"], "source": after["source"]}
    return {
        "suite": suite,
        **problem,
        "config": answer["config"],
        "proof": answer["proof"]["status"],
        "configurations": answer["proof"]["space"]["configurations"],
        "predicted_us": answer["predicted"]["time_us"],
        "status": job["status"],
        "reason": job["reason"],
        **learnt,
        "result": result,
    }


def facts_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the results of all rows say of the service; a fact that none says is left out.

    Raises SystemExit where two say different things: one record can't be of both.
    """
    facts: dict[str, Any] = {}
    for row in rows:
        kernel_id = row["result"].get("kernel_id") or ""
        said = {**row["result"], "source_hash": kernel_id.rpartition("-")[2] or None}
        for name in FACTS:
            value = said.get(name)
            if value is not None and facts.setdefault(name, value) != value:
                raise SystemExit(f"error: results of {name} {facts[name]} and of {name} {value}")
    return facts


def main() -> int:
    """Run, record, and summarise on standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--top-k", type=int, default=1, help="race each pick against alternatives, so many in all"
    )
    parser.add_argument("--commit", help="what the service runs, which it does not say")
    arguments = parser.parse_args()
    work = [(Path(s).stem, p) for s in arguments.suites for p in load_suite(s)]
    beside = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "what": WHAT}
    if arguments.commit is not None:
        beside["commit"] = arguments.commit
    beside |= {"command": " ".join(["python -m bench.http_verify", *sys.argv[1:]])}
    rows: list[dict[str, Any]] = []
    for suite, p in track(work, "verify", console=Console(stderr=True)):
        try:
            rows.append(verify(arguments.url, suite, p.to_dict(), arguments.top_k))
        except Refused as error:
            print(f"error: {error}", file=sys.stderr)
            return MISSING
        counts = {"planned": len(work), "complete": len(rows) == len(work)}
        write(arguments.out, {**facts_of(rows), **beside, **counts, "rows": rows})
    unsaid = [name for name in FACTS if name not in facts_of(rows)]
    if unsaid:
        print(f"no result says, and the record leaves out: {', '.join(unsaid)}", file=sys.stderr)
    passed = sum(row["status"] == "passed" for row in rows)
    proven = sum(row["proof"] == "optimal" for row in rows)
    print(json.dumps({"verified": len(rows), "passed": passed, "proven": proven}))
    return 0 if passed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
