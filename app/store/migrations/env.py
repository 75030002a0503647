"""Runs migrations on the connection that ``app.store.database.migrate`` hands over.

To write one after a change of the tables, with `python -m app.store.revise "words"`. They go one
way: on SQLite, taking a column off copies its table and drops the old one, and with it the rows
that belong to that one's.
"""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import JSON

from app.store.tables import Moment, metadata


def rendered(kind: str, item: Any, _: Any) -> str | Literal[False]:
    """A column's type as a migration has it: in SQLAlchemy's own words, which stay as they are
    when the tables' change."""
    if kind == "type" and isinstance(item, Moment):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, JSON):
        return 'sa.JSON().with_variant(postgresql.JSONB(), "postgresql")'
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
    compare_type=True,
    render_item=rendered,
)
with context.begin_transaction():
    context.run_migrations()
