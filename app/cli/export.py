"""export: a kernel and its launch to take home."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from app import exports
from app.cli.arguments import add_config, add_device, add_problem, device_of, problem_of
from app.cli.documents import check_folder, config_of, write_folder
from app.cli.session import OK, Session
from app.cli.show import show_record


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    export_ = commands.add_parser(
        "export", help="a kernel to take home: source, cubin, how it is launched; needs no GPU"
    )
    add_problem(export_)
    add_config(export_, required=False)
    add_device(export_)
    export_.add_argument(
        "--out", required=True, metavar="DIR", type=Path, help="the folder to write to"
    )
    export_.set_defaults(run=export)


def export(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright export M N K --out DIR``."""
    problem = problem_of(arguments)
    config = None if arguments.config is None else config_of(arguments.config)
    check_folder(arguments.out)
    with session.waiting("compiling"):
        made = exports.export(problem, config, device_of(arguments))
    write_folder(arguments.out, made.files)
    record = {
        "out": str(arguments.out),
        "kernel_id": made.recipe["kernel"],
        "files": list(made.files),
        "config": made.recipe["config"],
    }
    words = {**record, "files": ", ".join(made.files)}
    session.emit(record, lambda console: show_record(console, "exported", words))
    return OK
