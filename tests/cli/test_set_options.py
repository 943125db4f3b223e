"""``--set`` and ``--results``, the bar, and what a terminal is shown of a run over a set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acts.cli.console import CommandError
from acts.cli.text.preflight import add_set, names_set, next_results

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


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("out.jsonl", "out.2.jsonl"),
        ("out-{run}.jsonl", "out-{run}.jsonl"),
        ("/data/out.2.jsonl", "/data/out.3.jsonl"),
        ("a/orders.2026-11-22.jsonl", "a/orders.2026-11-22.2.jsonl"),
        ("orders.20261122.jsonl", "orders.20261122.2.jsonl"),
    ],
)
def test_a_retry_names_the_next_results_file(file: str, expected: str) -> None:
    assert next_results(file) == expected
