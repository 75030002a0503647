"""docs/img/page.png: the service's page with the answer for 4096 x 4096 x 4096, in a real browser.

python -m bench.page_picture
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.browser import browser
from bench.service_process import ServiceProcess

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "img" / "page.png"
WIDTH, HEIGHT = 900, 1080


@contextmanager
def page_service(**variables: str) -> Iterator[ServiceProcess]:
    """The service on a free port of loopback, with a database of its own."""
    command = [sys.executable, "-m", "app.cli.main", "serve", "--port", "0", "--json"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        database = f"sqlite:///{folder / 'warpwright.db'}"
        environment = {**os.environ, "WARPWRIGHT_DATABASE": database, **variables}
        made = ServiceProcess(command, environment, folder / "log", folder=ROOT)
        with made:
            yield made


def main() -> None:
    """Take the picture."""
    with page_service() as service, browser() as opened:
        page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"http://127.0.0.1:{service.port}/")
        page.click("#ask")
        page.wait_for_selector("#answer:visible")
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
