"""What verifications taught, for commands: kept where WARPWRIGHT_DATABASE names a database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from app.host import detect_host

if TYPE_CHECKING:
    from app.learning import Learning

VARIABLE = "WARPWRIGHT_DATABASE"


@contextmanager
def memory(*, make: bool) -> Iterator[Learning | None]:
    """What is remembered here; None where no database is named, or where its file is not there and
    is not to be made.

    Raises InvalidInput for a name that is none, EnvironmentLacks and StoreUnavailable where the
    database can't be used.
    """
    if VARIABLE not in os.environ:
        yield None
        return
    # Here, not above: what it brings would hold up every command that needs no database.
    from app.learning import Learning, conditions_of
    from app.settings import load_settings
    from app.store.database import Database
    from app.store.measurements import MeasurementStore

    with closing(Database(load_settings().database)) as database:
        if database.absent and not make:
            yield None
            return
        database.open()
        learning = Learning(MeasurementStore(database), conditions_of(detect_host()))
        learning.load()
        yield learning
