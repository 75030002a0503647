"""Solutions and priced rows as JSON, in the user's units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, NamedTuple

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import InvalidProblem
from solver.families import paper, sm90_gemm
from solver.families.registry import copied_operands, family_of
from solver.model_version import MODEL_VERSION
from solver.objective import Pareto
from solver.pick import Row, price
from solver.problem import Problem
from solver.question import Question
from solver.simulator import Event, Run
from solver.solution import Solution, Unfinished
from solver.table import CLOCK, LOAD_PATHS, PER_MILLE, SLOWDOWN, Table
from solver.units import TICKS_PER_US, joules_from_ticks, us_from_ticks

GIVEN = (
    "the model: its equations and the profile's constants",
    "its recurrence at tile boundaries: of the Q loads that reach into the next unit the last "
    "alone waits for the unit before",
    "the table: numpy's integer parameters, identified by sha256",
    "the grid: each configuration launches on the most SMs allowed that it has work for, in whole "
    "clusters",
    "the legal set: numpy evaluates the limits that bound it",
    "numpy's checks that groups and open rows partition the space, each within its group's bounds, "
    "and that the rows allowed are the legal ones within the constraints",
)
GIVEN_POWER = (
    "power in whole watts: numpy rounds a row's energy over its held time, with its margin, up "
    "and ends the margin at the driver's limit"
)
LEMMAS = {
    "ring": "math_end[i+Q] = math_end[i] + Q*g + d: one turn of the ring decides all of them",
    "units": "the closed form over units is the recurrence's longest path (Z3 for the power, "
    "random trials for the matrix)",
    "monotony": "no time falls when a parameter grows, ring depth and early release excepted "
    "(Z3 for one step in every time; ring depth, iterations and units by random trials)",
}
WAIT_COUNTS = 0.05
"""Share of the time below which waiting for loads decides nothing."""

RANK_WORDS = {
    "score": "weighted score",
    "time": "time",
    "wait": "MATH wait",
    "smem": "shared memory",
    "registers": "registers",
    "energy": "energy",
}


def answer_body(solution: Solution) -> dict[str, Any]:
    """The JSON body of an answer."""
    question, best = solution.question, solution.pick
    problem, device = question.problem, solution.device
    body = {
        "problem": problem.to_dict(),
        **family_of(problem).facts(problem, device, question.model),
        "model_version": MODEL_VERSION,
        **question.to_dict(),
        **chosen(solution, best),
        **family_of(problem).verdict(
            problem, question.cache, solution.space.allowed, best.work, device
        ),
        "proof": _proof(solution),
        "alternatives": [listed_row(solution, row) for row in solution.rows[1:]],
        "device": describe_device(device, question.model, family_of(problem).name),
    }
    if (score := solution.score(best)) is not None:
        body["score"] = score
    if solution.front is not None:
        body["front"] = [listed_row(solution, row) for row in solution.listed]
        body["front_size"] = len(solution.front.points)
        body["complete"] = complete(solution)
    return body


def chosen(solution: Solution, row: Row) -> dict[str, Any]:
    """What an answer says of the configuration that it gives: itself, its launch, and what is
    predicted of it."""
    table = solution.space.allowed
    return {
        "config": row.config.to_dict(),
        "kernel": launch(table, row),
        "predicted": predicted(table, row.work, row.kernel, solution.question.problem),
    }


def simulation_body(
    question: Question,
    device: DeviceProfile,
    table: Table,
    row: Row,
    best: Row,
    run: Run,
    played_whole: bool,
) -> dict[str, Any]:
    """The JSON body of a simulation."""
    asked = question.to_dict()
    return {
        "problem": question.problem.to_dict(),
        "copied_operands": copied_operands(question.problem, question.model),
        "model_version": MODEL_VERSION,
        **{name: asked[name] for name in ("model", "cache", "divergence")},
        "config": row.config.to_dict(),
        "kernel": launch(table, row),
        "predicted": predicted(table, row.work, row.kernel, question.problem),
        "timeline": timeline_events(run.events),
        "played_whole": played_whole,
        "limits": limits(table, row, device),
        "gap_to_optimum": row.time / best.time - 1,
        "optimum": {"config": best.config.to_dict(), "time_us": us_from_ticks(best.time)},
        "device": describe_device(device, question.model),
    }


def problem_words(problem: Problem) -> str:
    """A problem in a phrase, what is usual left out but for the layout."""
    p = problem
    lies = [
        p.layout,
        *([f"C in {p.out}"] if p.out != p.dtype else []),
        *(
            f"ld{name} {matrix.pitch}"
            for name, matrix in (("a", p.a), ("b", p.b), ("c", p.c))
            if matrix.pitch != matrix.length
        ),
        *(
            f"{name}_offset {matrix.offset}"
            for name, matrix in (("a", p.a), ("b", p.b), ("c", p.c))
            if matrix.offset
        ),
    ]
    return f"{p.m} x {p.n} x {p.k} in {p.dtype} ({', '.join(lies)})"


@contextmanager
def naming(problem: Problem) -> Iterator[None]:
    """Around what is asked of one problem of many: an error says which one it is of."""
    try:
        yield
    except InvalidProblem as error:
        words = f"{problem_words(problem)}: {error.message}"
        raise InvalidProblem(error.field, words) from error


def config_words(config: Mapping[str, Any]) -> str:
    """A configuration in one line, what is at its default left out."""
    tile = f"{config['tile_m']}x{config['tile_n']}x{config['tile_k']}"
    usual = {field.name: field.default for field in fields(Config)}
    rest = [
        f"{name}={value}"
        for name, value in config.items()
        if name not in ("family", "tile_m", "tile_n", "tile_k") and value != usual[name]
    ]
    return " ".join([config["family"], tile, *rest])


def energy_words(energy_j: float) -> str:
    """An energy in mJ: four digits, and all whole ones of more."""
    energy_mj = energy_j * 1e3
    return f"{energy_mj:.4g}" if energy_mj < 1e4 else f"{energy_mj:,.0f}"


def launch(table: Table, row: Row) -> dict[str, Any]:
    """What the configuration's launch takes."""
    return {
        "grid": int(table.works.active[row.work]),
        "threads": int(table.kernels.threads[row.kernel]),
        "smem_bytes": row.smem_bytes,
        "registers_per_thread": row.registers or None,
    }


