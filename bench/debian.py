"""Programs that tests and figures need beside Python, from Debian's packages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable


def install(package: str, there: Callable[[], object | None], what: str) -> int:
    """Have a package installed where ``there`` finds nothing; 3 with words where that can't be
    done. ``what`` is what the package has, in words."""
    if there() is not None:
        return 0
    prefix = () if os.geteuid() == 0 else ("sudo", "--non-interactive")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", package)):
        command = (*prefix, "apt-get", *words)
        try:
            code = subprocess.run(command, env=environment, stdout=2).returncode
        except OSError as error:
            print(f"{command[0]}: {error}", file=sys.stderr)
            break
        if code != 0:
            break
    if there() is None:
        print(
            f"{what} is needed and could not be installed; Debian and Ubuntu: "
            f"apt install {package}",
            file=sys.stderr,
        )
        return 3
    return 0
