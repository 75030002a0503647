"""Questions in, answers out: what the HTTP service and the command line both call.

An Engine holds one prover and is used by one thread of one process. The body of an answer
is a pure function of the question, the profile and the model; how long it took is beside it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput, ProofError, Unsupported
from solver.families import paper, sm90_gemm, sm90_gemm_cost
from solver.pick import Row, best_rows, find_row
from solver.problem import CACHES, Problem
from solver.report import describe_device, predicted, timeline_events
from solver.simulator import Run, simulate
from solver.table import Table
from solver.units import us_from_ticks

if TYPE_CHECKING:
    from solver.proof import Proof, Prover

MODEL_VERSION = "1"
"""Raised with every change of an equation; constants have the profile's hash."""
MODELS = ("calibrated", "paper")
PROOFS = ("full", "none")
TOP_K_MAX = 64
DIVERGENCE_MAX = 32
TIMELINE_EVENTS_MAX = 64
PLAYED_ITERATIONS_MAX = 20_000

GIVEN = (
    "the model: its equations and the profile's constants",
    "its recurrence at tile boundaries: of the Q loads that reach into the next unit the last "
    "alone waits for the unit before",
    "the table: numpy's integer parameters, identified by sha256",
    "the legal set: numpy evaluates the limits that bound it",
)
GIVEN_CALIBRATED = "launch registers as NVRTC {nvrtc} reported them, by compile key"
LEMMAS = {
    "ring": "math_end[i+Q] = math_end[i] + Q*g + d: one turn of the ring decides all of them",
    "units": "the closed form over units is the recurrence's longest path (Z3 for the power, "
    "random trials for the matrix)",
    "monotony": "no time falls when a parameter grows, ring depth and early release excepted "
    "(Z3 for one step in every time; ring depth, iterations and units by random trials)",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. Raises InvalidInput naming the field that is wrong."""

    problem: Problem
    device: str = "h200"
    model: str = "calibrated"
    proof: str = "full"
    top_k: int = 1
    cache: str = "cold"
    divergence: float = 1.0

    def __post_init__(self) -> None:
        check_divergence(self.divergence, self.model)
        if self.model == "paper" and self.cache == "warm":
            raise InvalidInput("cache", "must be cold in model paper, which knows no caches")
        for name, allowed in (("model", MODELS), ("proof", PROOFS), ("cache", CACHES)):
            if getattr(self, name) not in allowed:
                raise InvalidInput(name, f"must be one of {', '.join(allowed)}")
        if type(self.top_k) is not int or not 1 <= self.top_k <= TOP_K_MAX:
            raise InvalidInput("top_k", f"must be an integer between 1 and {TOP_K_MAX}")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer's body, and beside it the configuration and the milliseconds each step took."""

    config: Config
    body: dict[str, Any]
    timings_ms: dict[str, float] = field(compare=False)

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


def check_divergence(divergence: float, model: str) -> None:
    """Raise InvalidInput unless the factor on compute time is in range and means something."""
    if type(divergence) not in (int, float) or not 1 <= divergence <= DIVERGENCE_MAX:
        raise InvalidInput("divergence", f"must be a number between 1 and {DIVERGENCE_MAX}")
    if divergence != 1 and model != "paper":
        raise InvalidInput("divergence", f"must be 1 in model {model}; model paper takes it")


def tabulate(
    problem: Problem,
    device: DeviceProfile,
    model: str,
    *,
    cache: str = "cold",
    divergence: float = 1.0,
) -> Table:
    """The priced legal space for a model name; the published model knows no caches, the
    calibrated one no ``divergence`` (of a warp's threads: a factor on compute time).

    Raises Unsupported where the device has no family for the calibrated model.
    """
    if model == "paper":
        return paper.tabulate(problem, device, divergence=divergence)
    if sm90_gemm.NAME not in device.families:
        raise Unsupported(
            "device",
            f"{device.name} runs no kernel family; with model paper it can be asked, and "
            f"{sm90_gemm.NAME} runs on sm_90a devices",
        )
    return sm90_gemm_cost.tabulate(problem, device, cold=cache == "cold")


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
            self.optimize(Question(Problem(4096, 4096, 4096), device=name, model=model))

    def optimize(self, question: Question) -> Answer:
        """The first configuration of the legal space, proved so unless ``proof`` is none."""
        device = load_profile(question.device)
        started = time.perf_counter()
        table = tabulate(question.problem, device, question.model, **_pricing(question))
        rows = best_rows(table, question.top_k)
        picked = time.perf_counter()
        proof = self._prove(table, rows[0], question) if question.proof == "full" else None
        proved = time.perf_counter()
        best = rows[0]
        body = {
            "problem": question.problem.to_dict(),
            "operand_bytes": question.problem.operand_bytes,
            "fits_device_memory": question.problem.operand_bytes <= device.limit("memory_bytes"),
            "model": question.model,
            "model_version": MODEL_VERSION,
            **_pricing(question),
            "config": best.config.to_dict(),
            "kernel": _launch(table, best, question.problem, device),
            "predicted": predicted(table, best.work, best.kernel, question.problem),
            "proof": _scope(proof, table),
            "alternatives": [_alternative(row, best) for row in rows[1:]],
            "device": describe_device(device, question.model),
        }
        timings = {"pick": (picked - started) * 1e3, "proof": (proved - picked) * 1e3}
        return Answer(best.config, body, timings)

    def _prove(self, table: Table, best: Row, question: Question) -> Proof:
        proof = self.prover.prove(table, best)
        if question.model == "paper" and self.prover.search(table) != (best.work, best.kernel):
            raise ProofError("Z3's own search found another row than the pick")
        return proof

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
        space = table = tabulate(problem, profile, model, **_pricing(question))
        if model == "paper":
            paper.check(config, problem, profile)
            table = paper.tabulate(problem, profile, stages=config.stages, divergence=divergence)
        else:
            sm90_gemm.check(config, problem, profile)
        row = find_row(table, config)
        best = best_rows(space)[0]
        run = self._play(table, row)
        return Simulation(
            {
                "problem": problem.to_dict(),
                "model": question.model,
                "model_version": MODEL_VERSION,
                **_pricing(question),
                "config": config.to_dict(),
                "kernel": _launch(table, row, problem, profile),
                "predicted": predicted(table, row.work, row.kernel, problem),
                "timeline": timeline_events(run.events),
                "played_whole": _iterations(table, row) <= PLAYED_ITERATIONS_MAX,
                "limits": _limits(table, row, profile),
                "gap_to_optimum": row.time / best.time - 1,
                "optimum": {"config": best.config.to_dict(), "time_us": us_from_ticks(best.time)},
                "device": describe_device(profile, question.model),
            }
        )

    @staticmethod
    def _play(table: Table, row: Row) -> Run:
        """The row's events. A run short enough is played whole and held against its price."""
        w = table.works
        whole = _iterations(table, row) <= PLAYED_ITERATIONS_MAX
        run = simulate(
            load=int(w.load[row.work]),
            latency=int(w.latency[row.work]),
            math=int(w.math[row.work]),
            early=int(w.early[row.work]),
            epilogue=int(w.epilogue[row.work]),
            slots=int(table.kernels.slots[row.kernel]),
            iterations=int(w.iterations[row.work]),
            units=int(w.units[row.work]),
            keep_events=TIMELINE_EVENTS_MAX,
            stop_after_kept=not whole,
        )
        if whole and run.wait * int(w.waves[row.work]) != row.wait:
            raise ProofError("simulator and closed form disagree")
        return run


def _given(table: Table) -> list[str]:
    """What the proof takes as given."""
    if table.family == paper.NAME:
        return list(GIVEN)
    nvrtc = sm90_gemm.register_table().nvrtc
    return [*GIVEN, GIVEN_CALIBRATED.format(nvrtc=nvrtc)]


def _pricing(question: Question) -> dict[str, Any]:
    """What besides problem, device and model decides the prices."""
    return {"cache": question.cache, "divergence": question.divergence}


def _iterations(table: Table, row: Row) -> int:
    """k-iterations of the row's critical CTA."""
    return int(table.works.iterations[row.work]) * int(table.works.units[row.work])


def _launch(table: Table, row: Row, problem: Problem, device: DeviceProfile) -> dict[str, Any]:
    c = row.config
    tiles = -(-problem.m // c.tile_m) * -(-problem.n // c.tile_n)
    return {
        "grid": min(tiles * c.split_k, device.limit("sms")),
        "threads": int(table.kernels.threads[row.kernel]),
        "smem_bytes": row.smem_bytes,
        "registers_per_thread": row.registers or None,
    }


def _limits(table: Table, row: Row, device: DeviceProfile) -> list[dict[str, Any]]:
    """Each resource a block uses, its limit, and the share of it."""
    threads = int(table.kernels.threads[row.kernel])
    used = {
        "smem_bytes": (row.smem_bytes, device.limit("smem_per_block_bytes")),
        "threads": (threads, device.limit("threads_per_block")),
    }
    if row.registers:
        registers = sm90_gemm.allocated_registers(threads, row.registers)
        used["registers"] = (registers, device.limit("registers_per_sm"))
    return [
        {"name": name, "used": value, "limit": limit, "share": value / limit}
        for name, (value, limit) in used.items()
    ]


def _alternative(row: Row, best: Row) -> dict[str, Any]:
    return {
        "config": row.config.to_dict(),
        "time_us": us_from_ticks(row.time),
        "wait_us": us_from_ticks(row.wait),
        "smem_bytes": row.smem_bytes,
        "registers_per_thread": row.registers or None,
        "gap": row.time / best.time - 1,
    }


def _scope(proof: Proof | None, table: Table) -> dict[str, Any]:
    space = {"configurations": table.size}
    if proof is None:
        return {"status": "not_requested", "space": space}
    return {
        "status": "optimal",
        "space": space,
        "scope": {
            "claim": "no legal configuration comes before this one in (time, MATH wait, shared "
            "memory, registers, configuration fields in order), by the model",
            "configurations": proof.configurations,
            "groups": proof.groups,
            "refuted_by_group_bound": proof.refuted_by_group,
            "refuted_exactly": proof.refuted_exactly,
            "finalists_over_event_arrays": proof.finalists,
            "unrolled_iterations": proof.unrolled,
            "lemmas": LEMMAS,
            "controls": "asked of false claims, one tick more time and one tick more wait, the "
            "same solver found a row that comes before each",
            "table_sha256": proof.table_sha256,
            "given": _given(table),
            "timeline": timeline_events(proof.timeline),
        },
    }
