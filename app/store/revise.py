"""`python -m app.store.revise "words"`: write the migration that a change of the tables needs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine


def main() -> None:
    """Compare a database of the last migration with the tables and write what is between."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    config = Config()
    config.set_main_option("script_location", "app.store:migrations")
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder) / 'present.db'}")
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            scripts = Path(__file__).parent / "migrations" / "versions"
            number = len(list(scripts.glob("[0-9]*.py"))) + 1
            command.revision(config, sys.argv[1], autogenerate=True, rev_id=f"{number:04}")
        engine.dispose()


if __name__ == "__main__":
    main()
