"""What the GPU can do at most, measured: the lines of the roofline plot.

    python -m bench.gpu_ceilings --out bench/results/h200/ceilings.json

Kernels that copy and that only read a large buffer, both far beyond the L2; wgmma on
operands that stay in shared memory, timed as a row of the bench is and held for a second.
``python -m kernels.bench --ceilings FILE`` keeps them beside its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bench.evidence import START_S, begin, parser_of, progress_bar
from bench.files import write
from kernels.ceilings import copy_bandwidth, read_bandwidth, tensor_held, tensor_peak
from kernels.process import OutcomeKind, Worker
from kernels.protocol import BENCH, SUSTAINED
from kernels.verify import failure_of

DEADLINE_S = 60.0
STEPS = (copy_bandwidth, read_bandwidth, tensor_peak, tensor_held)


def measured(worker: Worker) -> tuple[dict[str, Any], dict[str, str]]:
    """The ceilings, and by step why one could not be had."""
    ceilings: dict[str, Any] = {}
    failures: dict[str, str] = {}
    with progress_bar() as bar:
        task = bar.add_task("ceilings", total=len(STEPS), failed="")
        for step in STEPS:
            deadline_s = DEADLINE_S + (0 if worker.running else START_S)
            outcome = worker.call(step, (), deadline_s)
            if outcome.kind is OutcomeKind.OK:
                ceilings |= outcome.value
            else:
                failures[step.__name__] = ": ".join(failure_of(outcome))
            bar.update(task, advance=1, failed=f"{len(failures)} failed" if failures else "")
    return ceilings, failures


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every ceiling was measured; 1: some were not; 3: no GPU or no family."""
    chosen, facts, _ = begin(parser_of("gpu_ceilings", __doc__), arguments)
    with Worker() as worker:
        ceilings, failures = measured(worker)
    protocol = {"short": BENCH.to_dict(), "held": SUSTAINED.to_dict()}
    beside = {"protocol": protocol, "ceilings": ceilings, "failures": failures}
    write(chosen.out, facts | beside)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
