"""``python -m acts.cli``: the command ``acts`` where it is not installed."""

from acts.cli.main import app

app(prog_name="acts")
