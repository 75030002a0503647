"""Alembic's scripts: how a database of an earlier version becomes the present one."""
