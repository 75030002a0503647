"""What the database keeps in number: the audit's first lines and measurements go, at the start and
from time to time.

Finished jobs go as others end (``app.store.job_rows.forget``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from app.errors import StoreUnavailable

log = logging.getLogger(__name__)

EVERY_S = 3600.0
PAUSE_S = 0.05
"""Between two transactions, so that whoever waits for the database has a turn."""


async def keep_pruned(steps: Mapping[str, Callable[[], int]], held: Callable[[], bool]) -> None:
    """Prune for ever, at once and every EVERY_S, while the database is ``held``.

    Each of ``steps``, by what it drops, drops some rows and says how many, 0 once it is done.
    What fails is logged and tried again at the next time.
    """
    while True:
        for words, step in steps.items():
            try:
                await _prune(words, step, held)
            except StoreUnavailable as error:
                log.warning("%s can't be dropped yet: %s", words, error)
            except Exception:
                log.exception("%s can't be dropped", words)
        await asyncio.sleep(EVERY_S)


async def _prune(words: str, step: Callable[[], int], held: Callable[[], bool]) -> None:
    total = 0
    while await asyncio.to_thread(held):
        dropped = await asyncio.to_thread(step)
        total += dropped
        if not dropped:
            break
        await asyncio.sleep(PAUSE_S)
    if total:
        log.info("%d %s were dropped: more than are kept", total, words)
