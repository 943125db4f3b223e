"""``python -m cli``: the command ``acts`` where it is not installed."""

from cli.main import app

app(prog_name="acts")
