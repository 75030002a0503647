"""The distribution's Chromium without a window, for what only a browser shows.

    python -m bench.browser --install    look for it, have Debian's installed

Needs the packages of requirements/browser.txt. A browser that playwright downloads is not used:
what is tested is what people have, and it comes with its updates.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from bench import debian

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """Where Chromium is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def missing() -> str:
    """What this machine lacks to open a page; empty where nothing."""
    if find_spec("playwright") is None:
        return "playwright is not installed: pip install -r requirements/browser.txt"
    if program() is None:
        return "Chromium is not installed: python -m bench.browser --install"
    return ""


@contextmanager
def browser() -> Iterator[Any]:
    """A browser. Raises RuntimeError where there is none."""
    if words := missing():
        raise RuntimeError(words)
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox does not run as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield opened
        finally:
            opened.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["--install"]:
        sys.exit(__doc__)
    sys.exit(debian.install("chromium", program, "Chromium"))
