"""Records as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernels.files import replace_whole


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    replace_whole(path, text.encode())
