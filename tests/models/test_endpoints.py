"""The file ``ACTS_MODELS``: what it may say, every error of it, and requests to several endpoints of one worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acts.activities.models import endpoints, select
from acts.activities.models.endpoints import check_environment, read_endpoints
from acts.activities.models.interface import ModelError
from acts.language.errors import SettingsError
from tests.models.rawserver import RawServer, Reply, chat, claude, responses
from tests.models.support import PLAN, TEXT, model_request

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the file of ``ACTS_MODELS``; nothing of it outlives the test."""

    def write(text: str = "", /, name: str = "models.yaml", **entries: dict[str, Any]) -> Path:
        path = tmp_path / name
        path.write_text(text or json.dumps({"endpoints": entries}), "utf-8")
        monkeypatch.setenv("ACTS_MODELS", str(path))
        return path

    yield write
    endpoints.read_endpoints.cache_clear()


def test_the_file_is_yaml_or_json(write: Write) -> None:
    text = "endpoints:\n  local:\n    provider: openai\n    url: http://127.0.0.1:1/v1\n    quirks: {omit: [store]}\n"
    assert read_endpoints(write(text))["local"].quirks.omit == ("store",)
    entry = {"provider": "openai", "url": "http://127.0.0.1:1/v1"}
    assert read_endpoints(write(name="models.json", local=entry))["local"].url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"provider": "mistral"}, ["provider", "'anthropic' or 'openai'"]),
        ({"provider": "openai", "url": "http://x", "adress": "y"}, ["adress: is unknown", "keyEnv"]),
        ({"provider": "openai", "key": "sk-secret"}, ["key: is unknown"]),
        ({"provider": "openai", "keyEnv": "sk-secret"}, ["keyEnv", "pattern"]),
        ({"provider": "openai", "url": "http://x", "quirks": {"x": 1}}, ["quirks.x: is unknown"]),
        ([], ["its value is an object"]),
    ],
)
def test_an_error_names_the_file_the_endpoint_and_the_key_and_no_secret(
    write: Write, entry: dict[str, Any], words: list[str]
) -> None:
    path = write(mine=entry)
    with pytest.raises(SettingsError) as caught:
        read_endpoints(path)
    for word in (str(path), '"mine"', *words):
        assert word in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("endpoints: [", "not a readable YAML or JSON file"),
        ("local: {provider: openai}", "is not {endpoints"),
        ("endpoints: {a/b: {provider: openai, url: http://x}}", "a name has 1 to 64 letters"),
        ("endpoints: {1: {provider: openai, url: http://x}}", "a name has 1 to 64 letters"),
        ("endpoints: {a: {provider: openai, url: 2026-01-01}}", "a value that JSON cannot have"),
    ],
)
def test_a_file_in_another_form_is_refused(write: Write, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read_endpoints(write(text))


def test_a_worker_says_at_its_start_which_key_is_missing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(mine={"provider": "openai", "keyEnv": "MY_KEY"})
    with pytest.raises(SettingsError, match='the endpoint "mine": keyEnv MY_KEY is not set'):
        check_environment()
    monkeypatch.setenv("MY_KEY", "k")
    check_environment()
    endpoints.read_endpoints.cache_clear()
    write(mine={"provider": "openai", "keyFile": str(tmp_path / "none")})
    with pytest.raises(SettingsError, match=r"keyFile .*none cannot be read: No such file"):
        check_environment()


async def test_several_endpoints_serve_one_worker_each_with_its_address_and_key(
    write: Write, raw: RawServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FIRST_KEY", "k1")
    (tmp_path / "secret").write_text("k2\n")
    write(
        first={"provider": "openai", "url": f"{raw.url}/first/v1", "keyEnv": "FIRST_KEY"},
        second={"provider": "anthropic", "url": f"{raw.url}/second", "keyFile": str(tmp_path / "secret")},
        third={"provider": "openai", "url": f"{raw.url}/third/v1", "quirks": {"api": "responses"}},
    )
    raw.reply_with(Reply(events=chat(TEXT)), Reply(events=claude(TEXT)), Reply(events=responses(TEXT)))
    for model in ("first/qwen/qwen3:8b", "second/claude-opus-5-5", "third/gpt-6-sol"):
        assert (await select.ask(model, model_request())).value == PLAN
    assert [(r.path, r.headers["authorization"], r.body["model"]) for r in raw.requests] == [
        ("/first/v1/chat/completions", "Bearer k1", "qwen/qwen3:8b"),
        ("/second/v1/messages", "Bearer k2", "claude-opus-5-5"),
        ("/third/v1/responses", "Bearer none", "gpt-6-sol"),
    ]


async def test_a_key_that_is_rotated_in_its_file_is_used_from_the_next_request_on(
    write: Write, raw: RawServer, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    write(mine={"provider": "openai", "url": f"{raw.url}/v1", "keyFile": str(secret)})
    for key in ("old", "new"):
        secret.write_text(key)
        raw.reply_with(Reply(events=chat(TEXT)))
        await select.ask("mine/m", model_request())
        assert raw.requests[-1].headers["authorization"] == f"Bearer {key}"
    secret.unlink()
    with pytest.raises(ModelError, match="cannot be read") as caught:
        await select.ask("mine/m", model_request())
    assert caught.value.code == "modelNoKey"


@pytest.mark.parametrize("model", ["other/x", "local/", "/x", "local", "local:x"])
async def test_an_unknown_endpoint_is_refused_with_those_there_are(write: Write, model: str) -> None:
    write(local={"provider": "openai", "url": "http://127.0.0.1:1/v1"})
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…, local/…") as caught:
        await select.ask(model, model_request())
    assert caught.value.code == "modelUnknown"
