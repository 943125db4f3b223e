"""``--set`` and ``--results``, the bar, and what a terminal is shown of a run over a set."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from acts.views.set_counts import named_instances, set_counts
from cli.command_errors import CommandError
from cli.render import set_progress_view
from cli.render.set_progress_view import SetLog, SetRate, duration_text, outcome_lines, set_bar, set_facts
from cli.text.local_set import describe_set
from cli.text.set_input import add_set, names_set, next_results

Json = Any


def request(*calls: Json, context: tuple[Json, ...] = ()) -> dict[str, Json]:
    return {"context": [{"type": "tool", "tool": "pay"}, *context, {"type": "plan", "plan": list(calls)}]}


PAY = {"_tool": "pay", "of": "†order.total", "_outputPath": "†state.paid"}
SET = {"type": "data", "kind": "order", "_instances": {"source": "old.jsonl", "id": "no"}}


def set_of(found: Json) -> dict[str, Json]:
    (message,) = [m for m in found["context"] if "_instances" in m]
    assert isinstance(message, dict)
    return message


@pytest.mark.parametrize(
    ("calls", "context", "kind"),
    [
        ([PAY], (), "order"),
        (
            [PAY, {"_tool": "pay", "of": "†state.paid", "text": "Dear †{order.name}", "_outputPath": "†data.x"}],
            (),
            "order",
        ),
        ([{"_tool": "pay", "of": ["†input.rate", {"x": "†row.y"}]}], ({"type": "input", "rate": 2},), "row"),
        ([{"_tool": "pay", "of": "††order"}], (), "row"),
    ],
)
def test_the_rows_are_of_the_kind_that_calls_read_and_nothing_provides(
    calls: list[Json], context: tuple[Json, ...], kind: str
) -> None:  # fmt: skip
    found = add_set(request(*calls, context=context), "orders.csv:id", None)
    assert set_of(found) == {"type": "data", "kind": kind, "_instances": {"source": "orders.csv", "id": "id"}}
    assert found["context"][-1]["type"] == "plan"


def test_two_kinds_that_could_be_the_rows_are_an_error() -> None:
    with pytest.raises(CommandError, match="the calls read customer, order"):
        add_set(request(PAY, {**PAY, "of": "†customer.id"}), "orders.csv", None)


def test_a_set_of_the_plan_gets_another_source_and_keeps_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.touch()
    found = add_set(request(PAY, context=(SET,)), str(file), str(tmp_path / "out.jsonl"))
    assert set_of(found) == {**SET, "_instances": {"source": str(file), "id": "no"}}
    assert found["config"] == {"results": str(tmp_path / "out.jsonl")}
    assert names_set(found)
    assert not names_set(request(PAY))


@pytest.mark.parametrize("url", ["https://host:8443/orders.csv", "https://host/orders.jsonl.gz"])
def test_a_url_keeps_its_port_and_may_have_an_id(url: str) -> None:
    assert set_of(add_set(request(PAY), url, None))["_instances"] == {"source": url}
    assert set_of(add_set(request(PAY), f"{url}:id", None))["_instances"] == {"source": url, "id": "id"}


def test_results_that_exist_or_are_of_no_set_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").touch()
    with pytest.raises(CommandError, match="exists already"):
        add_set(request(PAY), "orders.csv", str(tmp_path / "out.jsonl"))
    with pytest.raises(CommandError, match="no set is named"):
        add_set(request(PAY), None, "out.jsonl")


# -- progress ---------------------------------------------------------------------------


def status(completed: int, failed: int = 0, total: int | None = 1000, phase: str = "running") -> dict[str, Json]:
    counts = {"total": total, "completed": completed, "failed": failed, "running": 100}
    return {"phase": phase, "calls": [], "instances": counts, "failures": [f"o{n}" for n in range(failed)]}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(set_progress_view.time, "monotonic", lambda: now[0])
    return now


def test_the_bar_has_the_share_the_rate_and_the_time_left(clock: list[float]) -> None:
    rate = SetRate()
    for second in range(11):
        clock[0] = float(second)
        rate.add(20 * second)
    assert set_facts(status(198, 2), rate) == ["200 of 1,000 rows (20 %)", "2 failed", "20/s", "40 s left"]
    assert set_facts(status(200, phase="paused"), rate) == ["200 of 1,000 rows (20 %)"]
    assert set_facts(status(0, total=None), rate) == ["counting the rows"]
    screen = Console(file=io.StringIO(), width=120)
    screen.print(set_bar(status(190, 10), rate))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert len(lines) == 2  # one screen, however many rows there are
    assert lines[1].strip() == "failed: o0, o1, o2, o3, o4, …"


def test_the_rate_is_that_of_the_last_minute(clock: list[float]) -> None:
    rate = SetRate()
    for second, ended in ((0, 0), (100, 1000), (130, 1030), (159, 1060)):
        clock[0] = float(second)
        rate.add(ended)
    assert rate.per_second == pytest.approx(60 / 59)


def test_a_log_has_a_line_now_and_then(clock: list[float]) -> None:
    log, lines = SetLog(), list[str | None]()
    for second in range(101):
        clock[0] = float(second)
        lines.append(log.line(status(10 * second)))
    shown = [line for line in lines if line]
    assert len(shown) == 20
    assert shown[-1] == "1,000 of 1,000 rows (100 %)"


def test_what_a_run_came_to_is_two_lines() -> None:
    result = {**status(49, 1, total=100, phase="partial"), "results": "out.jsonl"}
    assert outcome_lines(result) == [
        "100 rows: 49 completed, 1 failed, 50 did not run to their end", "results: out.jsonl",
    ]  # fmt: skip


def test_of_a_run_that_still_runs_the_rest_has_not_ended_yet() -> None:
    (line,) = outcome_lines(status(49, 1, total=100, phase="running"))
    assert line == "100 rows: 49 completed, 1 failed, 50 have not ended yet"


def test_counts_are_told_from_instances_of_any_name() -> None:
    assert set_counts(status(1)) is not None
    named = {"instances": {"completed": "running", "total": "completed"}}
    assert (set_counts(named), named_instances(named)) == (None, named["instances"])
    assert named_instances(status(1)) == {}


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (12_000, "3 h 20 min")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_simulation_says_how_many_rows_there_are_where_the_file_is_here(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("id\n1\n2\n")
    assert describe_set(str(file)).endswith("orders.csv, which has 2")
    file.write_text("id\n")
    assert "cannot be read here: orders.csv has no rows" in describe_set(str(file))
    assert describe_set("https://host/orders.csv").endswith("how many there are is not known here")


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("out.jsonl", "out.2.jsonl"),
        ("/data/out.2.jsonl", "/data/out.3.jsonl"),
        ("a/orders.2026-11-22.jsonl", "a/orders.2026-11-22.2.jsonl"),
        ("orders.20261122.jsonl", "orders.20261122.2.jsonl"),
        ("out", "out.2"),
    ],
)
def test_a_retry_names_the_next_results_file(file: str, expected: str) -> None:
    assert next_results(file) == expected


def test_a_results_file_that_is_here_is_not_named_again(tmp_path: Path) -> None:
    (tmp_path / "out.2.jsonl").touch()
    assert next_results(str(tmp_path / "out.jsonl")) == str(tmp_path / "out.3.jsonl")
