"""settings: picks in the form that CUTLASS, Triton and inference servers read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from app.cli.arguments import add_cache, add_device, add_json, device_of
from app.cli.documents import check_folder, write_folder
from app.cli.session import OK, Session
from app.cli.shapes import add_shapes, load_shapes
from app.cli.show import show_record
from app.settings_files import CONSUMERS, settings_files


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    settings_ = commands.add_parser(
        "settings", help="picks as settings of CUTLASS, Triton or inference servers"
    )
    add_shapes(settings_)
    settings_.add_argument("--to", required=True, choices=CONSUMERS, help="whose settings")
    add_cache(settings_)
    settings_.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="the folder to write to"
    )
    add_device(settings_)
    add_json(settings_)
    settings_.set_defaults(run=settings)


def settings(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright settings --shapes FILE.csv --to cutlass --out DIR``."""
    check_folder(arguments.out)
    with session.progress("picking") as bar:
        files, cannot = settings_files(
            load_shapes(arguments),
            arguments.to,
            device=device_of(arguments),
            cache=arguments.cache,
            progress=bar,
        )
    write_folder(arguments.out, {name: text.encode() for name, text in files.items()})
    record = {"out": str(arguments.out), "files": list(files), "cannot_express": cannot}

    def show(console: Console) -> None:
        show_record(console, "settings", {"out": record["out"], "files": ", ".join(files)})
        console.print("What they can't express:", markup=False)
        for words in cannot["all"]:
            console.print(f"- {words}", markup=False)

    session.emit(record, show)
    return OK
