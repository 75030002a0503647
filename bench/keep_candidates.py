"""Keep what candidates took, to fit to, before the results they are in are measured anew.

    python -m bench.keep_candidates bench/results/h200/best_*.json

Writes the best rows of the given files, each with its candidates, to
``calibration_candidates.json.gz`` beside the first, with what each file says of itself.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

NAME = "calibration_candidates.json.gz"


def kept(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The best rows of results, and each result without its rows, by suite."""
    rows = [row for result in results for row in result["rows"] if row["role"] == "best"]
    of = {
        result["suite"]: {name: value for name, value in result.items() if name != "rows"}
        for result in results
    }
    return {"results": of, "rows": rows}


def main() -> None:
    """Read, keep, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="+", type=Path)
    paths = parser.parse_args().results
    text = json.dumps(kept([json.loads(path.read_text("utf-8")) for path in paths]), indent=1)
    (paths[0].parent / NAME).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
