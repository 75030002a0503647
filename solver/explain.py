"""Why this pick: what its time goes to, what binds it, and what would change it, in words.

Sentences are made of the same numbers as the structured members beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from solver.alignment import alignments, detours
from solver.config import Config
from solver.engine import Engine
from solver.errors import InvalidInput
from solver.flips import (
    CONSTANT_STEPS,
    LIFTED,
    Asked,
    Flip,
    binding,
    nearest_constants,
    prove_flip,
    tightened,
)
from solver.objective import ENERGY, Pareto, Ranking
from solver.pick import Row, best_rows, find_row
from solver.question import Question
from solver.report import RANK_WORDS, answer_body, energy_words, predicted, problem_words
from solver.solution import Solution
from solver.table import Table
from solver.units import us_from_ticks
from solver.words import compared, digits, listing

CONSTANTS_LISTED = 3

PART_WORDS = {
    "copy_us": "copying operands",
    "launch_us": "launch and set-up",
    "math_us": "multiplying",
    "wait_us": "MATH warps waiting for loads",
    "epilogue_us": "storing results",
}
BOUND_WORDS = {
    "math": "multiplication: most loads arrive in time",
    "loads": "the SM's own load path",
    "l2": "the L2's bandwidth",
    "memory": "the device memory's bandwidth",
    "ring_depth": "the depth of the ring: too few slots to cover a load's latency",
    "latency": "the latency of loads: too few iterations to hide it",
    "copies": "copying operands that TMA can't take as they lie",
    "launch": "the launch and its set-up",
    "epilogue": "storing the results",
}
FIELD_WORDS = {
    "stages": "stages",
    "mma_in_flight": "wgmma groups in flight",
    "dma_warps": "DMA warps",
    "math_warpgroups": "MATH warpgroups",
    "register_split": "register split",
    "cluster_m": "CTAs of a cluster along m",
    "cluster_n": "CTAs of a cluster along n",
    "split_k": "split-K",
    "raster_group": "raster group",
}
LIMIT_WORDS = {
    "smem_per_block_bytes": "shared memory of a block",
    "registers_per_sm": "the register file of an SM",
}


def explain(
    engine: Engine, question: Question, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """The answer's explanation as JSON: ``text``, one sentence or two a paragraph, and beside it
    the figures that the text is made of.

    ``progress`` is told (done, total). Every flip named is proved on both of its sides unless
    ``proof`` is none. Raises InvalidInput for a pareto objective, Unsatisfiable where nothing is
    allowed.
    """
    if isinstance(question.objective, Pareto):
        raise InvalidInput("objective", "explain takes a lexicographic or a weighted one")
    if question.top_k != 1:
        raise InvalidInput("top_k", "must be 1: an explanation is of the pick")
    if question.time_limit_ms is not None:
        raise InvalidInput("time_limit_ms", "is for answers; an explanation takes its time")
    answer = engine.optimize(question)
    solution = answer.solution
    asked = Asked(question, solution.device).leaner()
    pick, table = solution.pick, solution.space.allowed
    binds = binding(asked, pick)
    tighter = tightened(asked, pick)
    constants = nearest_constants(asked, pick, progress)[:CONSTANTS_LISTED]
    prover = engine.prover if question.proof == "full" else None
    aligned = alignments(asked, prover)
    if prover is not None:
        for flip in (*binds, *tighter, *constants):
            prove_flip(asked, pick, flip, prover)
    ranking = question.objective.ranking
    runner_up = next(iter(best_rows(table, 2, ranking)[1:]), None)
    other = _other_tile(table, pick, ranking)
    body = answer_body(solution)
    limits = sorted((*binds, *tighter), key=lambda flip: flip.change)
    kept = (
        "problem",
        "copied_operands",
        "model",
        "model_version",
        "cache",
        "divergence",
        "objective",
        "constraints",
        "config",
        "kernel",
        "predicted",
        "proof",
        "device",
    )
    return {
        "text": [
            _headline(solution, body),
            _time(body["predicted"]),
            *_held(solution, body["predicted"]),
            *detours(asked, pick, aligned),
            _binds(solution, binds),
            *_rivals(solution, runner_up, other),
            *_limit_changes(solution, sorted(tighter, key=lambda flip: flip.change)),
            _constant_changes(solution, asked, constants),
        ],
        **{name: body[name] for name in kept},
        "binding": [_flip(solution, flip) for flip in binds],
        "alignments": [each.to_dict(pick) for each in aligned],
        "runner_up": _rival(solution, runner_up),
        "best_other_tile": _rival(solution, other),
        "flips": {
            "nearest": _flip(solution, min((*limits, *constants), key=lambda flip: flip.change))
            if limits or constants
            else None,
            "limits": [_flip(solution, flip) for flip in limits],
            "constants": [_flip(solution, flip) for flip in constants],
        },
    }


def _flip(solution: Solution, flip: Flip) -> dict[str, Any]:
    return {
        **flip.to_dict(),
        "config": flip.row.config.to_dict(),
        "time_us": us_from_ticks(flip.row.time),
        "time_change": flip.row.time / solution.pick.time - 1,
    }


def _rival(solution: Solution, row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    problem, table = solution.question.problem, solution.space.allowed
    return {
        "config": row.config.to_dict(),
        "gap": solution.gap(row),
        "predicted": predicted(table, row.work, row.kernel, problem),
    }


def _headline(solution: Solution, body: dict[str, Any]) -> str:
    p, figures = solution.question.problem, body["predicted"]
    allowed = "allowed" if solution.question.constraints.bounds else "legal"
    first = RANK_WORDS[solution.first_rank_name]
    shown = "proved" if body["proof"]["status"] == "optimal" else "picked as"
    q = solution.question
    settings = [
        *(["by the published model"] if q.model == "paper" else []),
        *([f"at divergence {q.divergence}"] if q.divergence != 1 else []),
        *(["with A and B in the L2"] if q.cache == "warm" else []),
    ]
    told = "".join(f" {each}," for each in settings)
    count = solution.space.allowed.size
    return (
        f"For {problem_words(p)} on {solution.device.title},{told} the pick is "
        f"{_phrase(solution.pick.config)}: {figures['time_us']:.2f} µs predicted, {shown} "
        f"the first of {count:,} {allowed} configuration{'s' if count > 1 else ''} by {first}."
    )


def _time(figures: dict[str, Any]) -> str:
    parts = sorted(figures["breakdown"].items(), key=lambda part: -part[1])
    shares = [
        f"{_share(value / figures['time_us'])} {PART_WORDS[name]} ({value:.2f} µs)"
        for name, value in parts
        if value > 0
    ]
    return f"Its time is {listing(shares)}. What bounds it is {BOUND_WORDS[figures['bound']]}."


def _held(solution: Solution, figures: dict[str, Any]) -> Iterable[str]:
    """What its launches draw, where that was asked about."""
    q = solution.question
    if ENERGY not in q.objective.named and q.constraints.on_power is None:
        return
    held = figures["sustained"]
    yield (
        f"Held for seconds it draws {held['power_w']:.0f} W, {held['power_high_w']} W with its "
        f"margin, at {held['clock_mhz']} MHz and takes "
        f"{energy_words(held['energy_j'])} mJ and {held['time_us']:.2f} µs a launch."
    )


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


def _binds(solution: Solution, binds: list[Flip]) -> str:
    if not binds:
        paper = solution.question.model == "paper"
        lifted = "shared memory" if paper else "shared memory or the registers"
        yours = ", and none of your constraints does" if _constrained(solution) else ""
        return (
            f"No limit keeps a better one out: {LIFTED} times the {lifted} would not change the "
            f"pick{yours}."
        )
    return " ".join(_binding(solution, flip) for flip in binds)


def _binding(solution: Solution, flip: Flip) -> str:
    won = f"{_instead(solution, flip.row)} would be first, {_cost(solution, flip.row)}"
    if flip.kind == "limit":
        return (
            f"{LIMIT_WORDS[flip.name].capitalize()} binds: were it {flip.after:,} instead of "
            f"{flip.before:,}, {won}."
        )
    return f"Your {flip.name} = {flip.before} binds: at {flip.after}, {won}."


def _rivals(solution: Solution, runner_up: Row | None, other: Row | None) -> Iterable[str]:
    if runner_up is None:
        yield "There is no runner-up: nothing else is allowed."
        return
    yield (
        f"The runner-up has {_difference(solution, runner_up)} and is "
        f"{_cost(solution, runner_up)}: {_where(solution, runner_up)}."
    )
    if other is not None and other.config != runner_up.config:
        yield (
            f"The best with another tile is {_phrase(other.config)}, "
            f"{_cost(solution, other)}: {_where(solution, other)}."
        )


def _where(solution: Solution, row: Row) -> str:
    """Where a rival's time differs from the pick's, largest part first."""
    table, problem = solution.space.allowed, solution.question.problem
    mine = predicted(table, solution.pick.work, solution.pick.kernel, problem)["breakdown"]
    theirs = predicted(table, row.work, row.kernel, problem)["breakdown"]
    changes = [(theirs[name] - mine[name], name) for name in mine]
    moved = [
        f"{change:+.2f} µs {PART_WORDS[name]}"
        for change, name in sorted(changes, key=lambda each: -abs(each[0]))
        if abs(change) >= 0.005
    ]
    if moved:
        return listing(moved)
    if row.time != solution.pick.time:
        return "less than 0.01 µs in all"
    if row.smem_bytes != solution.pick.smem_bytes:
        return f"the same times, {row.smem_bytes - solution.pick.smem_bytes:+,} bytes shared memory"
    if row.registers != solution.pick.registers:
        return f"the same times, {row.registers - solution.pick.registers:+} registers a thread"
    return "nothing tells them apart but the order of the fields"


def _limit_changes(solution: Solution, flips: list[Flip]) -> Iterable[str]:
    if not flips:
        return
    fewer = [flip for flip in flips if _is_better(solution, flip)]
    for flip in fewer:
        yield (
            f"A launch takes all the SMs it may. The model finds fewer better here: "
            f"{_change(solution, flip)}."
        )
    rest = [flip for flip in flips if flip not in fewer]
    if rest:
        changes = "; ".join(_change(solution, flip) for flip in rest)
        yield f"What lower limits would make of it: {changes}."


def _is_better(solution: Solution, flip: Flip) -> bool:
    return solution.first_rank(flip.row) < solution.first_rank(solution.pick)


def _change(solution: Solution, flip: Flip) -> str:
    after = f"{flip.after:,}" if isinstance(flip.after, int) else str(flip.after)
    before = f"{flip.before:,}" if isinstance(flip.before, int) else str(flip.before)
    variable, _, relation = flip.name.removeprefix("constraints.").rpartition(".")
    if flip.kind == "limit":
        number = f"the device's {flip.name} of {after}"
    elif relation == "max":
        number = f"at most {after} {variable} instead of {before}"
    else:
        number = f"{flip.name} = {after} instead of {before}"
    return f"{number} makes it {_instead(solution, flip.row)}, {_cost(solution, flip.row)}"


def _constant_changes(solution: Solution, asked: Asked, flips: list[Flip]) -> str:
    if not flips:
        return (
            "No constant of the profile flips the pick when it alone is moved by "
            f"{', '.join(f'{step:g}' for step in CONSTANT_STEPS)} of itself, up or down."
        )
    constants = asked.constants

    def words(flip: Flip) -> str:
        unit = "" if constants[flip.name].unit == "1" else f" {constants[flip.name].unit}"
        way = "higher" if flip.after > flip.before else "lower"
        return (
            f"{flip.name} {digits(flip.change)} {way} ({flip.after:.7g} instead of "
            f"{flip.before:.7g}{unit}) makes it {_instead(solution, flip.row)}"
        )

    first, *rest = flips
    more = f" Then: {'; '.join(words(flip) for flip in rest)}." if rest else ""
    return f"The least change of a constant that was found to flip the pick: {words(first)}.{more}"


def _phrase(config: Config) -> str:
    """A configuration in a phrase, what is usual left out."""
    words = [f"a {config.tile_m}x{config.tile_n}x{config.tile_k} tile", f"{config.stages} stages"]
    count = config.math_warpgroups
    warps = "warp" if config.family == "paper" else "warpgroup"
    words.append(f"{count} MATH {warps}{'s' if count > 1 else ''}")
    if config.mma_in_flight:
        words.append("a wgmma group in flight")
    if config.dma_warps > 1:
        words.append(f"{config.dma_warps} DMA warps")
    if config.register_split:
        words.append("registers split by role")
    if config.cluster_m > 1:
        words.append(f"clusters of {config.cluster_m} CTAs that share B")
    if config.cluster_n > 1:
        words.append(f"clusters of {config.cluster_n} CTAs that share A")
    if config.split_k > 1:
        words.append(f"split-K {config.split_k}")
    if config.raster_group > 1:
        words.append(f"raster group {config.raster_group}")
    return listing(words)


def _instead(solution: Solution, row: Row) -> str:
    """The other configuration: by what differs where the tile is the same."""
    mine, other = solution.pick.config, row.config
    if (mine.tile_m, mine.tile_n, mine.tile_k) != (other.tile_m, other.tile_n, other.tile_k):
        return _phrase(other)
    return f"the same tile with {_difference(solution, row)}"


def _difference(solution: Solution, row: Row) -> str:
    mine, other = solution.pick.config, row.config
    tiles = [f"{c.tile_m}x{c.tile_n}x{c.tile_k}" for c in (other, mine)]
    words = [] if tiles[0] == tiles[1] else [f"a {tiles[0]} tile instead of {tiles[1]}"]
    words += [
        f"{FIELD_WORDS[name]} {theirs} instead of {here}"
        for name, here, theirs in _differences(mine, other)
        if name in FIELD_WORDS
    ]
    return listing(words) if words else "another grid"


def _cost(solution: Solution, row: Row) -> str:
    """How the row fares against the pick: in time, and in what is ranked first if that differs."""
    speed = compared(row.time, solution.pick.time, ("slower", "faster", "as fast"))
    rank = solution.first_rank_name
    if rank == "time":
        return speed
    mine, theirs = solution.first_rank(solution.pick), solution.first_rank(row)
    noun = RANK_WORDS[rank]
    ranked = compared(theirs, mine, (f"more {noun}", f"less {noun}", f"the same {noun}"))
    return f"{speed}, with {ranked}"


def _constrained(solution: Solution) -> bool:
    return bool(solution.question.constraints.bounds)


def _differences(config: Config, other: Config) -> Iterator[tuple[str, int, int]]:
    """(field, the first's value, the other's) of each field in which they differ."""
    mine, theirs = config.to_dict(), other.to_dict()
    for name, value in mine.items():
        if theirs[name] != value:
            yield name, value, theirs[name]


def _other_tile(table: Table, pick: Row, ranking: Ranking) -> Row | None:
    """The best row whose tile differs from the pick's."""
    columns = table.works.config
    same = np.ones(len(table.first), dtype=bool)
    for name in ("tile_m", "tile_n", "tile_k"):
        same &= columns[name] == getattr(pick.config, name)
    rest = table.restrict(~same, np.ones(len(table.kernels.slots), dtype=bool))
    if not rest.size:
        return None
    return find_row(table, best_rows(rest, 1, ranking)[0].config)
