"""table: picks of many shapes, made offline and loaded by kernels.gemm."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app.cli.arguments import add_cache, add_device, add_json, add_wishes, device_of
from app.cli.documents import check_writable, wishes_of, write_json
from app.cli.session import OK, Session
from app.cli.shapes import add_shapes, load_shapes
from app.cli.show import show_record
from app.pick_table import make_table
from kernels.picks import TABLE_VARIABLE
from solver.question import PROOFS


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    table_ = commands.add_parser(
        "table", help=f"picks of many shapes in a file that kernels.gemm loads ({TABLE_VARIABLE})"
    )
    add_shapes(table_)
    table_.add_argument("--proof", default="full", metavar="|".join(PROOFS))
    add_cache(table_)
    add_wishes(table_)
    table_.add_argument("--out", required=True, type=Path, metavar="FILE")
    add_device(table_)
    add_json(table_)
    table_.set_defaults(run=table)


def table(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright table --shapes FILE.csv --out table.json``."""
    device = device_of(arguments)
    objective, constraints = wishes_of(arguments)
    check_writable(arguments.out)
    with session.progress("picking") as bar:
        document = make_table(
            load_shapes(arguments),
            device=device,
            cache=arguments.cache,
            proof=arguments.proof,
            objective=objective,
            constraints=constraints,
            progress=bar,
        )
    write_json(arguments.out, document)
    record = {"out": str(arguments.out), "rows": len(document["rows"]), **document["made_for"]}
    session.emit(record, lambda console: show_record(console, "table", record))
    return OK
