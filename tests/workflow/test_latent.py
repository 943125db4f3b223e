"""Latent Calls of a plan that is started by itself: each is a request of its own to the model of the run."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.foreign import Foreign, call, ended, result_of_failed, states, tool

Json = Any
Answer = tuple[dict[str, Json], dict[str, Json]]
REFUSED = {"error": {"code": "modelRefused", "message": "it will not"}}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def latent(name: str = "think", *, output: Json = True, **properties: Json) -> dict[str, Json]:
    """A Tool without a program behind it."""
    made = tool(name, activity="", **properties)
    made["tool"]["properties"]["_output"] = output
    return made


@dataclass
class Plans:
    """Starts plans whose model answers from a file that the test writes, the first answer that fits."""

    foreign: Foreign
    folder: Path

    def request(
        self, *calls: dict[str, Json], answers: list[Answer], context: list[Json], **config: Json
    ) -> dict[str, Json]:
        name = f"latent-{uuid.uuid4().hex[:8]}"
        listed = [{"when": when, **answer} for when, answer in answers]
        (self.folder / f"{name}.json").write_text(json.dumps({"answers": listed}), "utf-8")
        return self.foreign.request(*calls, context=context, model=f"scripted:{name}", **config)

    async def run(
        self, *calls: dict[str, Json], answers: list[Answer], context: list[Json], **config: Json
    ) -> dict[str, Json]:
        handle = await self.foreign.start(self.request(*calls, answers=answers, context=context, **config))
        return await ended(handle)

    async def failed(
        self, *calls: dict[str, Json], answers: list[Answer], context: list[Json], **config: Json
    ) -> dict[str, Json]:
        handle = await self.foreign.start(self.request(*calls, answers=answers, context=context, **config))
        return await result_of_failed(handle)


@pytest.fixture
def plans(foreign: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plans:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    return Plans(foreign, tmp_path)


def to(path: str, value: Json) -> dict[str, Json]:
    """An answer that names the outcome it takes."""
    return {"output": value, "path": path}


def errors(result: dict[str, Json]) -> dict[str, str]:
    return {e["call"]: e["code"] for e in result["errors"]}


async def test_the_model_is_shown_the_resolved_call_the_instructions_and_the_tool(plans: Plans) -> None:
    made = latent()
    made["tool"]["description"] = "Thinks about a city."
    result = await plans.run(
        call("think", "†state.a", city="†input.city", _reasoningForCall="because"),
        answers=[({"tool": "think", "says": ['"city":"Riga"', "Be brief.", "Thinks about a city.", "because"],
                   "lacks": ["†input.city", '"_id"']}, to("†state.a", "rainy"))],
        context=[made, {"type": "system", "message": "Be brief."}, {"type": "input", "input": {"city": "Riga"}}],
    )  # fmt: skip
    assert result["state"] == {"a": "rainy"}
    assert result["usage"]["requests"] == 1


async def test_an_answer_that_breaks_the_output_schema_is_mended_in_one_more_turn(plans: Plans) -> None:
    result = await plans.run(
        call("think", "†state.a"),
        answers=[({"says": ["That answer cannot be used", "/n"]}, {"output": {"n": 5}}), ({}, {"output": {"n": "5"}})],
        context=[latent(output=NUMBER)],
    )
    assert (result["state"], result["usage"]["requests"]) == ({"a": {"n": 5}}, 2)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"output": {"n": "five"}}, "InvalidAnswer"),
        ({"text": "five, I think"}, "modelNotJson"),
        (REFUSED, "modelRefused"),
    ],
)
async def test_an_answer_that_is_never_right_fails_the_call_and_says_why(plans: Plans, answer: Json, code: str) -> None:
    result = await plans.failed(
        call("think", "†state.a"), call("think", "†state.b", x="†state.a"), answers=[({}, answer)],
        context=[latent(output=NUMBER)],
    )  # fmt: skip
    assert errors(result) == {"1:think": code}
    assert states(result) == {"1:think": "failed", "2:think": "skipped"}
    assert "usage" not in json.dumps(result["errors"])
    assert result["usage"]["requests"] == (1 if code == "modelRefused" else 2)  # a refusal is not asked again


async def test_the_model_chooses_the_outcome_and_who_needs_the_other_is_skipped(plans: Plans) -> None:
    result = await plans.run(
        call("think", "†state.approved || †state.declined && †data.declined"),
        call("think", "†state.letter", x="†state.approved"),
        call("think", "†state.letter", x="†data.declined.why"),
        answers=[
            ({"says": ['"x":"late"']}, to("†state.letter", "sorry")),
            ({"says": ["†state.approved, †state.declined && †data.declined"]},
             to("†state.declined && †data.declined", {"why": "late"})),
        ],
        context=[latent()],
    )  # fmt: skip
    assert result["state"] == {"declined": {"why": "late"}, "letter": "sorry"}
    assert states(result) == {"1:think": "completed", "2:think": "skipped", "3:think": "completed"}


async def test_a_budget_of_requests_that_is_spent_in_mid_plan_fails_what_still_asks(plans: Plans) -> None:
    result = await plans.failed(
        call("think", "†state.a"), call("think", "†state.b", x="†state.a"), call("think", "†state.c", x="†state.b"),
        call("think", "†state.d", _output=4),
        answers=[({}, to("†state.a", 1))],
        context=[latent(output={"type": "integer"})], budget={"requests": 1},
    )  # fmt: skip
    assert result["state"] == {"a": 1, "d": 4}
    assert errors(result) == {"2:think": "BudgetExceeded"}
    assert states(result)["3:think"] == "skipped"
    assert result["usage"]["requests"] == 1
