"""The file ``ACTS_MODELS``: what it may say, every error of it, and requests to several endpoints of one worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.planner_request import sent_schema
from activities.providers import endpoints, select
from activities.providers.endpoints import Endpoint, EndpointsError, check_environment, read_endpoints
from activities.providers.interface import ModelError, TokenCounts
from activities.providers.prices import context_window, cost_of, price_per_token
from acts.planner.request_estimate import bytes_per_token
from tests.models.rawserver import RawServer, Reply, chat, claude, responses
from tests.models.support import PLAN, SCHEMA, TEXT, model_request

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the file of ``ACTS_MODELS``; nothing of it outlives the test."""
    monkeypatch.setattr(select, "_ADAPTERS", {})

    def write(text: str = "", /, name: str = "models.yaml", **entries: dict[str, Any]) -> Path:
        path = tmp_path / name
        path.write_text(text or json.dumps({"endpoints": entries}), "utf-8")
        monkeypatch.setenv("ACTS_MODELS", str(path))
        return path

    yield write
    endpoints._read_once.cache_clear()


# -- the file ----------------------------------------------------------------------


def test_the_file_is_yaml_or_json(write: Write) -> None:
    text = "endpoints:\n  local:\n    provider: openai\n    url: http://127.0.0.1:1/v1\n    quirks: {omit: [store]}\n"
    assert read_endpoints(write(text))["local"].quirks.omit == ("store",)
    entry = {"provider": "openai", "url": "http://127.0.0.1:1/v1"}
    assert read_endpoints(write(name="models.json", local=entry))["local"].url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"provider": "mistral"}, ["provider", "'anthropic' or 'openai'"]),
        ({"provider": "openai", "url": "127.0.0.1:1"}, ["url"]),
        ({"provider": "openai", "url": "http://x", "adress": "y"}, ["the key adress is unknown", "keyEnv"]),
        ({"provider": "openai", "key": "sk-secret"}, ["the key key is unknown", "name the key's variable in keyEnv"]),
        ({"provider": "openai", "keyEnv": "sk-secret"}, ["keyEnv", "pattern"]),
        ({"provider": "openai", "keyEnv": "A", "keyFile": "/b"}, ["exclude each other"]),
        ({"provider": "openai"}, ['needs "keyEnv" or "keyFile", or the "url"']),
        ({"provider": "openai", "keyEnv": "A", "region": "eu"}, ['region belongs to a "cloud"']),
        ({"provider": "anthropic", "cloud": "vertex", "region": "eu"}, ["anthropic at vertex needs project"]),
        ({"provider": "openai", "cloud": "azure", "url": "https://x", "apiVersion": "1"}, ['needs "keyEnv"']),
        ({"provider": "openai", "cloud": "gcp", "keyEnv": "A"}, ["cloud", "'azure', 'bedrock' or 'vertex'"]),
        ({"provider": "openai", "url": "http://x", "quirks": {"api": "rest"}}, ["quirks.api", "'chat' or 'responses'"]),
        ({"provider": "openai", "url": "http://x", "quirks": {"x": 1}}, ["quirks.x is unknown", "api, omit, schema"]),
        ({"provider": "anthropic", "url": "http://x", "quirks": {"omit": ["a"]}}, ["are for openai"]),
        ({"provider": "openai", "url": "http://x", "contextWindow": 5}, ["contextWindow", "1000"]),
        ([], ["is not an object"]),
    ],
)
def test_an_error_names_the_file_the_endpoint_and_the_key_and_no_secret(
    write: Write, entry: dict[str, Any], words: list[str]
) -> None:
    path = write(mine=entry)
    with pytest.raises(EndpointsError) as caught:
        read_endpoints(path)
    for word in (str(path), '"mine"', *words):
        assert word in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("endpoints: [", "not a readable YAML or JSON file"),
        ("local: {provider: openai}", "the unknown key local"),
        ("[]", 'no object "endpoints"'),
        ("endpoints: {a/b: {provider: openai, url: http://x}}", "a name is 1 to 64 letters"),
        ("endpoints: {1: {provider: openai, url: http://x}}", "a name is 1 to 64 letters"),
        ("endpoints: {a: {provider: openai, url: 2026-01-01}}", "a value that JSON cannot have"),
        ("#" * (endpoints.MAX_FILE_BYTES + 1), "more than 1,048,576 bytes"),
    ],
)
def test_a_file_in_another_form_is_refused(write: Write, text: str, words: str) -> None:
    with pytest.raises(EndpointsError, match=words):
        read_endpoints(write(text))


