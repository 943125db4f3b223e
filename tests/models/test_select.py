"""The choice of an adapter by the name of a model, its loading on first use, and the prices of models."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, TokenCounts
from activities.providers.prices import cost_of, price_per_token
from activities.providers.provider_errors import CODES
from tests.models.rawserver import RawServer
from tests.models.support import APIS, PLAN, CallRecorder, model_request


class Echo:
    """An adapter that records its requests."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def ask(self, request: ModelRequest, on_call: Any) -> ModelResponse:
        self.requests.append(request)
        on_call(0, {})
        return ModelResponse("{}", {})


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    adapter = Echo()
    monkeypatch.setitem(select._ADAPTERS, "scripted", adapter)
    return adapter


async def test_the_provider_is_the_part_before_the_first_colon(echo: Echo) -> None:
    recorder = CallRecorder()
    await select.ask("scripted:a:b", model_request(), recorder)
    assert echo.requests[0].model == "a:b"
    assert recorder.calls == [(0, {})]


@pytest.mark.parametrize("model", ["", "claude", "mistral:large", "openai:", ":x", "OpenAI:x"])
async def test_an_unknown_model_is_refused_with_the_allowed_providers(model: str) -> None:
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…") as caught:
        await select.ask(model, model_request())
    assert (caught.value.code, caught.value.retryable) == ("modelUnknown", False)


async def test_an_adapter_that_cannot_be_loaded_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(select.PROVIDERS, "missing", ("activities.providers.missing", "Missing"))
    with pytest.raises(ModelError, match="missing: cannot be loaded"):
        await select.ask("missing:x", model_request())


async def test_a_real_adapter_is_loaded_by_its_name(raw: RawServer) -> None:
    for name, model in (("anthropic", "anthropic:claude-opus-5-5"), ("chat", "openai:gpt-6-sol")):
        raw.reply_with(APIS[name].reply())
        assert (await select.ask(model, model_request())).value == PLAN
        assert raw.body["model"] == model.partition(":")[2]


def test_the_sdks_are_imported_on_first_use() -> None:
    code = (
        "import sys, activities.ask_model, activities.registry; "
        "sys.exit(bool({'anthropic', 'openai', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_documentation_has_every_code_and_whether_it_is_retryable() -> None:
    from tests.models.conftest import ROOT

    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if re.match(r"\| `model[A-Z]", line)}
    assert set(rows) == set(CODES)
    for code, (retryable, _) in CODES.items():
        assert rows[code].split("|")[2].strip() == ("yes" if retryable else "no")


# -- prices ------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
def test_the_price_of_a_token_covers_fresh_and_cached_input(api: Any) -> None:
    provider = "anthropic" if api.name == "anthropic" else "openai"
    price = price_per_token(f"{provider}:{api.model}")
    assert price is not None
    output = cost_of([provider], api.model, TokenCounts(outputTokens=1_000)) or 0
    assert price["output"] == pytest.approx(output / 1_000)
    for tokens in (TokenCounts(1_000), TokenCounts(1_000, cacheWriteTokens=1_000), TokenCounts(1_000, cachedTokens=9)):
        cost = cost_of([provider], api.model, tokens)
        assert cost is not None
        assert 0 < cost <= 1_000 * price["input"] * 1.000_001


@pytest.mark.parametrize("model", ["openai:my-own-model", "anthropic:gpt-6-sol", "nonsense", "mistral:large", ""])
def test_a_model_that_no_price_list_has_is_without_a_price(model: str) -> None:
    assert price_per_token(model) is None


def test_a_script_states_the_cost_of_its_answers_and_has_no_price_per_token() -> None:
    assert price_per_token("scripted:anything") == {"input": 0.0, "output": 0.0}


def test_contradictory_counts_have_no_cost() -> None:
    assert cost_of(["openai"], "gpt-6-sol", TokenCounts(inputTokens=1, cachedTokens=5)) is None
