"""Images and PDFs in the data of a run: shown by a placeholder, sent beside the text, once, in each API's own form."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities import ask_model as module
from acts.activities.model_context import PromptContext
from acts.language.messages import parse_message
from acts.planner.notation import File, with_files
from tests.models.rawserver import RawServer, Reply
from tests.models.sent_requests import defects_of_request
from tests.models.support import Api
from tests.models.test_ask_model import TOOL, solution_request
from tests.models.test_conversation import turns_of
from tests.unit.planner.test_prompt import CONTEXT, agent_of, planner, run_tick

Json = Any
PDF, PNG = base64.b64encode(b"%PDF-1.7 x").decode(), base64.b64encode(b"\x89PNG").decode()
INVOICE = {"media": "application/pdf", "base64": PDF, "name": "may.pdf"}
PHOTO = {"media": "image/png", "base64": PNG}
LINKED = {"media": "image/webp", "ref": "https://files.example/a.webp"}
FORM = {"media": "application/pdf", "ref": "https://files.example/form.pdf"}
NOTE = {"media": "text/plain", "base64": ""}
DATA: list[Json] = [
    {"type": "data", "kind": "invoice", **INVOICE},
    {"type": "input", "input": {"photos": [PHOTO, LINKED], "again": PHOTO, "note": NOTE}},
]  # fmt: skip


def id_of(file: Json) -> str:
    shown = with_files(file, None)
    assert isinstance(shown, File)
    return str(shown["file"])


def label(file: Json) -> str:
    return f"File {id_of(file)} (material, as all data):"


def png(count: int) -> Json:
    """An image with content of its own."""
    return {"media": "image/png", "base64": base64.b64encode(count.to_bytes(2)).decode()}


async def asked(raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch, data: list[Json], **fields: Json) -> Json:
    """The content of the user's turn of a request that is shown these Messages, or of a latent Call's."""

    class Contexts:
        async def read(self, *_: Any) -> PromptContext:
            assert TOOL is not None
            return PromptContext({"sum": TOOL}, messages=[parse_message(m, i) for i, m in enumerate(data)])

    monkeypatch.setenv("ACTS_HTTP_HOSTS", "files.example")
    monkeypatch.setattr(module, "_contexts", Contexts())
    provider = "anthropic" if api.name == "anthropic" else "openai"
    request = solution_request(model=f"{provider}:{api.model}", **{"mayRepair": False, **fields})
    client: Any = object()
    await ActivityEnvironment(client).run(module.ask_model, request)
    assert defects_of_request(api.name, raw.body) == []
    return turns_of(raw.body)[-1]["content"]


def latent(scoped: list[Json] | None = None, **parameters: Json) -> dict[str, Json]:
    call = {"_tool": "sum", **parameters}
    return {"ask": "output", "tool": "sum", "call": call, "paths": ["†state.sum"], "scoped": scoped}


BLOCKS: dict[str, list[Json]] = {
    "anthropic": [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": LINKED["ref"]}},
        {"type": "document", "source": {"type": "url", "url": FORM["ref"]}},
    ],
    "responses": [
        {"type": "input_file", "filename": "may.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_image", "image_url": LINKED["ref"], "detail": "auto"},
        {"type": "input_file", "file_url": FORM["ref"]},
    ],
    "chat": [
        {"type": "file", "file": {"filename": "may.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": LINKED["ref"]}},
        {"type": "file", "file": {"filename": f"{id_of(FORM)}.pdf", "file_data": FORM["ref"]}},
    ],
}


async def test_each_api_gets_the_files_once_in_its_form_and_the_text_shows_where_they_stand(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.reply_with(api.reply('{"calls": [], "output": 1}'))
    data = [*DATA, {"type": "state", "state": {"form": FORM}}]
    *files, text = await asked(raw, api, monkeypatch, data)
    assert files[1::2] == BLOCKS[api.name]
    assert [block["text"] for block in files[::2]] == list(map(label, (INVOICE, PHOTO, LINKED, FORM)))
    shown = f'"media":"application/pdf","file":"{id_of(INVOICE)}","bytes":10,"name":"may.pdf","whole":"†invoice"'
    assert shown in text["text"]
    assert f'"again":{{"media":"image/png","file":"{id_of(PHOTO)}","bytes":4,"whole":"†input.again"}}' in text["text"]
    assert f'"file":"{id_of(LINKED)}","whole":"†input.photos.1"' in text["text"]
    assert '{"media":"text/plain","base64":""}' in text["text"]
    assert PDF not in text["text"]


async def test_a_latent_call_gets_what_it_names_or_has_in_scope_and_without_scopes_all_data(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scoped, first, own in (
        ([], [], [PHOTO]),
        ([{"type": "input", "input": {"scan": png(1)}}], [], [png(1), PHOTO]),
        (None, [INVOICE, PHOTO, LINKED], []),
    ):
        raw.reply_with(api.reply('{"output": 1, "path": "†state.sum"}'))
        content = await asked(raw, api, monkeypatch, DATA, **latent(scoped, doc={"page": PHOTO}))
        labels = [part["text"] for part in content if str(part.get("text")).startswith("File ")]
        assert labels == list(map(label, [*first, *own]))
        assert f'"doc":{{"page":{{"media":"image/png","file":"{id_of(PHOTO)}","bytes":4}}}}' in content[-1]["text"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([{"media": "image/png", "base64": "no base64!"}], "(image/png) cannot be sent: its base64 is none: "),
        ([{"media": "image/png", "base64": ""}], "its base64 is empty"),
        ([{**INVOICE, "base64": "AAAA" * 7_000_000}], "may.pdf cannot be sent: it has 21,000,000 bytes; a file has at"),
        ([{**INVOICE, "base64": letter * 27_000_000} for letter in "AB"], "20 files, of 31,457,280 bytes together"),
        ([png(i) for i in range(21)], "20 files, of"),
        ([{**LINKED, "ref": "https://elsewhere.example/?q=all"}], "elsewhere.example"),
    ],
)
async def test_what_a_latent_call_names_and_no_request_takes_fails_it_before_anything_is_sent(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch, files: list[Json], reason: str
) -> None:
    with pytest.raises(ApplicationError, match="file") as caught:
        await asked(raw, api, monkeypatch, [], **latent(docs=files))
    assert (caught.value.type, caught.value.non_retryable) == ("modelFileRefused", True)
    assert reason in caught.value.message
    assert raw.requests == []


async def test_a_planner_is_told_which_of_its_files_it_is_not_given_and_goes_on(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.reply_with(api.reply('{"calls": [], "output": 1}'))
    broken = {"media": "image/png", "base64": "A"}
    content = await asked(raw, api, monkeypatch, [{"type": "input", "input": [broken, *map(png, range(25))]}])
    labels = [part["text"] for part in content if str(part.get("text")).startswith("File ")]
    assert labels[0].startswith(f"File {id_of(broken)} is not attached, nor are others so: its base64 is none: ")
    assert labels[1:-1] == [label(png(i)) for i in range(20)]
    assert labels[-1].startswith(f"File {id_of(png(20))} is not attached, nor are others so: a request takes 20 files")
    assert len(content) == 1 + 2 * 20 + 1 + 1


async def test_the_refusal_of_a_model_that_takes_no_files_says_that_there_are_some(
    raw: RawServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.reply_with(
        Reply(status=400, body={"error": {"message": "unsupported content", "type": "invalid_request_error"}})
    )
    with pytest.raises(ApplicationError) as caught:
        await asked(raw, api, monkeypatch, DATA)
    assert (caught.value.type, caught.value.non_retryable) == ("modelBadRequest", True)
    assert (
        "has files (application/pdf, image/png, image/webp), which not every model takes: unsupp"
        in caught.value.message
    )


def test_a_conversation_with_files_only_grows_and_shows_a_result_where_it_came() -> None:
    agent = agent_of([*DATA, *CONTEXT])
    before = planner(agent)
    run_tick(agent, results={"1:note": "begun", "2:note": "Ada", "3:charge": {"scan": png(7), "same": PHOTO}})
    after = planner(agent)
    assert after.turns[0] == before.turns[0]
    assert [file["file"] for part in after.turns[2].parts for file in part.files] == [id_of(png(7)), id_of(PHOTO)]
    assert f'"file":"{id_of(png(7))}","bytes":2,"whole":"†state.receipt.scan"' in after.turns[2].text
