"""Records as files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", "utf-8")
    os.replace(temporary, path)
