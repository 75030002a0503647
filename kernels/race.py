"""Finding the fastest of several candidates without timing each for long: a race.

All run in turn, round after round, so that clock and temperature are the same for all; who is
clearly slower than the leader drops out, unless how much slower is what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.protocol import FEWEST_ROUNDS, Protocol
from kernels.replay import (
    Graph,
    Side,
    elapsed_us,
    event,
    prepare,
    rest,
    rounds_at_once,
    spend,
    warm_device,
)
from kernels.session import Session
from kernels.statistics import median_interval

# After so many rounds, out goes who took more than so many times the leader's time: the interval of
# its paired ratios lies above that. One round is no evidence; two settle a wide gap; one that is as
# fast as the leader loses five in a row once in 32 times, and then little is lost. With more rounds
# a few of them may be won: 99 %, because each look is another chance to be wrong.
_OUT = ((2, 1.25), (FEWEST_ROUNDS, 1.0))
_OUT_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Lap:
    """How one candidate did: its median time per launch over the rounds that it ran, and whether it
    dropped out after these."""

    median_us: float
    rounds: int
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Race:
    """Every candidate's lap, in their order, the index of the fastest, and the times of each round
    that each ran, µs a launch, from the first round on."""

    laps: tuple[Lap, ...]
    winner: int
    times_us: tuple[tuple[float, ...], ...] = ()


def still_running(times_us: Sequence[Sequence[float]], running: Sequence[int]) -> list[int]:
    """Which of the candidates ``running`` stay, by their times of the rounds so far.

    Those that run have as many rounds each. The leader has the least median, and stays.
    """
    leader = min(running, key=lambda index: median(times_us[index]))
    rounds = len(times_us[leader])
    margins = [margin for least, margin in _OUT if rounds >= least]
    if not margins:
        return list(running)

    def stays(index: int) -> bool:
        pairs = zip(times_us[index], times_us[leader], strict=True)
        low, _ = median_interval([mine / best for mine, best in pairs], _OUT_CONFIDENCE)
        return low <= margins[-1]

    return [index for index in running if index == leader or stays(index)]


def _prepared(
    session: Session, sides: Sequence[Side], protocol: Protocol, flush: bool
) -> list[Graph]:
    """The sides' graphs, each of as many rotations as the first one needs: candidates for one
    thing take about as long, so that only one is tried out before it is captured for good."""
    first = prepare(session, sides[0], protocol, flush)
    graphs = [first]
    for side in sides[1:]:
        side.enqueue()  # loads code, which must not happen during capture
        session.stream.synchronize()
        graphs.append(Graph(session, side, first.passes, first.replay_us))
    return graphs


def race(
    session: Session,
    sides: Sequence[Side],
    protocol: Protocol,
    flush: bool = False,
    *,
    drop: bool = True,
) -> Race:
    """Run the sides against one another by ``protocol``, whose budget is that of each of them.

    It ends with one left, with ``max_rounds`` of those that stayed, or once the budget is gone
    and ``min_rounds`` are done. Without ``drop`` all stay. ValueError where there is no side.
    """
    if not sides:
        raise ValueError("a race needs a candidate")
    stream = session.stream
    graphs = _prepared(session, sides, protocol, flush)
    warm_device(session, graphs[:1])
    spend(session, graphs[:1], protocol.warmup_ms)
    times_us: list[list[float]] = [[] for _ in graphs]
    running = list(range(len(graphs)))
    spent_ms, rounds = 0.0, 0
    while True:
        field = [graphs[index] for index in running]
        batch_rounds = rounds_at_once(field)
        field[0].replay()  # untimed: the CPU runs ahead from here
        marks: list[tuple[int, Any, Any]] = []
        batch = event(stream)
        for number in range(rounds, rounds + batch_rounds):
            for index in running[:: -1 if number % 2 else 1]:
                if flush:
                    session.flush_l2(protocol.l2_multiple)
                start = event(stream)
                graphs[index].replay()
                marks.append((index, start, event(stream)))
        marks[-1][2].synchronize()
        for index, start, end in marks:
            times_us[index].append(elapsed_us(start, end) / graphs[index].launches)
        batch_ms = elapsed_us(batch, marks[-1][2]) / 1e3
        spent_ms += batch_ms
        rounds += batch_rounds
        if drop:
            running = still_running(times_us, running)
        spent = spent_ms >= protocol.budget_ms * len(sides) and rounds >= protocol.min_rounds
        if len(running) == 1 or rounds >= protocol.max_rounds or spent:
            break
        rest(protocol, batch_ms)
    winner = min(running, key=lambda index: median(times_us[index]))
    laps = tuple(
        Lap(median(times), len(times), index not in running) for index, times in enumerate(times_us)
    )
    return Race(laps, winner, tuple(map(tuple, times_us)))
