"""Records as files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.files import replace_whole
from solver.device import Constant


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    replace_whole(path, text.encode())


def write_constants(profile: Path, table: str, constants: Mapping[str, Constant]) -> None:
    """Put fitted constants into a profile's file, as its models' ``table``."""
    raw = json.loads(profile.read_text("utf-8"))
    raw["models"][table] = {name: constant.to_dict() for name, constant in constants.items()}
    replace_whole(profile, (json.dumps(raw, indent=2, ensure_ascii=False) + "\n").encode())
