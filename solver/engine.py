"""Questions in, answers out: what the HTTP service and the command line both call.

An Engine holds one prover and is used by one thread of one process. The body of an answer
is a pure function of the question, the profile and the model; how long it took is beside it.
Only where a time limit came first does it depend on the machine.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from solver.config import Config
from solver.conflict import Unsatisfiable
from solver.constraints import NONE, Constraints
from solver.deadline import NEVER, Deadline, OutOfTime
from solver.device import DeviceProfile, load_profile
from solver.errors import ProofError
from solver.families import paper, sm90_gemm_legality
from solver.objective import ENERGY, Pareto, Ranking
from solver.pick import Front, Row, best_rows, find_row, pareto_front
from solver.problem import LAYOUTS, Problem
from solver.question import Asked, Question
from solver.report import answer_body, simulation_body
from solver.simulator import Run, simulate
from solver.solution import Proof, Solution, Unfinished
from solver.space import Space, build_space, legal_table, require_power
from solver.table import Table

if TYPE_CHECKING:
    from solver.proof import Prover

TIMELINE_EVENTS_MAX = 64
PLAYED_ITERATIONS_MAX = 20_000
# Warming asks a constrained question and one that runs out of time too: what numpy and Z3 load
# on first use would otherwise make the first such answer 40 ms late.
WARM_CONSTRAINTS = Constraints.from_dict({"config": {"stages": {"min": 2}}})
WRAP_UP_S = 0.006
"""Kept of a time limit for bounding what is undecided and for writing the answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's body, and beside it the configuration and the milliseconds each step took."""

    solution: Solution
    body: dict[str, Any]
    timings_ms: dict[str, float] = field(compare=False)

    @property
    def config(self) -> Config:
        """The configuration that is answered."""
        return self.solution.pick.config

    def to_dict(self) -> dict[str, Any]:
        """The JSON body."""
        return self.body


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the model says of one configuration of the user's."""

    body: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON body."""
        return self.body


class Engine:
    """Picks, proves and simulates. Building one imports z3; ``pick`` alone doesn't need it."""

    def __init__(self, prover: Prover | None = None) -> None:
        self._prover = prover

    @property
    def prover(self) -> Prover:
        """The process's prover, built on first use."""
        if self._prover is None:
            from solver.proof import Prover

            self._prover = Prover()
        return self._prover

    def warm(self, devices: Sequence[str]) -> None:
        """Build what the first question to each device would otherwise wait for."""
        for name in devices:
            profile = load_profile(name)
            model = "calibrated" if profile.families else "paper"
            question = Question(Problem(4096, 4096, 4096), device=name, model=model)
            self.optimize(question)
            self.optimize(replace(question, time_limit_ms=1, constraints=WARM_CONSTRAINTS))
            for layout in LAYOUTS if profile.families else ():
                other = Problem(512, 512, 512, layout=layout)
                self.optimize(replace(question, problem=other, proof="none"))
        gc.collect()
        gc.freeze()  # what lives as long as the process is not looked at again

    def optimize(self, question: Asked, asked_s: float | None = None) -> Answer:
        """The first configuration allowed, proved so unless ``proof`` is none.

        A time limit counts from ``asked_s`` (``time.monotonic``), by default from when this
        process is ready to answer. Raises Unsatisfiable where the constraints allow nothing.
        """
        device = load_profile(question.device)
        deadline = self._deadline(question, asked_s)
        started = time.perf_counter()
        space = self._space(question, device)
        solution = pick(question, device, space, deadline)
        picked = time.perf_counter()
        if question.proof == "full":
            solution = solution.proved(self._prove(solution, deadline))
        proved = time.perf_counter()
        timings = {"pick": (picked - started) * 1e3, "proof": (proved - picked) * 1e3}
        return Answer(solution, answer_body(solution), timings)

    def _deadline(self, question: Asked, asked_s: float | None) -> Deadline:
        """When the answer is due; what this process builds once is built before that counts."""
        if question.time_limit_ms is None or question.proof == "none":
            return NEVER
        _ = self.prover
        begun = time.monotonic() if asked_s is None else asked_s
        allowed_s = question.time_limit_ms / 1e3
        return Deadline(begun + allowed_s - min(WRAP_UP_S, allowed_s / 2))

    def _space(self, question: Asked, device: DeviceProfile) -> Space:
        pricing, constraints = question.pricing, question.constraints
        try:
            return build_space(question.problem, device, pricing, constraints)
        except Unsatisfiable as conflict:
            if question.proof == "full":
                free, priced = (
                    legal_table(question.problem, device, pricing, asked)
                    for asked in (NONE, constraints)
                )
                self.prover.refute(free, priced, constraints, conflict)
            raise

    def _prove(self, solution: Solution, deadline: Deadline) -> Proof | Unfinished:
        question, space = solution.question, solution.space
        objective = question.objective
        if isinstance(objective, Pareto):
            assert solution.front is not None
            return self.prover.prove_front(space, solution.front, objective, deadline)
        proof = self.prover.prove(space, solution.rows, objective.ranking, deadline)
        if question.model == "paper":
            self._search(solution, objective.ranking, deadline)
        return proof

    def _search(self, solution: Solution, ranking: Ranking, deadline: Deadline) -> None:
        """In the published model's small space, hold the pick against Z3's own search too."""
        best = solution.pick
        try:
            found = self.prover.search(solution.space.allowed, ranking, deadline)
        except OutOfTime:
            return  # the proof stands without it
        if found != (best.work, best.kernel):
            raise ProofError("Z3's own search found another row than the pick")

    def simulate(
        self,
        problem: Problem,
        config: Config,
        device: str = "h200",
        model: str = "calibrated",
        divergence: float = 1.0,
        cache: str = "cold",
    ) -> Simulation:
        """Play one configuration's events, and say what limits it and how far it is from best.

        Raises IllegalConfig with the first limit the configuration breaks.
        """
        question = Question(problem, device=device, model=model, divergence=divergence, cache=cache)
        profile = load_profile(device)
        table = build_space(problem, profile, question.pricing, NONE).legal
        best = best_rows(table)[0]
        if model == "paper":
            paper.check(config, problem, profile)
            table = paper.tabulate(problem, profile, stages=config.stages, divergence=divergence)
        else:
            sm90_gemm_legality.check(config, problem, profile)
        row = find_row(table, config)
        run = self._play(table, row)
        whole = _iterations(table, row) <= PLAYED_ITERATIONS_MAX
        return Simulation(simulation_body(question, profile, table, row, best, run, whole))

    @staticmethod
    def _play(table: Table, row: Row) -> Run:
        """The row's events. A run short enough is played whole and held against its price."""
        w, slots = table.works, int(table.kernels.slots[row.kernel])
        whole = _iterations(table, row) <= PLAYED_ITERATIONS_MAX
        run = simulate(
            load=int(w.load_at(row.work, slots)),
            latency=int(w.latency[row.work]),
            math=int(w.math[row.work]),
            early=int(w.early[row.work]),
            epilogue=int(w.epilogue[row.work]),
            slots=slots,
            iterations=int(w.iterations[row.work]),
            units=int(w.units[row.work]),
            keep_events=TIMELINE_EVENTS_MAX,
            stop_after_kept=not whole,
        )
        if whole and run.wait * int(w.waves[row.work]) != row.wait:
            raise ProofError("simulator and closed form disagree")
        return run


