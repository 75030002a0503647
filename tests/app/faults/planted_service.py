"""`warpwright serve` with planted work: ``python -m tests.app.faults.planted_service``.

Settings come from WARPWRIGHT_* as the service's do; it prints ``{"port": N}`` and exits as that
does.
"""

from __future__ import annotations

import json
import os
import signal
import sys

CONNECTIONS = "PLANTED_CONNECTIONS_S"
"""Variable that says how long open requests may take once it stops."""
COUNT = "PLANTED_GPUS"
"""Variable that says how many GPUs there are; one."""


def nothing() -> None:
    """A solver process without an engine until a question comes, or a GPU's without CUDA."""


def main() -> None:
    """Serve until killed. Its processes import this module too, and need none of this."""
    import app.gpus
    import app.serve
    import kernels.verify
    from app.cli.session import INTERRUPTED, OK
    from app.serve import address_of, listen, serve
    from app.settings import load_settings
    from tests.app.faults.planted import GPUS, PLANTED

    gpus = GPUS[: int(os.environ.get(COUNT, 1))]
    app.gpus.visible_gpus = lambda: gpus
    kernels.verify.host_gpus = lambda: gpus
    app.serve.CONNECTIONS_S = float(os.environ.get(CONNECTIONS, app.serve.CONNECTIONS_S))
    settings = load_settings(port=0, workers=1)
    listener = listen(settings)
    ended = serve(
        settings,
        listener,
        on_start=lambda: print(json.dumps({"port": address_of(listener)[1]}), flush=True),
        runners=PLANTED,
        initialise=nothing,
        warm_gpu=nothing,
    )
    sys.exit(INTERRUPTED if ended is signal.SIGINT else OK)


if __name__ == "__main__":
    main()
