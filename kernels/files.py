"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of what was there, durably. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
