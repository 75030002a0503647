"""What ``kernels.gemm`` costs and gives on a GPU: calls, threads, and torch.mm beside it.

    python -m bench.gpu_gemm --out bench/results/h200/gemm.json --suite llm

Overhead is CPU time of a call after the first; products beside ``torch.mm`` are GPU time with the
operands where the calls before left them, warm, in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.evidence import START_S, begin, parser_of, progress_bar
from bench.files import write
from bench.gemm_work import at_once, beside_torch, overhead
from kernels.process import OutcomeKind, Worker
from kernels.verify import failure_of
from solver.suites import load_suite

DEADLINE_S = 120.0
THREADS, STREAMS, CALLS = 20, 4, 20
Step = tuple[str, Callable[..., Any], tuple[Any, ...]]


def steps(suite: str) -> Iterator[Step]:
    """What is measured: the record's member, the function, its arguments."""
    for library in ("cupy", "torch"):
        yield "overhead", overhead, (library,)
        yield "at_once", at_once, (library, THREADS, STREAMS, CALLS)
    for problem in load_suite(suite):
        yield "beside_torch", beside_torch, (problem.m, problem.n, problem.k)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: everything was measured and right; 1: some was not; 2: no such suite; 3: no GPU."""
    parser = parser_of("gpu_gemm", __doc__)
    parser.add_argument("--suite", default="llm", help="problems beside torch.mm (%(default)s)")
    chosen, facts, _ = begin(parser, arguments)
    planned = [*steps(chosen.suite)]
    found: dict[str, list[Any]] = {"overhead": [], "at_once": [], "beside_torch": []}
    failures: list[dict[str, Any]] = []
    with Worker() as worker, progress_bar() as bar:
        task = bar.add_task("kernels.gemm", total=len(planned), failed="")
        for member, function, given in planned:
            deadline_s = DEADLINE_S + (0 if worker.running else START_S)
            outcome = worker.call(function, given, deadline_s)
            if outcome.kind is OutcomeKind.OK:
                named = {"library": given[0]} if member != "beside_torch" else {}
                found[member].append(named | outcome.value)
            else:
                why = ": ".join(failure_of(outcome))
                failures.append({"step": member, "arguments": list(given), "why": why})
            bar.update(task, advance=1, failed=f"{len(failures)} failed" if failures else "")
    write(chosen.out, facts | {"suite": chosen.suite} | found | {"failures": failures})
    wrong = sum(row.get("wrong", 0) for rows in found.values() for row in rows)
    return 1 if failures or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