def limits(table: Table, row: Row, device: DeviceProfile) -> list[dict[str, Any]]:
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


def listed_row(solution: Solution, row: Row) -> dict[str, Any]:
    """An alternative, or a point of a front."""
    body = {
        "config": row.config.to_dict(),
        "time_us": us_from_ticks(row.time),
        "wait_us": us_from_ticks(row.wait),
        "smem_bytes": row.smem_bytes,
        "registers_per_thread": row.registers or None,
        "gap": solution.gap(row),
        **sustained_figures(solution.space.allowed, row.work, row.time),
    }
    if (score := solution.score(row)) is not None:
        body["score"] = score
    return body


def space_counts(solution: Solution) -> dict[str, int]:
    """Legal configurations, those the constraints leave out, and those that competed."""
    return {
        "legal": solution.space.legal.size,
        "excluded_by_constraints": solution.space.excluded,
        "configurations": solution.space.allowed.size,
    }


def complete(solution: Solution) -> bool:
    """Whether the whole front is listed, and proved where a proof was asked for."""
    if solution.front is None or isinstance(solution.proof, Unfinished):
        return False
    if not solution.front.whole:
        return False
    return len(solution.listed) == len(solution.front.points)


def claim_words(solution: Solution) -> str:
    """What the proof shows, in words."""
    objective = solution.question.objective
    allowed = "allowed" if solution.question.constraints.bounds else "legal"
    if isinstance(objective, Pareto):
        axes = ", ".join(RANK_WORDS[name] for name in objective.axes)
        return (
            f"every {allowed} configuration within {objective.within} times the least time is "
            f"nowhere better in ({axes}) than some point of the front, and no point is than "
            "another, by the model"
        )
    ranks = ", ".join(RANK_WORDS[name] for name in objective.ranking.names)
    further = ", and the alternatives are the next ones" if len(solution.rows) > 1 else ""
    return (
        f"no {allowed} configuration comes before this one in ({ranks}, configuration fields in "
        f"order){further}, by the model"
    )


def _proof(solution: Solution) -> dict[str, Any]:
    proof, space = solution.proof, space_counts(solution)
    if proof is None:
        return {"status": "not_requested", "space": space}
    if isinstance(proof, Unfinished):
        best = solution.best_rank
        return {
            "status": "timeout",
            "space": space,
            "undecided": proof.undecided,
            "gap": 1 - proof.lower_bound / best if best else 0.0,
            "gap_in": solution.first_rank_name,
        }
    objective = solution.question.objective
    if isinstance(objective, Pareto):
        controls = "no point of the front is beaten by another: each is needed"
    else:
        first, second = (RANK_WORDS[name] for name in objective.ranking.names[:2])
        controls = (
            "no bound refutes the claim itself; and asked of a false claim, one more in "
            f"{first} or one more in {second}, the same solver found a row that comes before it"
        )
    return {
        "status": "optimal",
        "space": space,
        "scope": {
            "claim": claim_words(solution),
            "configurations": proof.configurations,
            "excluded_by_constraints": proof.excluded,
            "groups": proof.groups,
            "refuted_by_group_bound": proof.refuted_by_group,
            "refuted_exactly": proof.refuted_exactly,
            "finalists_over_event_arrays": proof.finalists,
            "listed": proof.listed,
            "unrolled_iterations": proof.unrolled,
            "lemmas": LEMMAS,
            "controls": controls,
            "table_sha256": proof.table_sha256,
            "given": _given(solution),
            "timeline": timeline_events(proof.timeline),
        },
    }


def _given(solution: Solution) -> list[str]:
    """What the proof takes as given."""
    if solution.space.allowed.family == paper.NAME:
        return list(GIVEN)
    power = [GIVEN_POWER] if solution.question.constraints.on_power else []
    return [*GIVEN, *power, family_of(solution.question.problem).registers()]


