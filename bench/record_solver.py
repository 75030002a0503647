"""Run the solver's benches and record what they print in bench/results/solver/.

    python -m bench.record_solver             # all
    python -m bench.record_solver smem_96 memory

Times depend on the machine: record them on one that does nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "solver"
LLM20 = "bench/suites/llm20.csv"
RANDOM = "bench/suites/random100.csv"


def _solve(suite: str, *, check: bool = False, **wishes: Any) -> list[str]:
    words = ["solve", "--suite", suite, *(["--check"] if check else [])]
    for name, raw in wishes.items():
        words += [f"--{name}", json.dumps(raw)]
    return words


RECORDS: dict[str, list[str]] = {
    "llm": _solve("llm"),
    "check_llm": _solve("llm", check=True),
    "check_random100": _solve(RANDOM, check=True),
    **{
        f"smem_{kib}": _solve("llm", constraints={"smem_bytes": {"max": kib * 1024}})
        for kib in (96, 64, 32)
    },
    **{f"sms_{count}": _solve("llm", constraints={"sms": {"max": count}}) for count in (100, 64)},
    "weighted": _solve(
        LLM20, check=True, objective={"kind": "weighted", "weights": {"time": 1, "smem": 0.05}}
    ),
    "pareto": _solve(
        LLM20,
        check=True,
        objective={"kind": "pareto", "axes": ["time", "wait", "smem"], "within": 1.25},
    ),
    "constraints": ["constraints", "--sets", "500"],
    "memory": ["memory"],
    "strategies": ["strategies"],
    "protocol": ["protocol"],
    "compile": ["compile"],
}


def main() -> None:
    """Run the named benches, all of them without a name."""
    names = sys.argv[1:] or list(RECORDS)
    for name in names:
        if name not in RECORDS:
            raise SystemExit(f"{name}: must be one of {', '.join(RECORDS)}")
    for name in names:
        program = "import sys; from app.cli.main import main; sys.exit(main())"
        words = ["bench", *RECORDS[name], "--json"]
        run = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        if run.returncode:
            raise SystemExit(f"{name}: exit code {run.returncode}\n{run.stdout}")
        (RESULTS / f"{name}.json").write_text(run.stdout, "utf-8")
        print(f"{name}: recorded", flush=True)


if __name__ == "__main__":
    main()
