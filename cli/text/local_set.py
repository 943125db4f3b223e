"""What a command that needs no server can say of a set: how many rows it has, where its file is here."""

from __future__ import annotations

from pathlib import Path

from cli.console import clean


def describe_set(source: str) -> str:
    """``all figures are those of one row of orders.csv, which has 100,000``."""
    head = f"all figures are those of one row of {clean(source, 200)}"
    path = Path(source)
    if "://" in source or not path.is_file() or path.name.endswith(".gz"):
        return f"{head}; how many there are is not known here"
    from sets.set_errors import SetError
    from sets.survey import survey

    try:
        with path.open("rb") as stream:
            found = survey(stream, path.name, path.stat().st_size, None, lambda: None)
    except (OSError, SetError) as error:
        return f"{head}, which cannot be read here: {clean(error, 200)}"
    return f"{head}, which has {found.total:,}"
