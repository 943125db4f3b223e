"""A duration on the command line: ``30s``, ``2h``, ``7d``, or a number of seconds."""

from __future__ import annotations

from cli.command_errors import command_error


def read_seconds(text: str | None, option: str) -> float | None:
    """Seconds; None stays None.

    Raises:
        CommandError: the text is no duration.
    """
    from acts.language.config import parse_seconds

    if text is None:
        return None
    try:
        return parse_seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise command_error(f"{text!r} is no duration", where=option, hint="for example 30s, 2h or 7d") from None