def predicted(table: Table, work: int, kernel: int, problem: Any) -> dict[str, Any]:
    """Predicted time of one row in µs, its parts (which add up to it) and what bounds it."""
    times, waits = price(table, [work], [kernel])
    time, wait = int(times[0]), int(waits[0])
    w = table.works
    waves, units = int(w.waves[work]), int(w.units[work])
    slots = int(table.kernels.slots[kernel])
    load, math = int(w.load_at(work, slots)), int(w.math[work])
    launch = int(w.fixed[work]) + int(table.kernels.setup[kernel]) - table.copies
    multiply = waves * units * int(w.iterations[work]) * math
    epilogue = waves * (units - 1) * int(w.epilogue[work]) + int(w.store[work])
    bound = _bound(table, work, slots, Parts(time, table.copies, launch, multiply, wait, epilogue))
    return {
        "time_us": us_from_ticks(time),
        "wait_us": us_from_ticks(wait),
        **family_of(problem).rate(problem, us_from_ticks(time)),
        "bound": bound,
        "clock_mhz": int(w.clock_mhz[work]) or None,
        **sustained(table, work, time),
        "breakdown": {
            "copy_us": us_from_ticks(table.copies),
            "launch_us": us_from_ticks(launch),
            "math_us": us_from_ticks(multiply),
            "wait_us": us_from_ticks(wait),
            "epilogue_us": us_from_ticks(epilogue),
        },
        "pipeline": {
            "load_us": us_from_ticks(load),
            "latency_us": us_from_ticks(int(w.latency[work])),
            "math_us": us_from_ticks(math),
            "early_us": us_from_ticks(int(w.early[work])),
            "epilogue_us": us_from_ticks(int(w.epilogue[work])),
            "slots": slots,
            "iterations": int(w.iterations[work]),
            "units_per_cta": units,
            "waves": waves,
        },
    }


def sustained(table: Table, work: int, time: int) -> dict[str, Any]:
    """What is predicted of a row of ``time`` ticks where its launches follow one another for
    seconds; nothing where the table has no columns of power."""
    w = table.works
    if not w.power:
        return {}
    return {
        "sustained": {
            **sustained_figures(table, work, time),
            "time_us": time * int(w.power[SLOWDOWN][work]) / (TICKS_PER_US * PER_MILLE),
            "clock_mhz": int(w.power[CLOCK][work]),
        }
    }


def sustained_figures(table: Table, work: int, time: int) -> dict[str, float]:
    """Its power and its energy per launch then; nothing where the table has no columns of power."""
    w = table.works
    if not w.power:
        return {}
    energy = int(w.energy(work, time))
    held = time * int(w.power[SLOWDOWN][work])
    return {
        "power_w": energy * PER_MILLE / held,
        "power_high_w": int(w.watts(work, time)),
        "energy_j": joules_from_ticks(energy),
    }


class Parts(NamedTuple):
    """A row's time and what it goes to, in ticks."""

    time: int
    copies: int
    launch: int
    multiply: int
    wait: int
    epilogue: int


def _bound(table: Table, work: int, slots: int, parts: Parts) -> str:
    """What decides the time: one of the API's words."""
    w = table.works
    load, math = int(w.load_at(work, slots)), int(w.math[work])
    ends = {"copies": parts.copies, "launch": parts.launch, "epilogue": parts.epilogue}
    longest = max(ends, key=lambda name: ends[name])
    if ends[longest] > parts.time / 2:
        return longest
    if parts.wait < WAIT_COUNTS * parts.time:
        return "math"
    ramp = int(w.latency[work]) + load + math - int(w.early[work])
    if int(w.iterations[work]) > slots and ramp > slots * max(load, math):
        return "ring_depth"
    if load > math:
        return LOAD_PATHS[int(w.load_path[work])]
    return "latency" if parts.wait > parts.multiply else "math"


def timeline_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events with their times in µs from the CTA's first load."""
    return [
        {
            "unit": e.unit,
            "iteration": e.iteration,
            "slot": e.slot,
            "load_issue_us": us_from_ticks(e.load_issue),
            "load_end_us": us_from_ticks(e.load_end),
            "math_start_us": us_from_ticks(e.math_start),
            "math_end_us": us_from_ticks(e.math_end),
        }
        for e in events
    ]


def describe_device(
    device: DeviceProfile, model: str, family: str = sm90_gemm.NAME
) -> dict[str, Any]:
    """Which profile was used and where its constants come from."""
    table = "paper" if model == "paper" else family
    constants = device.model(table)
    count = Counter(constant.provenance for constant in constants.values())
    unmeasured = [n for n in device.must_measure if n.startswith(f"{table}.")]
    return {
        "name": device.name,
        "title": device.title,
        "memory_bytes": device.limit("memory_bytes"),
        "profile_sha256": device.sha256,
        "constants_by_provenance": dict(sorted(count.items())),
        "must_measure": unmeasured,
    }
