"""Files that appear whole or not at all, and JSON files of a user's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from solver.calibration.profile import check_folder
from solver.errors import InvalidInput


def check_place(path: Path, field: str = "out") -> None:
    """See that a file can be put at ``path``, before anything is measured; its folder is made.

    Raises InvalidInput for ``field``, which named it.
    """
    if path.is_dir():
        raise InvalidInput(field, f"must name a file, {path} is a folder")
    check_folder(path.parent, field)


def read_json(path: Path, field: str) -> Any:
    """The JSON value in a file. Raises InvalidInput for ``field``, which named it."""
    return parse_json(read_bytes(path, field), field, f"{path} ")


def read_bytes(path: Path, field: str) -> bytes:
    """A file's content. Raises InvalidInput for ``field``, which named it."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: its name can't be any file's
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(field, f"{path} can't be read: {why}") from error


def parse_json(text: str | bytes, field: str, name: str = "") -> Any:
    """The value of JSON text; bytes are UTF-8. ``name`` is what the error calls it, before "is".

    Raises InvalidInput for ``field`` where it is no JSON, or is nested too deeply.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError as error:
        raise InvalidInput(field, f"{name}is no JSON: it is nested too deeply") from error
    except ValueError as error:
        raise InvalidInput(field, f"{name}is no JSON: {error}") from error


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of what was there, durably. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
