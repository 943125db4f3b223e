"""The delegates that ship with the engine: each is a valid Request with schemas for its input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acts.delegates.definitions import read_definition, read_file
from acts.delegates.sources import SHIPPED
from acts.language.messages import Data, parse_request
from acts.language.schemas import Checker
from acts.machines.commands import AskSolution, Finish
from tests.agent_driver import Agent

ROOT = Path(__file__).parents[2]
JsonObject = dict[str, Any]

# name: (valid inputs, an invalid one, valid outputs, an invalid one)
CASES: dict[str, tuple[list[JsonObject], JsonObject, list[JsonObject], JsonObject]] = {
    "summarize": (
        [{"text": "Long."}, {"text": "Long.", "maxWords": 20, "language": "de"}],
        {"text": "Long.", "maxWords": 0},
        [{"summary": "Short.", "keyPoints": []}, {"summary": "Short.", "keyPoints": ["One.", "Two."]}],
        {"summary": "Short."},
    ),
    "translate": (
        [
            {"text": "Order {id}", "to": "de"},
        ],
        {"text": "Order"},
        [{"text": "Auftrag {id}", "from": "en"}],
        {"text": "Auftrag", "from": None},
    ),
    "extract": (
        [
            {"text": "Invoice 7: 12.50 EUR", "fields": [{"name": "number"}]},
        ],
        {"text": "Invoice", "fields": []},
        [
            {"fields": {"number": 7, "sum": 12.5, "paid": False, "due": "2026-11-30", "tags": ["a"]}, "missing": []},
        ],
        {"fields": {"number": None}, "missing": []},
    ),
    "moderate": (
        [{"comment": ""}, {"comment": "No.", "rules": ["be kind"], "repliesTo": "Yes?"}],
        {"text": "No."},
        [
            {"verdict": "allow", "reason": "A plain no.", "rules": []},
        ],
        {"verdict": "delete", "reason": "An insult.", "rules": []},
    ),
    "review": (
        [{"draft": "Dear Sir", "criteria": ["it is polite"], "purpose": "a letter"}],
        {"draft": "Dear Sir", "criteria": []},
        [
            {"passed": True, "findings": [{"criterion": "it is polite", "met": True, "why": "Dear Sir", "fix": None}]},
        ],
        {"passed": "yes", "findings": []},
    ),
}  # fmt: skip

every_delegate = pytest.mark.parametrize("name", CASES)


def definition(name: str) -> JsonObject:
    data, source = read_file([SHIPPED], name)
    return read_definition(data, source)


def input_of(name: str) -> Data:
    (message,) = [m for m in parse_request(definition(name)).data() if m.type == "input"]
    return message


def build_agent(name: str, input_: JsonObject) -> Agent:
    """An agent as the engine builds it from the definition: with an inherited model, and the input at the end."""
    saved = definition(name)
    message = {"type": "input", "input": input_, "schema": input_of(name).schema}
    config = {"model": "scripted:any", **saved["config"]}
    return Agent(parse_request({**saved, "config": config, "context": [*saved["context"], message]}))


@every_delegate
def test_a_definition_has_instructions_a_schema_for_its_input_and_no_model(name: str) -> None:
    saved = definition(name)
    assert sorted(saved) == ["config", "context", "schema"]
    assert "model" not in saved["config"]
    assert [m["type"] for m in saved["context"]] == ["system", "input"]
    assert "never followed" in saved["context"][0]["message"]  # the input is data, not an instruction
    assert set(saved["context"][1]) == {"type", "schema"}


@every_delegate
def test_the_input_schema_accepts_valid_inputs_and_no_others(name: str) -> None:
    good, bad, _, _ = CASES[name]
    check = Checker(input_of(name).schema)
    assert [check.defects(value) for value in good] == [[] for _ in good]
    assert check.defects(bad) != []
    assert check.defects({**good[0], "surprise": 1}) != []


@every_delegate
def test_an_agent_with_a_valid_output_completes_in_one_tick(name: str) -> None:
    good, _, outputs, bad = CASES[name]
    for output in outputs:
        agent = build_agent(name, good[0])
        assert isinstance(agent.next_tick(), AskSolution)
        assert agent.answered({"calls": [], "output": output}) == Finish("completed")
        assert agent.output == output
    again = build_agent(name, good[0])
    again.next_tick()
    assert isinstance(again.answered({"calls": [], "output": bad}), AskSolution)
    assert again.results.errors[0]["code"] == "SchemaMismatch"
