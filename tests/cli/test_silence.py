"""What a watched run shows while no worker answers."""

from __future__ import annotations

import pytest

from cli.render.progress_view import SILENCE_SECONDS, LiveTable, LogLines

MISSING = "the worker cannot answer: the value 91 is not in file:/srv/values"


def test_a_silence_is_reported_once_and_its_cause_when_it_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    log, long = LogLines("r"), SILENCE_SECONDS + 1
    for seconds, obstacle in ((1.0, MISSING), (long, ""), (long, ""), (long, MISSING), (long, MISSING)):
        log.show_silence(seconds, obstacle)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("no worker answers; is one running?")
    assert second.endswith(MISSING)


@pytest.mark.parametrize(("obstacle", "text"), [("", "is one running?"), (MISSING, MISSING)])
def test_the_table_says_why_no_worker_answers(obstacle: str, text: str) -> None:
    table = LiveTable("r")
    table.show_silence(SILENCE_SECONDS + 1, obstacle)
    assert any(text in str(part) for part in table._frame().renderables)