def pick(
    question: Asked, device: DeviceProfile, space: Space, deadline: Deadline = NEVER
) -> Solution:
    """What the question asks for, by the model, not proved yet.

    Of a front with very many points the deadline may leave only the first. Raises Unsupported where
    the objective names energy and the device's power was not measured.
    """
    if ENERGY in question.objective.named:
        require_power(space.legal, device, "objective")
    front: Front | None = None
    if isinstance(question.objective, Pareto):
        front = pareto_front(space.allowed, question.objective, deadline)
        rows: tuple[Row, ...] = front.points[:1]
    else:
        rows = best_rows(space.allowed, question.top_k, question.objective.ranking)
    return Solution(question, device, space, rows, front)


def play_pick(solution: Solution) -> tuple[int, int, bool]:
    """Play the pick's critical CTA event by event: (k-iterations, the wait in ticks, whether the
    run was short enough to be played whole and held against its price).

    Raises ProofError where the events say otherwise than the closed form.
    """
    table, row = solution.space.allowed, solution.pick
    iterations = _iterations(table, row)
    run = Engine._play(table, row)
    return iterations, run.wait, iterations <= PLAYED_ITERATIONS_MAX


def _iterations(table: Table, row: Row) -> int:
    """k-iterations of the row's critical CTA."""
    return int(table.works.iterations[row.work]) * int(table.works.units[row.work])
