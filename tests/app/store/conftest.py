"""A store of jobs on each kind of database."""

from __future__ import annotations

import pytest

from app.store.database import Database
from app.store.jobs import JobStore


@pytest.fixture
def store(database: Database) -> JobStore:
    """A store whose queue takes 5 and that keeps 3."""
    return JobStore(database, waiting=5, kept=3)
