"""Which of norm_activation's blocks are proved and searched: one for all that are alike."""

from __future__ import annotations

from dataclasses import replace

from solver.ring.explore import Programs
from solver.ring.state import Fault
from solver.ring.stream import Stream, StreamUnit
from solver.ring.stream_machine import explore_stream
from solver.ring.teams import Teams

CHUNKS = 3  # of a row
CHUNK = 64  # its bytes: any
SEARCHED_WARPS = 2  # of a role, of a team, of a group, and groups


def block_of(teams: Teams) -> Teams:
    """What decides a proof: for any depth, any chunks and any number of sums."""
    if not isinstance(teams, Stream):
        return Teams(teams.team, teams.team, 1)
    hold, chunked = ("shared", True) if teams.keeps_row else ("registers", False)
    return replace(teams, depth=2, sums=1, hold=hold, chunked=chunked)


def instances(teams: Teams) -> list[Teams]:
    """What decides the order of steps, with two of what is more than two: one group with its teams,
    and several groups of a warp each. Groups that load for themselves have nothing to do with one
    another."""
    team = min(SEARCHED_WARPS, teams.team)
    if not isinstance(teams, Stream):
        return [Teams(team, team, teams.sums)]
    producers = min(SEARCHED_WARPS, teams.producers, teams.loaders)
    depth = CHUNKS if teams.keeps_row else 2
    in_group = team * min(SEARCHED_WARPS // team, teams.group_warps // teams.team)
    same = replace(teams, producers=producers, groups=1, depth=depth)
    found: list[Teams] = [replace(same, warps=in_group, team=team)]
    if teams.groups > 1 and teams.producers:
        found.append(replace(same, groups=SEARCHED_WARPS, warps=SEARCHED_WARPS, team=1))
    return found


def small_units(stream: Stream) -> list[StreamUnit]:
    """Units that go round the rings twice and more; the last group ends a round earlier."""
    if not stream.chunked:
        rounds = 2 * stream.depth + 1
        rows = max(1, stream.group_warps // stream.team)
        whole = [StreamUnit(rows, (CHUNK * rows,))] * (rounds * stream.groups - 1)
        return [*whole[:-1], StreamUnit(1, (CHUNK,))]
    chunks = (CHUNK,) * CHUNKS
    unit = StreamUnit(1, chunks * 2 if stream.hold == "reload" else chunks)
    return [unit] * (stream.groups + 1 if stream.groups > 1 else 2)


def search(
    teams: Teams, programs: Programs | None = None, *, every_order: bool = False
) -> Fault | int:
    """Every order of an instance's programs over a few chunks: its own, or others for the same
    units. The first fault, or the number of states. Raises TooManyStates."""
    if programs is None:
        if isinstance(teams, Stream):
            programs = teams.programs(small_units(teams))
        else:
            programs = teams.alike([CHUNKS])
    return explore_stream(teams, programs, every_order=every_order)
