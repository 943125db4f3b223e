"""Sets and schedules for every night: names by run, date and pattern, rows that are shown, columns with types."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acts.language.config import Resume
from acts.language.messages import SetData, read_request
from acts.language.schemas import declared_types
from acts.machines.set_run import column_types, read_cell, resumed_set
from acts.plan.validate import validate_request
from acts.sets.set_files import SetError, SetSources, find_source
from acts.tree.past_run import PastRun, PastSet
from acts.tree.set_records import fill_name, fill_results
from tests.cli.conftest import Acts, new_name, squeeze

ROWS = "orderId,amount\nA-1,50.5\nA-2,sixty\n"
PAYMENT = {
    "properties": {
        "_tool": {"const": "pay"}, "_activity": {"const": "processPayment"}, "_outputPath": {}, "_errorPath": {},
        "_scopes": {"const": ["†input.card"]}, "amount": {"type": "number"},
    },
}  # fmt: skip


def request(source: str = "orders.csv", results: str = "out.jsonl", **config: Any) -> dict[str, Any]:
    return {"config": {"results": results, **config},
            "context": [{"type": "data", "kind": "order", "_instances": {"source": source}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "filled"),
    [
        ("o-{date}.csv", "o-2026-11-28.csv"),
        ("{run}/{date}.jsonl", "nightly-7/2026-11-28.jsonl"),
        ("orders-*.csv", "orders-*.csv"),
        ("{other}.jsonl", "{other}.jsonl"),
    ],
)
def test_names_have_the_run_and_its_date(name: str, filled: str) -> None:
    assert fill_name(name, "nightly/7", "2026-11-28") == filled
    assert fill_results(request(results=name), "nightly/7", "2026-11-28") == request(results=filled)


@pytest.mark.parametrize("pattern", ["o-*.csv", "o-{date}.csv"])
def test_a_run_that_resumes_another_one_reads_the_file_of_that_one(pattern: str) -> None:
    (message,) = [m for m in read_request(request(pattern)).context if isinstance(m, SetData)]
    past = PastRun(workflowId="w", runId="r", set=PastSet(identity="i", source="o-2026-11-27.csv"))
    assert resumed_set(Resume(workflowId="w"), past, message).file == "o-2026-11-27.csv"
    assert resumed_set(Resume(workflowId="w"), past, replace(message, source="mine.csv")).file == ""


def test_of_the_files_that_a_pattern_fits_the_last_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("o-1.csv", "o-3.csv", "o-2.csv", "o-4.txt", ".o-5.csv", "a/x.jsonl"):
        (tmp_path / name).touch()
    sources = SetSources((tmp_path / "none", tmp_path))
    found = [find_source(name, sources) for name in ("o-*.csv", "o-?.*", "a/*", "o-*", "o-1.csv", "https://h/*.csv")]
    assert found == ["o-3.csv", "o-3.csv", "a/x.jsonl", "o-3.csv", "o-1.csv", "https://h/*.csv"]
    for name in ("p-*.csv", "../*.csv", "b/*"):
        with pytest.raises(SetError, match=r"no set|leaves the folder"):
            find_source(name, sources)


COLUMNS: list[tuple[list[Any], dict[str, str]]] = [
    ([{"type": "integer"}], {"x": "integer"}),
    ([{"type": "integer"}, {"type": "number"}], {"x": "number"}),
    ([{"type": "boolean"}, {}], {"x": "boolean"}),
    ([{"type": ["integer", "null"]}], {"x": "integer?"}),
    ([{"anyOf": [{"type": "number"}, {"type": "null"}]}, {"type": "number"}], {"x": "number"}),
    ([{"type": "integer"}, {"type": "string"}], {}),
    ([{"type": "string"}], {}),
]


@pytest.mark.parametrize(("schemas", "types"), COLUMNS)
def test_a_column_has_the_type_that_the_tools_of_a_plan_take(schemas: list[Any], types: dict[str, str]) -> None:
    tools = {
        f"t{i}": {"properties": {"_activity": {"const": "a"}, "_outputPath": {}, "x": s}} for i, s in enumerate(schemas)
    }
    plan = [{"_tool": name, "x": "†order.x", "_outputPath": f"†state.{name}"} for name in tools]
    raw = request()
    raw["context"] += [{"type": "tool", "tool": tools}, {"type": "plan", "plan": plan}]
    assert column_types(validate_request(raw), "order") == types
    nested = {"properties": {"l": {"items": {"$ref": "#/$defs/n"}}}, "$defs": {"n": {"type": "integer"}}}
    assert declared_types(nested, ("l", 0)) == {"integer"}


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("7", "integer", 7), ("-7", "number", -7), ("7.5", "number", 7.5), ("1e3", "number", 1e3), (" 7", "integer", 7),
        ("TRUE", "boolean", True), ("false", "boolean", False), ("", "integer?", None),
        # what is none stays a text, so that the Call says what is wrong
        ("", "integer", ""), ("7.5", "integer", "7.5"), ("yes", "boolean", "yes"), ("7", "", "7"),
        ("1" * 16, "integer", "1" * 16),
    ],
)  # fmt: skip
def test_a_field_is_read_as_its_column_says(text: str, type_: str, value: Any) -> None:
    cell = read_cell(text, type_)
    assert (cell, type(cell)) == (value, type(value))


async def test_a_set_of_tonight_is_run_and_any_of_its_rows_is_shown(
    acts: Acts, worker: dict[str, str], tmp_path: Path
) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    (Path(worker["ACTS_DATA"]) / f"night-{today}.csv").write_text(ROWS, "utf-8")
    file = tmp_path / "plan.json"
    call = {"_tool": "pay", "amount": "†order.amount", "_outputPath": "†state.receipt", "_errorPath": "†state.error"}
    card = {"type": "input", "input": {"card": "card-of-ada"}}
    plan = {"context": [{"type": "tool", "tool": {"pay": PAYMENT}}, card, {"type": "plan", "plan": [call]}]}
    file.write_text(json.dumps(plan), "utf-8")
    name = new_name()
    for command in ("validate", "run"):
        wrong = acts(command, str(file), "--set", "night-{date}.csv:orderID")
        assert (wrong.exit_code, 'did you mean "orderId"?' in wrong.stderr) == (2, True), wrong.stderr
        missing = acts(command, str(file), "--set", "nigth.csv")
        assert (missing.exit_code, f"there are: night-{today}.csv" in missing.stderr) == (2, True), missing.stderr
    for command in ("validate", "simulate"):
        assert acts(command, str(file), "--set", "night-{date}.csv:orderId").exit_code == 0
    done = acts("run", str(file), "--set", "night-{date}.csv:orderId", "--results", "out-{run}.jsonl", "--id", name)
    assert done.exit_code == 0, done.stderr + done.stdout
    assert "2 completed, 0 failed, 1 took an error path" in squeeze(done.stdout)
    assert f"acts retry {name} --only-errors" in squeeze(done.stdout)
    assert "1 call of rows went down an error path: SchemaMismatch in pay" in squeeze(done.stderr)
    lines = [json.loads(text) for text in (Path(worker["ACTS_RESULTS"]) / f"out-{name}.jsonl").read_text().splitlines()]
    assert {line["id"]: [e["call"] for e in line.get("handled", ())] for line in lines} == {"A-1": [], "A-2": ["1:pay"]}
    used = acts("run", str(file), "--set", "night-{date}.csv:orderId", "--results", f"out-{name}.jsonl")
    assert (used.exit_code, "exists already" in used.stderr) == (2, True), used.stderr
    file.write_text(file.read_text("utf-8").replace("order.amount", "order.amuont"), "utf-8")
    typo = acts("validate", str(file), "--set", "night-{date}.csv:orderId")
    assert (typo.exit_code, "no row has †order.amuont" in typo.stderr) == (2, True), typo.stderr
    shown = acts("show", name, "--instance", "A-2")
    words = " ".join(shown.stdout.split())
    assert "✓ 1:pay completed SchemaMismatch: parameters of \"pay\": /amount: 'sixty' is not" in words, shown.stderr
    missing = acts("show", name, "--instance", "A-9")
    assert (missing.exit_code, 'no row "A-9"' in missing.stderr) == (2, True)
    again = acts("retry", name, "--only-errors", "--id", f"{name}-2")
    assert "1 row taken over" in again.stdout, again.stderr
    assert (Path(worker["ACTS_RESULTS"]) / f"out-{name}-2.jsonl").read_text().startswith('{"id":"A-2"')
