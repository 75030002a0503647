"""How a norm_activation problem is dealt out: to blocks, SMs, workers and slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.families.norm_activation import PLAIN_PASSES, NormProblem
from solver.families.norm_activation_columns import NormRows


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a launch of each configuration has, and what falls to the SM with most. Shape [R] each.

    ``blocks`` are launched; an SM that ``active`` counts has some, ``resident`` at once. A
    ``worker`` (a team without a ring, a group with one) has ``slots`` items at once. An item is a
    row or a chunk, ``parts`` to a unit of work; ``chunks`` to an item that waits in several slots.
    ``items`` and ``rows`` are the SM's, ``rows_of_team`` what a team has of a unit. ``passes``: how
    often a row is read.
    """

    blocks: Any
    active: Any
    resident: Any
    workers: Any
    slots: Any
    parts: Any
    chunks: Any
    items: Any
    rows: Any
    rows_of_team: Any
    passes: Any


def geometry(problem: NormProblem, r: NormRows, sms: int) -> Geometry:
    """Persistent blocks have shares alike; the others are taken as SMs come free."""
    c = r.config
    ring = r.has_ring
    teams = c["consumers"] // c["team"]  # of a block
    groups = np.where(ring, c["groups"], 1)
    rows_of_unit = np.where(ring, r.rows_per_unit, teams)
    units = -(-problem.rows // rows_of_unit)
    each = c["rounds"] * groups  # units of a block that ends
    ends = each > 0
    by_rounds = -(-units // np.maximum(1, each))
    blocks = np.where(ends, by_rounds, np.minimum(units, sms * r.resident))
    blocks_of_sm = -(-blocks // sms)
    resident = np.minimum(r.resident, blocks_of_sm)
    of_block = np.where(ends, np.minimum(each, units), -(-units // blocks))
    units_of_sm = np.minimum(blocks_of_sm * groups * -(-of_block // groups), units)
    # An item is a chunk, twice where it is reloaded; a row whose chunks wait in the ring is one.
    whole = ring & r.is_one_of("hold", "shared")
    reload = ring & r.is_one_of("hold", "reload")
    chunks = np.where(whole, r.chunks_per_unit, 1)
    parts = np.where(ring, r.chunks_per_unit * np.where(reload, 2, 1) / chunks, teams)
    plain = r.is_one_of("kind", "plain")
    return Geometry(
        blocks=blocks,
        active=np.minimum(sms, blocks),
        resident=resident,
        workers=resident * np.where(ring, groups, teams),
        slots=np.where(ring, c["depth"] / chunks, 1.0),
        parts=parts,
        chunks=chunks,
        items=np.where(ring, units_of_sm * parts, np.minimum(units_of_sm * teams, problem.rows)),
        rows=np.minimum(units_of_sm * rows_of_unit, problem.rows),
        rows_of_team=np.where(ring, -(-r.rows_per_unit * groups // teams), 1),
        passes=np.where(plain, PLAIN_PASSES[problem.norm], np.where(reload, 2, 1)),
    )
