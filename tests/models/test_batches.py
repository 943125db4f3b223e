"""Latent Calls that wait in the providers' batches, against a server that speaks both wire forms."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities import ask_model as module
from acts.activities.models import request_batches
from acts.activities.models.endpoints import cost_of
from acts.activities.models.interface import BatchItem, ModelError, TokenCounts
from acts.activities.registry import Registry
from acts.cli.dev.temporal_server import DevServer
from tests.models.rawserver import RawServer, Reply
from tests.models.support import APIS, Api, model_request
from tests.models.test_ask_model import Contexts, latent_request
from tests.models.test_endpoints import Write, write
from tests.support import assert_eventually
from tests.workflow.conftest import delegates_folder, engine, engine_on, foreign, plain_client, sets_folder  # noqa: F401 - fixtures
from tests.workflow.foreign import Foreign, call, ended, events, status
from tests.workflow.test_latent import latent

__all__ = ["write"]
Json = Any
ANSWER = {"output": "done", "path": "†state.sum"}
TOKENS = TokenCounts(inputTokens=1_000, outputTokens=100)
# By a word in the request, the end of its first submission; all others succeed
ENDS = ("x-odd", "x-slow", "x-unwanted")


class BatchProvider:
    """Anthropic's and OpenAI's batches; each ends when it was asked about so many times."""

    def __init__(self, questions: int = 2) -> None:
        self.host, self.questions, self.text = "", questions, json.dumps(ANSWER)
        self.batches: list[dict[str, Json]] = []
        self.asked: Counter[str] = Counter()

    def answer(self, method: str, path: str, data: bytes) -> Reply | None:
        self.asked[f"{method} {re.sub(r'batch_[0-9]+', 'ID', path)}"] += 1
        name = (re.findall(r"(?:batch|file)_([0-9]+)", path) or ["0"])[0]
        if (method, path) == ("POST", "/v1/messages/batches"):
            self.batches.append({r["custom_id"]: r["params"] for r in json.loads(data)["requests"]})
        elif (method, path) == ("POST", "/v1/files"):
            lines = [json.loads(line) for line in re.findall(rb'^\{"custom_id.*$', data, re.MULTILINE)]
            self.batches.append({line["custom_id"]: line["body"] for line in lines})
            return Reply(body={"id": f"file_{len(self.batches)}", "object": "file"})
        elif path.endswith(("/results", "/content")):
            self.asked[f"outcomes {name}"] += 1
            rows = map(
                self.anthropic_line if "messages" in path else self.openai_line, self.batches[int(name) - 1].items()
            )
            return Reply(body="\n".join(map(json.dumps, rows)).encode())
        elif "/batches" not in path:
            return None
        return Reply(body=self.state(method, int(name) or len(self.batches), is_openai="messages" not in path))

    def state(self, method: str, number: int, *, is_openai: bool) -> Json:
        id_ = f"batch_{number}"
        self.asked[id_] += method == "GET"
        has_ended = self.asked[id_] >= self.questions
        if is_openai:
            return {"id": id_, "status": "completed" if has_ended else "in_progress",
                    "output_file_id": f"file_{number}" if has_ended else None}  # fmt: skip
        results = f"http://{self.host}/v1/messages/batches/{id_}/results" if has_ended else None
        return {"id": id_, "processing_status": "ended" if has_ended else "in_progress", "results_url": results}

    def end_of(self, body: Json) -> str:
        text = json.dumps(body)
        end = next((word for word in ENDS if word in text), "")
        is_late = end == "x-slow" and len(self.batches) > 1
        return "" if is_late else end

    def anthropic_line(self, item: tuple[str, Json]) -> Json:
        name, body = item
        assert "stream" not in body
        message = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "end_turn",
                   "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": self.text}],
                   "usage": {"input_tokens": 1_000, "output_tokens": 100}}  # fmt: skip
        error = {"type": "error", "error": {"type": "invalid_request_error", "message": "too odd"}}
        result = {
            "": {"type": "succeeded", "message": message}, "x-odd": {"type": "errored", "error": error},
            "x-slow": {"type": "expired"}, "x-unwanted": {"type": "canceled"},
        }[self.end_of(body)]  # fmt: skip
        return {"custom_id": name, "result": result}

    def openai_line(self, item: tuple[str, Json]) -> Json:
        name, body = item
        assert "stream" not in body
        usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "input_tokens": 1_000, "output_tokens": 100}
        message = {"role": "assistant", "content": self.text}
        answer = {"model": body["model"], "usage": usage, "choices": [{"message": message, "finish_reason": "stop"}]}
        if "input" in body:
            parts = [("commentary", "Well."), ("final_answer", self.text)]
            output = [{"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}
                      for phase, text in parts]  # fmt: skip
            answer = {"model": body["model"], "usage": usage, "status": "completed", "output": output}
        end = self.end_of(body)
        if end in ("x-slow", "x-unwanted"):
            code = "batch_expired" if end == "x-slow" else "batch_cancelled"
            return {"custom_id": name, "response": None, "error": {"code": code, "message": "over"}}
        wrong = {"error": {"type": "invalid_request_error", "message": "too odd"}}
        response = {"status_code": 400 if end else 200, "request_id": "r", "body": wrong if end else answer}
        return {"custom_id": name, "response": response, "error": None}


@pytest.fixture
def provider(raw: RawServer, monkeypatch: pytest.MonkeyPatch) -> BatchProvider:
    made = BatchProvider()
    made.host = raw.url.removeprefix("http://")
    raw.answer = made.answer
    monkeypatch.setattr(module, "_contexts", Contexts())
    monkeypatch.setattr(request_batches, "WINDOW_SECONDS", 0.2)
    monkeypatch.setattr(request_batches, "FIRST_SECONDS", 0.0)
    return made


def model_of(api: Api) -> str:
    return f"{'anthropic' if api.name == 'anthropic' else 'openai'}:{api.model}"


def cost_of_one(api: Api) -> float:
    cost = cost_of(["anthropic" if api.name == "anthropic" else "openai"], api.model, TOKENS)
    assert cost is not None
    return cost


async def attempt_all(request: dict[str, Any], name: str) -> Json:
    """The result of the activity after all its attempts, each of which knows the heartbeat of the one before."""
    details: tuple[Any, ...] = ()
    for attempt in range(1, 100):
        environment = ActivityEnvironment(object())
        environment.info = replace(environment.info, attempt=attempt, activity_id=name, heartbeat_details=details)
        beats: list[tuple[Any, ...]] = []
        environment.on_heartbeat = lambda *beat, beats=beats: beats.append(beat)
        try:
            result = await environment.run(module.ask_model, json.loads(json.dumps(request)))
            return json.loads(result.payload.data)
        except ApplicationError as error:
            if error.non_retryable:
                raise
            details = json.loads(json.dumps(beats[-1]))
    raise AssertionError("it never ends")


async def test_requests_that_come_together_wait_in_one_batch_and_each_ends_as_the_provider_says(
    api: Api, provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_SECONDS", math.inf)
    words = ["plain", "other", *ENDS]
    requests = [
        latent_request(model=model_of(api), batch=True) | {"call": {"_tool": "sum", "a": word}} for word in words
    ]
    ends: list[Any] = [attempt_all(request, word) for request, word in zip(requests, words, strict=True)]
    results: Any = await asyncio.gather(*ends, return_exceptions=True)
    plain, other, odd, slow, unwanted = results
    for result in (plain, other, slow):
        assert result["output"] == "done"
        assert (result["usage"]["requests"], result["usage"]["outputTokens"]) == (1, 100)
        assert result["usage"]["cost"] == pytest.approx(cost_of_one(api) / 2)
    assert (odd.type, unwanted.type) == ("modelBadRequest", "modelCancelled")
    assert "too odd" in odd.message
    assert [len(batch) for batch in provider.batches] == [5, 1]  # what expired is submitted anew
    assert [provider.asked[f"outcomes {number}"] for number in (1, 2)] == [1, 1]


async def test_an_answer_that_does_not_fit_is_corrected_at_once_at_the_full_price_within_what_is_reserved(
    api: Api, provider: BatchProvider, raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_SECONDS", math.inf)
    provider.text = "I would rather talk."
    cost = cost_of_one(api)
    raw.reply_with(api.reply(json.dumps(ANSWER)))
    request = latent_request(model=model_of(api), batch=True)
    result = await attempt_all(request | {"reserved": {"cost": 1.5 * cost}}, "a")
    assert (result["output"], result["usage"]["requests"], len(raw.requests)) == ("done", 2, 1)
    assert cost / 2 < result["usage"]["cost"] < 1.5 * cost
    with pytest.raises(ApplicationError) as caught:
        await attempt_all(request | {"reserved": {"cost": 1.4 * cost}}, "b")
    assert caught.value.type == "modelNotJson"


async def test_of_all_that_wait_one_asks_and_another_worker_finds_the_answer(
    api: Api, provider: BatchProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_batches, "FIRST_SECONDS", 60.0)
    provider.batches.append({"x": {"model": api.model}})
    items = [BatchItem(model_of(api), "batch_1", "x", time.time())] * 50
    waits = await asyncio.gather(*map(request_batches.check_ended, items), return_exceptions=True)
    assert {(wait.code, wait.retryAfter) for wait in waits if isinstance(wait, ModelError)} == {("modelBatched", 60.0)}
    assert provider.asked["batch_1"] == 1
    request_batches._batches.clear()  # a worker that has seen nothing yet
    assert await request_batches.take_outcome(items[0]) is not None
    assert await request_batches.take_outcome(items[0]) is not None  # the attempt before was lost
    old = replace(items[0], since=0.0)
    assert (request_batches.waiting(old).code, request_batches.waiting(old).retryable) == ("modelTimeout", False)


@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [
        ("failed", "token_limit_exceeded", "modelRateLimit"),
        ("failed", "mismatched_model", "modelBadRequest"),
        ("expired", None, "modelTimeout"),
        ("cancelled", None, "modelCancelled"),
    ],
)
async def test_a_batch_of_openai_that_ends_as_a_whole_fails_each_request_by_its_reason(
    raw: RawServer, end: str, reason: str | None, code: str
) -> None:
    errors = {"data": [{"code": reason, "message": "so it is", "line": 1}]} if reason else None
    raw.answer = lambda *_: Reply(body={"id": "batch_1", "status": end, "errors": errors})
    item = BatchItem("openai:gpt-6-sol", "batch_1", "x", time.time())
    outcome = await request_batches.take_outcome(item)
    with pytest.raises(ModelError) as caught:
        await request_batches.read_answer(item, model_request(), outcome)
    assert caught.value.code == code


async def test_a_server_without_batches_and_a_cloud_are_refused_readably(
    api: Api, raw: RawServer, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_contexts", Contexts())
    monkeypatch.setattr(request_batches, "WINDOW_SECONDS", 0.0)
    raw.reply_with(Reply(status=404, body={"detail": "Not Found"}))
    raw.answer = lambda *request: Reply(status=404, body={}) if request[1] == "/v1/files" else None
    with pytest.raises(ApplicationError, match=r"this server has no batches \(404\): leave out config.models.batch"):
        await attempt_all(latent_request(model=model_of(api), batch=True), "a")
    write(mine={"provider": "openai", "cloud": "bedrock", "region": "eu-west-1", "url": raw.url})
    asked = ["mine/gpt-6-sol", model_of(api), "unknown:x"]
    answer = await ActivityEnvironment().run(Registry({}, ()).look_up, {"batch": asked})
    assert answer["direct"] == ["mine/gpt-6-sol"]


async def test_a_plan_waits_in_one_batch_while_its_worker_is_gone_and_pays_half(
    server: DevServer, plain_client: Client, task_queue: str, raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, provider = APIS["anthropic"], BatchProvider(questions=3)
    provider.host, raw.answer = raw.url.removeprefix("http://"), provider.answer
    provider.text = json.dumps({"output": 7, "path": "†state.all"})
    monkeypatch.setattr(request_batches, "FIRST_SECONDS", 1.0)
    user = Foreign(plain_client, f"engine-{task_queue}", task_queue)
    tool = latent("think", n={"type": "integer"}, _each={}, output={"type": "integer"})
    request = user.request(
        call("think", "†state.all", n="†item", _each="†input.ns"), model=model_of(api), models={"batch": True},
        context=[tool, {"type": "input", "input": {"ns": list(range(20))}}], budget={"cost": 100.0},
    )  # fmt: skip
    async with engine_on(server, user.engine):
        handle = await user.start(request)

        async def is_waiting() -> bool:
            notes = (await status(handle)).get("notes") or [""]
            pending = (await handle.describe()).raw_description.pending_activities
            text = "waiting for the model: a batch, which takes up to a day (batch_1)"
            return notes[0].startswith(text) and all(item.attempt > 1 for item in pending)

        await assert_eventually(is_waiting)
    request_batches._batches.clear()
    async with engine_on(server, user.engine):
        result = await ended(handle)
    assert result["state"] == {"all": [7] * 20}
    assert result["usage"]["cost"] == pytest.approx(20 * cost_of_one(api) / 2)
    assert [len(batch) for batch in provider.batches] == [20]
    assert provider.asked["outcomes 1"] == 1
    kinds = Counter(EventType.Name(e.event_type).removeprefix("EVENT_TYPE_") for e in await events(handle))
    assert [kinds[f"ACTIVITY_TASK_{kind}"] for kind in ("SCHEDULED", "STARTED", "COMPLETED")] == [20, 20, 20]
    assert kinds["WORKFLOW_EXECUTION_SIGNALED"] == 1  # that it waits


async def test_the_rows_of_a_set_share_batches_and_the_root_hears_of_each_batch_once(
    foreign: Foreign, sets_folder: Path, raw: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, provider = APIS["chat"], BatchProvider()
    raw.answer, provider.text = provider.answer, json.dumps({"output": 7, "path": "†state.n"})
    monkeypatch.setattr(request_batches, "FIRST_SECONDS", 0.5)
    (sets_folder / f"{foreign.queue}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(60)), "utf-8")
    rows = {"type": "data", "kind": "row", "_instances": {"source": f"{foreign.queue}.jsonl"}}
    request = foreign.request(
        call("think", "†state.n", n="†row.n"), model=model_of(api), models={"batch": True},
        context=[latent("think", n={"type": "integer"}, output={"type": "integer"}), rows],
    )  # fmt: skip
    handle = await foreign.start(request)
    result = await ended(handle)
    assert result["instances"] == {"total": 60, "completed": 60, "failed": 0, "running": 0}
    assert result["usage"]["cost"] == pytest.approx(60 * cost_of_one(api) / 2)
    assert sum(map(len, provider.batches)) == 60
    assert len(provider.batches) < 6
    waits = [e.workflow_execution_signaled_event_attributes.signal_name for e in await events(handle)].count(
        "modelWait"
    )
    assert 1 <= waits <= 2 * len(provider.batches)  # one begins, one is over


async def test_a_run_whose_model_has_no_batches_does_not_begin(foreign: Foreign, write: Write) -> None:
    write(mine={"provider": "openai", "cloud": "bedrock", "region": "eu-west-1"})
    error = await foreign.failure(
        call("think", "†state.a"), context=[latent()], model="mine/gpt-6-sol", models={"batch": True}
    )
    assert (error.type, error.details[0][0]["pointer"]) == ("InvalidRequest", "/config/models/batch")
