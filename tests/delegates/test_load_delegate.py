"""The activity ``acts.delegate``: its request, its result, and its failures as a workflow sees them."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import load_delegate as module
from activities.heartbeat import HEARTBEAT_SECONDS
from activities.load_delegate import Loader
from acts.language import wire
from acts.language.wire import LOAD_DELEGATE, NON_RETRYABLE_TYPES
from delegates.load_errors import MAX_BYTES
from delegates.sources import DelegateSources
from tests.delegates.support import BYTES, DEFINITION, HOST, Hanging, Site, answer, for_site, raises_load_error, site
from workflows.runtime.startup import LOAD_HEARTBEAT_SECONDS

HASH = sha256(BYTES).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "composer.json").write_bytes(BYTES)
    return tmp_path


# -- requests -----------------------------------------------------------------


async def test_the_result_has_the_definition_its_hash_and_its_path_in_the_folder(folder: Path) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer"})
    assert result == {"definition": DEFINITION, "sha256": HASH, "source": "composer.json"}


async def test_a_folder_may_override_a_shipped_delegate(folder: Path) -> None:
    own = Loader(DelegateSources((folder,)))
    shipped = await own.load({"delegate": "summarize"})
    (folder / "summarize.json").write_bytes(BYTES)
    assert (await own.load({"delegate": "summarize"}))["definition"] == DEFINITION
    assert (await Loader(DelegateSources()).load({"delegate": "summarize"})) == shipped


async def test_there_is_no_cache_of_files(folder: Path) -> None:
    own = Loader(DelegateSources((folder,)))
    await own.load({"delegate": "composer"})
    (folder / "composer.json").write_bytes(b'{"context": []}')
    assert (await own.load({"delegate": "composer"}))["definition"] == {"context": []}


@pytest.mark.parametrize("expected", [HASH, HASH.upper(), None])
async def test_a_definition_with_the_expected_hash_is_loaded(folder: Path, expected: str | None) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": expected})
    assert result["sha256"] == HASH


async def test_a_definition_with_another_hash_is_refused(folder: Path) -> None:
    (folder / "composer.json").write_bytes(b"no JSON either")
    with raises_load_error("DelegateChanged", '"composer.json" has changed', f"sha256 {HASH} was expected, and it is "):
        await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": HASH})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (None, ["not null"]),
        ("composer", ["not string"]),
        ([], ["not list"]),
        ({}, ["a name, a path or a URL, not null"]),
        ({"delegate": 5}, ["not number"]),
        ({"delegate": ""}, ["not an empty string"]),
        ({"delegate": "anonymous"}, ['"anonymous" has no definition']),
        ({"delegate": "composer", "sha256": "abc"}, ["64 hex digits, not 'abc'"]),
        ({"delegate": "composer", "sha256": 5}, ["64 hex digits, not 5"]),
        ({"delegate": "composer", "sha256": HASH + "\n"}, ["64 hex digits"]),
    ],
)
async def test_an_invalid_request_is_refused(request_: Any, words: list[str]) -> None:
    with raises_load_error("DelegateRefused", *words):
        await Loader(DelegateSources()).load(request_)


async def test_the_error_of_a_long_name_is_short() -> None:
    for name in ("x" * 1_000_000, "x://" + "y" * 1_000_000, "http://" + "z" * 1_000_000, "\n" * 1_000_000):
        with raises_load_error("DelegateRefused") as caught:
            await Loader(DelegateSources()).load({"delegate": name})
        assert len(caught.value.message) < 1000


def test_one_table_says_which_errors_are_retryable() -> None:
    types = {value for name, value in vars(wire).items() if name.startswith("DELEGATE_")}
    assert types - set(NON_RETRYABLE_TYPES) == {"DelegateUnavailable"}
    names = set()
    root = Path(module.__file__).parent.parent
    for file in [Path(module.__file__), *(root / "delegates").glob("*.py")]:
        names |= set(re.findall(r"\bDELEGATE_[A-Z_]+", file.read_text("utf-8")))
    assert {getattr(wire, name) for name in names} == types


# -- the event loop --------------------------------------------------------------------


async def test_a_slow_disk_does_not_block_the_event_loop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, may_continue = threading.Event(), threading.Event()

    def slow(*_: object) -> tuple[bytes, str]:
        reading.set()
        assert may_continue.wait(60)
        return BYTES, "composer.json"

    monkeypatch.setattr(module, "read_file", slow)
    loading = asyncio.create_task(Loader(DelegateSources((folder,))).load({"delegate": "composer"}))
    await asyncio.to_thread(reading.wait)
    assert not loading.done()
    may_continue.set()
    assert (await loading)["sha256"] == HASH


async def test_a_cancelled_load_closes_its_connection() -> None:
    async with site() as web:
        web.reply_with(Hanging(answer()[:-1]))
        loading = asyncio.create_task(for_site(web).load({"delegate": web.url()}))
        await web.has_request.wait()
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await web.client_closed.wait()


async def test_loads_run_concurrently(web: Site) -> None:
    web.reply_with(*[answer()] * 50)
    own = for_site(web)
    results = await asyncio.gather(*(own.load({"delegate": web.url()}) for _ in range(50)))
    assert [each["sha256"] for each in results] == [HASH] * 50


# -- in a workflow ---------------------------------------------------------------------


@workflow.defn(name="loads-a-delegate")
class LoadsADelegate:
    @workflow.run
    async def run(self, request: dict[str, Any]) -> list[Any]:
        """The size and beginning of the recorded result; of a failure the type, the details, and if it is final."""
        policy = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3)
        try:
            result = await workflow.execute_activity(
                LOAD_DELEGATE, request, result_type=RawValue, retry_policy=policy,
                start_to_close_timeout=timedelta(seconds=60),
            )  # fmt: skip
        except ActivityError as error:
            cause = error.__cause__
            assert isinstance(cause, ApplicationError)
            return [cause.type, list(cause.details), cause.non_retryable]
        return [len(result.payload.data), result.payload.data[:1000].decode(errors="replace")]


async def run(client: Client, queue: str, own: Loader, request: Any) -> list[Any]:
    async with Worker(
        client, task_queue=queue, workflows=[LoadsADelegate], activities=[own.activity()],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):  # fmt: skip
        result: list[Any] = await client.execute_workflow(LoadsADelegate.run, request, id=queue, task_queue=queue)
        return result


async def test_the_recorded_result_keeps_the_order_of_keys_and_letters_of_any_script(
    client: Client, task_queue: str, folder: Path
) -> None:
    text = '{"schema":{"properties":{"b":{"type":"string"},"a":{}}},"context":[{"type":"text","text":"Да"}]}'
    (folder / "short.json").write_text(text, "utf-8")
    _, recorded = await run(client, task_queue, Loader(DelegateSources((folder,))), {"delegate": "short"})
    assert recorded.startswith(f'{{"definition":{text},"sha256":"')
    assert json.loads(recorded)["source"] == "short.json"


async def test_a_definition_of_one_mebibyte_in_any_script_is_recorded(
    client: Client, task_queue: str, folder: Path
) -> None:
    frame = '{"context":[{"type":"text","text":"%s"}]}'
    data = (frame % ("Ж" * ((MAX_BYTES - len(frame)) // 2))).encode()
    (folder / "large.json").write_bytes(data)
    size, recorded = await run(client, task_queue, Loader(DelegateSources((folder,))), {"delegate": "large"})
    assert MAX_BYTES - 5 < len(data) < size < len(data) + 200
    assert "ЖЖЖ" in recorded


async def test_a_definition_whose_result_is_too_large_is_refused(folder: Path) -> None:
    numbers = b",".join([b"1e15"] * 200_000)
    (folder / "grows.json").write_bytes(b'{"context":[{"type":"data","data":[' + numbers + b"]}]}")
    own = Loader(DelegateSources((folder,)))
    with raises_load_error("DelegateTooLarge", "bytes to record; at most 2,031,616"):
        await ActivityEnvironment().run(own.activity(), {"delegate": "grows"})


async def test_a_load_sends_a_heartbeat_at_its_start(folder: Path) -> None:
    """A dead worker is noticed after the heartbeat timeout, not after the timeout of the load."""
    beats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(Loader(DelegateSources((folder,))).activity(), {"delegate": "composer"})
    assert beats == [()]
    assert HEARTBEAT_SECONDS * 5 == LOAD_HEARTBEAT_SECONDS


async def test_a_failure_has_its_type_and_details_and_only_some_are_retried(
    client: Client, task_queue: str, folder: Path, web: Site
) -> None:
    (folder / "broken.json").write_bytes(b'{"context": {}}')
    own = for_site(web)
    own._sources = DelegateSources((folder,), own._sources.hosts, own._sources.private_hosts)
    type_, details, final = await run(client, task_queue, own, {"delegate": "broken"})
    assert (type_, final) == ("DelegateInvalid", True)
    assert details == [[{"code": "invalidRequest", "message": "context is a list of Messages, not object",
                         "pointer": "/context"}]]  # fmt: skip
    web.reply_with(answer(status=503), answer(status=503), answer())
    _, recorded = await run(client, f"{task_queue}-again", own, {"delegate": web.url()})
    assert json.loads(recorded)["sha256"] == HASH
    assert len(web.requests) == 3
    assert await run(client, f"{task_queue}-other", own, {"delegate": f"http://{HOST}:1/"}) == [
        "DelegateRefused",
        [],
        True,
    ]
