"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from solver.calibration.profile import check_folder
from solver.errors import InvalidInput


def check_place(path: Path, field: str = "out") -> None:
    """See that a file can be put at ``path``, before anything is measured; its folder is made.

    Raises InvalidInput for ``field``, which named it.
    """
    if path.is_dir():
        raise InvalidInput(field, f"must name a file, {path} is a folder")
    check_folder(path.parent, field)


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of what was there, durably. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
