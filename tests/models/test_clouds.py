"""Bedrock, Vertex and Azure by the clients that the SDKs bring, against a server in their place."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any

import pytest

from acts.activities.models import select
from acts.activities.models.interface import ModelError
from tests.models.rawserver import RawServer, Reply, chat, claude, responses
from tests.models.support import PLAN, TEXT, model_request
from tests.models.test_endpoints import Write, write

__all__ = ["write"]
KEY = {"keyEnv": "CLOUD_KEY"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_KEY", "secret")


@pytest.mark.parametrize(
    ("entry", "model", "events", "path", "header"),
    [
        ({"provider": "anthropic", "cloud": "vertex", "region": "eu", "project": "p"}, "claude-opus-5-5", claude,
         "/projects/p/locations/eu/publishers/anthropic/models/claude-opus-5-5:streamRawPredict", "authorization"),
        ({"provider": "anthropic", "cloud": "azure"}, "claude-opus-5-5", claude, "/v1/messages", "api-key"),
        ({"provider": "openai", "cloud": "azure", "apiVersion": "2026-01-01"}, "my-gpt", chat,
         "/openai/deployments/my-gpt/chat/completions?api-version=2026-01-01", "api-key"),
        ({"provider": "openai", "cloud": "azure", "apiVersion": "2026-01-01", "quirks": {"api": "responses"}}, "my-gpt",
         responses, "/openai/responses?api-version=2026-01-01", "api-key"),
        ({"provider": "openai", "cloud": "bedrock", "region": "eu-west-1"}, "openai.gpt-6-sol", responses, "/responses",
         "authorization"),
        ({"provider": "openai", "cloud": "vertex", "region": "eu", "project": "p"}, "gpt-6-sol", responses,
         "/responses", "authorization"),
    ],
)  # fmt: skip
async def test_a_cloud_is_asked_at_its_path_with_its_key(
    write: Write, raw: RawServer, entry: dict[str, Any], model: str, events: Any, path: str, header: str
) -> None:
    write(mine={**entry, **KEY, "url": raw.url})
    raw.reply_with(Reply(events=events(TEXT)))
    answer = await select.ask(f"mine/{model}", model_request(maxOutputTokens=500))
    assert (answer.value, answer.form) == (PLAN, "strict")
    sent = raw.requests[-1]
    assert sent.path == path
    assert sent.headers[header].removeprefix("Bearer ") == "secret"
    assert ("max_completion_tokens" in sent.body) == (events is chat)


async def test_the_error_of_a_cloud_names_the_endpoint(write: Write, raw: RawServer) -> None:
    write(mine={"provider": "openai", "cloud": "azure", "apiVersion": "1", "url": raw.url, **KEY})
    raw.reply_with(Reply(status=404, body={"error": {"code": "DeploymentNotFound", "message": "no such deployment"}}))
    with pytest.raises(ModelError, match=r"mine \(x\): no such deployment") as caught:
        await select.ask("mine/x", model_request())
    assert caught.value.code == "modelUnknown"


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A message of AWS's event stream."""
    head = b"".join(
        bytes([len(k)]) + k.encode() + b"\x07" + struct.pack(">H", len(v)) + v.encode() for k, v in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    start = prelude + struct.pack(">I", binascii.crc32(prelude)) + head + payload
    return start + struct.pack(">I", binascii.crc32(start))


def chunk(event: dict[str, Any]) -> bytes:
    data = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode()
    return frame({":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}, data)


BEDROCK = {"provider": "anthropic", "cloud": "bedrock", "region": "eu-west-1"}


@pytest.mark.parametrize("signed", [False, True])
async def test_bedrock_streams_in_its_own_format(
    write: Write, raw: RawServer, monkeypatch: pytest.MonkeyPatch, *, signed: bool
) -> None:
    pytest.importorskip("boto3", reason="the extra bedrock is not installed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    write(aws={**BEDROCK, "url": raw.url, **({} if signed else KEY)})
    raw.reply_with(Reply(frames=[chunk(event) for _, event in claude(TEXT)]))
    answer = await select.ask("aws/eu.anthropic.claude-opus-4-5-20251101-v1:0", model_request())
    assert (answer.value, answer.tokens.inputTokens) == (PLAN, 11)
    assert answer.cost is not None
    sent = raw.requests[-1]
    assert sent.path == "/model/eu.anthropic.claude-opus-4-5-20251101-v1:0/invoke-with-response-stream"
    assert sent.headers["authorization"].startswith("AWS4-HMAC-SHA256" if signed else "Bearer secret")