def test_a_worker_says_at_its_start_which_key_is_missing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(mine={"provider": "openai", "keyEnv": "MY_KEY"})
    with pytest.raises(EndpointsError, match='the endpoint "mine": keyEnv names MY_KEY, which is not set'):
        check_environment()
    monkeypatch.setenv("MY_KEY", "k")
    check_environment()
    endpoints._read_once.cache_clear()
    write(mine={"provider": "openai", "keyFile": str(tmp_path / "none")})
    with pytest.raises(EndpointsError, match=r"keyFile .*none cannot be read: No such file"):
        check_environment()


def test_a_worker_with_a_broken_file_does_not_start(write: Write) -> None:
    write("endpoints: 3")
    done = subprocess.run([sys.executable, "-m", "worker"], capture_output=True, text=True, check=False)
    assert (done.returncode, "ACTS_MODELS" in done.stdout or "endpoints" in done.stdout) == (2, True)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize("cloud", ["bedrock", "vertex"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, provider: Any, cloud: Any) -> None:
    endpoint = Endpoint(name="mine", provider=provider, cloud=cloud, region="eu", project="p")
    monkeypatch.setattr(endpoints, "find_spec", lambda _: None)
    with pytest.raises(EndpointsError, match=rf"not installed: pip install '{provider}\[{cloud}\]'"):
        endpoint.require_extra()


# -- requests ------------------------------------------------------------------------


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


async def test_quirks_leave_out_fields_and_choose_the_first_form_without_a_note(write: Write, raw: RawServer) -> None:
    quirks = {"omit": ["prompt_cache_key", "stream_options"], "schema": "words"}
    write(mine={"provider": "openai", "url": f"{raw.url}/v1", "quirks": quirks})
    raw.reply_with(Reply(events=chat(json.dumps(PLAN))))
    answer = await select.ask("mine/m", model_request())
    assert (answer.value, answer.form, answer.notes) == (PLAN, "words", ())
    assert set(raw.body) == {"model", "stream", "messages", "response_format"}
    assert raw.body["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("model", ["other/x", "local/", "/x", "local", "local:x"])
async def test_an_unknown_endpoint_is_refused_with_those_there_are(write: Write, model: str) -> None:
    write(local={"provider": "openai", "url": "http://127.0.0.1:1/v1"})
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…, local/…") as caught:
        await select.ask(model, model_request())
    assert caught.value.code == "modelUnknown"


async def test_an_error_names_the_endpoint(write: Write, raw: RawServer) -> None:
    write(mine={"provider": "openai", "url": f"{raw.url}/v1"})
    raw.reply_with(Reply(status=401, body={"error": "who are you"}))
    with pytest.raises(ModelError, match=r"mine \(m\): who are you; check the key"):
        await select.ask("mine/m", model_request())


# -- prices, windows, schemas ----------------------------------------------------------


def test_prices_are_those_of_the_cloud_then_of_the_maker(write: Write) -> None:
    write(
        aws={"provider": "anthropic", "cloud": "bedrock", "region": "eu-west-1", "keyEnv": "A"},
        gateway={"provider": "openai", "url": "http://x/v1", "prices": "openrouter"},
        own={"provider": "openai", "url": "http://x/v1", "prices": "none", "contextWindow": 9_000},
        local={"provider": "openai", "url": "http://x/v1"},
    )
    assert price_per_token("aws/us.anthropic.claude-opus-4-5-20251101-v1:0") is not None
    assert price_per_token("gateway/openai/gpt-5") is not None
    assert price_per_token("local/gpt-6-sol") is not None
    assert price_per_token("own/gpt-6-sol") is None
    assert price_per_token("local/qwen3") is None
    assert cost_of((), "gpt-6-sol", TokenCounts(1)) is None
    assert (context_window("own/qwen3"), context_window("local/qwen3")) == (9_000, None)
    assert context_window("local/gpt-6-sol") == context_window("openai:gpt-6-sol")


def test_a_model_of_anthropic_has_its_tokens_at_any_endpoint() -> None:
    assert bytes_per_token("aws/eu.anthropic.claude-opus-5-5") == bytes_per_token("anthropic:claude-opus-5-5")
    assert bytes_per_token("local/qwen3") == bytes_per_token("openai:qwen3")


def test_the_schema_that_acts_prompt_shows_is_that_of_the_endpoint(write: Write) -> None:
    write(
        mine={"provider": "anthropic", "url": "http://x"},
        words={"provider": "openai", "url": "http://x", "quirks": {"schema": "words"}},
    )
    assert sent_schema(SCHEMA, "mine/claude-opus-5-5") == sent_schema(SCHEMA, "anthropic:claude-opus-5-5")
    assert sent_schema(SCHEMA, "words/m") != sent_schema(SCHEMA, "openai:m")
    assert sent_schema(SCHEMA, "of-another-machine/claude-opus-5-5") == sent_schema(SCHEMA, "anthropic:claude-opus-5-5")
