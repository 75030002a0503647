"""Programs of the CUDA toolkit that a host may have."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_tool(name: str) -> str | None:
    """A program's path: on PATH, or in the CUDA toolkit."""
    found = shutil.which(name)
    for home in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        candidate = Path(home, "bin", name)
        if found is None and home and candidate.exists():
            found = str(candidate)
    return found
