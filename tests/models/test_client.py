"""Names of models, and adapters that are only loaded when they are asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse
from activities.providers.provider_errors import CODES
from tests.models.rawserver import RawServer
from tests.models.support import APIS, PLAN, Told, question


class Echo:
    """An adapter that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ModelRequest] = []

    async def ask(self, question: ModelRequest, progress: Any) -> ModelResponse:
        self.asked.append(question)
        progress(0, {})
        return ModelResponse("{}", {})

    def price(self, model: str) -> bool:
        return model == "known"


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Echo:
    found = Echo()
    monkeypatch.setitem(select._ADAPTERS, "scripted", found)
    return found


async def test_the_provider_is_what_stands_before_the_colon(echo: Echo) -> None:
    told = Told()
    await select.ask("scripted:a:b", question(), told)
    assert echo.asked[0].model == "a:b"
    assert told.calls == [(0, {})]
    assert select.priced("scripted:known")
    assert not select.priced("scripted:other")
    assert not select.priced("nonsense")


@pytest.mark.parametrize("model", ["", "claude", "mistral:large", "openai:", ":x", "OpenAI:x"])
async def test_an_unknown_model_is_told_with_what_is_allowed(model: str) -> None:
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…") as caught:
        await select.ask(model, question())
    assert (caught.value.code, caught.value.retryable) == ("modelUnknown", False)


async def test_an_adapter_that_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(select.PROVIDERS, "lost", ("activities.models.lost", "Lost"))
    with pytest.raises(ModelError, match="lost: cannot be loaded"):
        await select.ask("lost:x", question())


async def test_a_real_adapter_is_found_by_its_name(raw: RawServer) -> None:
    for name, model in (("anthropic", "anthropic:claude-opus-5-5"), ("chat", "openai:gpt-6-sol")):
        raw.will(APIS[name].reply())
        assert (await select.ask(model, question())).value == PLAN
        assert raw.body["model"] == model.partition(":")[2]


def test_the_sdks_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, activities.providers.select; sys.exit(bool({'anthropic', 'openai', 'httpx2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_code_says_what_to_do_in_the_documentation() -> None:
    from tests.models.conftest import ROOT

    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `model")}
    assert set(rows) == set(CODES)
    for code, (retryable, _) in CODES.items():
        assert rows[code].split("|")[2].strip() == ("yes" if retryable else "no")
