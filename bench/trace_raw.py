"""Traced launches as a file, so that what is made of them can be made again without a GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from bench.trace_sample import Traced
from bench.trace_summary import Row
from kernels.protocol import Protocol
from kernels.trace_launch import CriticalCta, TracedLaunches, TraceTask
from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import Problem

Raw = list[tuple[Traced, TracedLaunches]]
_FIGURES = tuple(f.name for f in fields(TracedLaunches) if f.name != "ctas")
_CTA = tuple(f.name for f in fields(CriticalCta) if f.name != "stripes")


def save(path: Path, facts: dict[str, Any], raw: Raw, failed: Sequence[Row] = ()) -> None:
    """Write launches with ``facts`` about where they ran, and the rows of configurations that
    ``failed``: an archive of arrays (.npz)."""
    rows: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for row, (traced, launched) in enumerate(raw):
        rows.append(
            {
                "role": traced.role,
                "suite": traced.suite,
                "measured_us": traced.measured_us,
                "problem": traced.task.problem.to_dict(),
                "config": traced.task.config.to_dict(),
                "device": traced.task.device,
                "protocol": asdict(traced.task.protocol),
                "launched": {name: getattr(launched, name) for name in _FIGURES},
                "ctas": [{name: getattr(cta, name) for name in _CTA} for cta in launched.ctas],
            }
        )
        for place, cta in enumerate(launched.ctas):
            arrays[f"{row}_{place}"] = cta.stripes
    path.parent.mkdir(parents=True, exist_ok=True)
    about = np.frombuffer(
        json.dumps({"facts": facts, "rows": rows, "failed": failed}).encode(), np.uint8
    )
    with path.open("wb") as file:
        np.savez_compressed(file, about=about, **arrays)


def load(path: Path) -> tuple[dict[str, Any], Raw, list[Row]]:
    """What ``save`` wrote. Raises InvalidInput (field ``read``) for another file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            about = json.loads(archive["about"].tobytes())
            raw = [
                (_traced(row), _launched(row, place, archive))
                for place, row in enumerate(about["rows"])
            ]
            return about["facts"], raw, about["failed"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput("read", f"{path} holds no traced launches: {error!r}") from error


def _traced(row: dict[str, Any]) -> Traced:
    task = TraceTask(
        Problem(**row["problem"]),
        Config.from_dict(row["config"]),
        row["device"],
        Protocol(**row["protocol"]),
    )
    return Traced(row["role"], row["suite"], task, row["measured_us"])


def _launched(row: dict[str, Any], place: int, archive: Any) -> TracedLaunches:
    ctas = tuple(
        CriticalCta(**cta, stripes=archive[f"{place}_{number}"])
        for number, cta in enumerate(row["ctas"])
    )
    return TracedLaunches(**row["launched"], ctas=ctas)
