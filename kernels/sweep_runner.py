"""Runs a sweep's visits in a worker process, several rows a call, and pins what fails to its row.

A call reports each row when it is done. One that hangs, faults or raises is the first without a
report: it is recorded with the reason, the process is replaced, and the rest of the visit goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.bench_runner import ROW_DEADLINE_S, START_DEADLINE_S
from kernels.errors import GpuLost
from kernels.gpu_lock import take_in
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.protocol import SAMPLE
from kernels.sweep_worker import ROW, RowsTask, time_rows
from kernels.verify import Reason, failure_of
from kernels.worker import device_facts
from solver.sweep_design import SweepRow, Visit

ROWS_A_CALL = 32  # few enough that a row that hangs costs two minutes, many enough to cost nothing
DEADLINE_A_ROW_S = 2.0  # more for each row of a call; the slowest take about as long
FAILURES_IN_A_ROW = 8

NOT_THE_ROWS = (Reason.ENVIRONMENT, Reason.WORKER_LOST)
"""Reasons that say nothing of the row that was being measured."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement: times in µs, or why there are none. ``throttle`` has the reasons named by
    the driver around it."""

    median_us: float | None = None
    p95_us: float | None = None
    sm_clock_mhz: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()
    reason: str | None = None


Done = Callable[[int, int, Figures], None]
"""Told of every measurement: the row's id, its turn, what came of it."""


class SweepRunner:
    """Measures rows of a design in a worker's process, which is replaced when a row costs it.

    ``failures`` has why kernels could not be compiled, by name. ``alone_on`` is the GPU on which
    nobody else may launch meanwhile; who runs it lets go of that at the end.
    """

    def __init__(
        self,
        rows: Sequence[SweepRow],
        device: str,
        failures: Mapping[str, str],
        done: Done,
        worker: Worker,
        *,
        alone_on: str | None = None,
    ) -> None:
        self._rows = rows
        self._device = device
        self._failures = failures
        self._done = done
        self._worker = worker
        self._alone_on = alone_on
        self._held: list[tuple[int, int, Figures]] = []

    def run(self, visits: Iterable[Visit]) -> None:
        """Measure every row of the visits.

        Raises GpuLost where the GPU process can't be had, or row after row fails, which is
        then the GPU's doing: none of these is told, so that they are measured another time.
        """
        for visit in visits:
            able = []
            for row in visit.rows:
                reason = self._failures.get(self._rows[row].key.name)
                if reason is None:
                    able.append(row)
                else:
                    self._done(row, visit.turn, _failed(Reason.COMPILE_FAILED, reason))
            for first in range(0, len(able), ROWS_A_CALL):
                self._call(able[first : first + ROWS_A_CALL], visit.turn)
        self._tell_held()

    def _tell_held(self) -> None:
        for failure in self._held:
            self._done(*failure)
        self._held.clear()

    def _call(self, rows: list[int], turn: int) -> None:
        """Measure rows of one problem, in as many calls as failures ask for."""
        lost = False
        while rows:
            reported = 0

            def hear(facts: dict[str, Any], rows: Sequence[int] = rows) -> None:
                nonlocal reported
                if facts["stage"] == ROW:
                    self._tell_held()
                    self._done(rows[facts["index"]], turn, _figures(facts))
                    reported += 1

            deadline_s = self._deadline_s(rows)
            outcome = self._alone()
            if outcome is None:
                outcome = self._worker.call(
                    time_rows, (self._task(rows),), deadline_s, on_report=hear
                )
            if outcome.kind is OutcomeKind.OK:
                return
            rows = rows[reported:]
            if not rows:  # all were told before the process went
                return
            reason, details = failure_of(outcome)
            if reason in NOT_THE_ROWS:
                if lost and not reported:
                    raise GpuLost(f"the GPU process is lost again and again: {details}")
                lost = True
                continue
            lost = False
            self._held.append((rows[0], turn, _failed(reason, details)))
            rows = rows[1:]
            if len(self._held) == FAILURES_IN_A_ROW:
                raise GpuLost(
                    f"{FAILURES_IN_A_ROW} rows failed one after another, the last with {details}"
                )

    def _alone(self) -> Outcome | None:
        """Have the process hold the GPU's lock, which a fresh one does not; why it can't."""
        if self._alone_on is None:
            return None
        taken = take_in(self._worker, self._alone_on)
        return None if taken.kind is OutcomeKind.OK else taken

    def _task(self, rows: Sequence[int]) -> RowsTask:
        first = self._rows[rows[0]]
        return RowsTask(
            problem=first.problem,
            configs=tuple(self._rows[row].config for row in rows),
            device=self._device,
            protocol=SAMPLE.with_cache(first.cache),
        )

    def _deadline_s(self, rows: Sequence[int]) -> float:
        start_s = 0 if self._worker.running else START_DEADLINE_S
        return start_s + ROW_DEADLINE_S + DEADLINE_A_ROW_S * len(rows)


def _failed(reason: Reason, details: str) -> Figures:
    """A measurement that came to nothing, its reason in one line."""
    return Figures(reason=" ".join(f"{reason}: {details}".split()))


def _figures(facts: Mapping[str, Any]) -> Figures:
    return Figures(
        median_us=facts["median_us"],
        p95_us=facts["p95_us"],
        sm_clock_mhz=facts["sm_clock_mhz"],
        power_w=facts["power_w"],
        throttle=tuple(facts["throttle"]),
    )


def read_device_facts(worker: Worker) -> dict[str, Any]:
    """What a worker reads off its device. Raises GpuLost where it can't start."""
    outcome = worker.call(device_facts, (), START_DEADLINE_S)
    if outcome.kind is not OutcomeKind.OK:
        raise GpuLost(f"the GPU process does not start: {failure_of(outcome)[1]}")
    facts: dict[str, Any] = outcome.value
    return facts
