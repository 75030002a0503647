"""How producers : consumers and depth change the time, measured beside modelled.

Times are over that of the race's fastest kernel of like warps, measured over measured and modelled
over modelled; means are geometric.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from solver.accuracy import geomean
from solver.families.norm_activation import NormConfig
from solver.families.norm_activation_rivals import RIVALS
from solver.fused import HEADLINE, Outcome

OCCUPANCIES = (None, 16, 8, 4)
"""Warps that fit on an SM in the grid; None: as many as do."""

Key = tuple[Hashable, ...]


def ratio_sweep(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Each way of dividing the warps at each occupancy: of rows that have their plain form, the
    fastest of a race by measurement, and by model."""
    return _swept(found, _roles, ("producers", "consumers", "copies"))


def depth_sweep(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Each depth of one copying thread's rings of 16 KiB chunks, at each occupancy."""
    return _swept(found, _depth, ("consumers", "depth"))


def _roles(config: NormConfig) -> Key | None:
    plain = replace(config, rounds=0, stores="vector", register_split=0, blocks_per_sm=1)
    if config.kind != "specialised" or config != plain:
        return None
    return config.producers, config.consumers, config.copies


def _depth(config: NormConfig) -> Key | None:
    roles = _roles(config)
    if roles is None or config.copies != "bulk" or config.groups > 1:
        return None
    return (config.consumers, config.depth) if config.chunk_bytes == DEPTH_CHUNK_BYTES else None


DEPTH_CHUNK_BYTES = 16384


def _swept(
    found: Sequence[Outcome], key_of: Callable[[NormConfig], Key | None], names: tuple[str, ...]
) -> list[dict[str, Any]]:
    lines = []
    for warps in OCCUPANCIES:
        pairs: dict[Key, list[tuple[float, float]]] = {}
        for outcome in found:
            if outcome.race.warps_per_sm == warps:
                for key, pair in _of_race(outcome, key_of):
                    pairs.setdefault(key, []).append(pair)
        for key in sorted(pairs, key=str):
            measured, modelled = zip(*pairs[key], strict=True)
            lines.append(
                {
                    "warps_per_sm": warps,
                    **dict(zip(names, key, strict=True)),
                    "problems": len(measured),
                    "measured": geomean(list(measured)),
                    "modelled": geomean(list(modelled)),
                }
            )
    return lines


def _of_race(
    outcome: Outcome, key_of: Callable[[NormConfig], Key | None]
) -> Iterator[tuple[Key, tuple[float, float]]]:
    """Of each key, the least time over like warps' fastest: measured, and modelled."""
    base = outcome.fastest(*RIVALS[HEADLINE])
    if base is None:
        return
    groups: dict[Key, list[int]] = {}
    for row, config in enumerate(outcome.race.configs):
        if (key := key_of(config)) is not None:
            groups.setdefault(key, []).append(row)
    for key, rows in groups.items():
        measured, modelled = outcome.race.measured_us, outcome.predicted_us
        yield (
            key,
            (
                float(measured[rows].min() / measured[base]),
                float(modelled[rows].min() / modelled[base]),
            ),
        )
