"""`warpwright serve` with planted work: ``python -m tests.app.faults.planted_service``.

Settings come from WARPWRIGHT_* as the service's do. Prints its port on a line.
"""

from __future__ import annotations


def nothing() -> None:
    """A solver process without an engine until a question comes."""


def main() -> None:
    """Serve until killed. Its processes import this module too, and need none of this."""
    import app.host
    import kernels.verify
    from app.serve import address_of, listen, serve
    from app.settings import load_settings
    from tests.app.faults.planted import GPU, run_planted

    for module in (app.host, kernels.verify):
        module.host_gpu = lambda: GPU
    settings = load_settings(port=0, workers=1)
    listener = listen(settings)
    print(address_of(listener)[1], flush=True)
    serve(settings, listener, runners={"verification": run_planted}, initialise=nothing)


if __name__ == "__main__":
    main()
