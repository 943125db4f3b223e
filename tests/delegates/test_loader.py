"""The activity ``acts.delegate``: what it is asked, what it returns, and how a workflow sees it fail."""

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
from workflows.requests import LOAD_HEARTBEAT_SECONDS

from activities import load_delegate as module
from activities.heartbeat import HEARTBEAT_SECONDS
from activities.load_delegate import Loader
from acts.language import wire
from acts.language.wire import LOAD_DELEGATE, NON_RETRYABLE_TYPES
from delegates.load_errors import MAX_BYTES
from delegates.sources import DelegateSources
from tests.delegates.support import BYTES, DEFINITION, HOST, Hanging, Site, answer, for_site, refused, site

HASH = sha256(BYTES).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "composer.json").write_bytes(BYTES)
    return tmp_path


# -- what it is asked -----------------------------------------------------------------


async def test_a_file_comes_with_the_hash_of_its_bytes_and_its_place_in_its_folder(folder: Path) -> None:
    found = await Loader(DelegateSources((folder,))).load({"delegate": "composer"})
    assert found == {"definition": DEFINITION, "sha256": HASH, "source": "composer.json"}


async def test_a_folder_may_have_its_own_of_what_ships(folder: Path) -> None:
    own = Loader(DelegateSources((folder,)))
    shipped = await own.load({"delegate": "summarize"})
    (folder / "summarize.json").write_bytes(BYTES)
    assert (await own.load({"delegate": "summarize"}))["definition"] == DEFINITION
    assert (await Loader(DelegateSources()).load({"delegate": "summarize"})) == shipped


async def test_a_file_that_was_written_again_is_read_again(folder: Path) -> None:
    own = Loader(DelegateSources((folder,)))
    await own.load({"delegate": "composer"})
    (folder / "composer.json").write_bytes(b'{"context": []}')
    assert (await own.load({"delegate": "composer"}))["definition"] == {"context": []}


@pytest.mark.parametrize("expected", [HASH, HASH.upper(), None])
async def test_what_has_the_expected_hash_is_loaded(folder: Path, expected: str | None) -> None:
    found = await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": expected})
    assert found["sha256"] == HASH


async def test_what_has_changed_since_is_not_used(folder: Path) -> None:
    (folder / "composer.json").write_bytes(b"no JSON either")
    with refused("DelegateChanged", '"composer.json" has changed', f"sha256 {HASH} was expected, and it is "):
        await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": HASH})


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (None, ["not with null"]),
        ("composer", ["not with string"]),
        ([], ["not with list"]),
        ({}, ["a name, a path or a URL, not null"]),
        ({"delegate": 5}, ["not number"]),
        ({"delegate": ""}, ["not an empty string"]),
        ({"delegate": "anonymous"}, ['"anonymous" has no definition']),
        ({"delegate": "composer", "sha256": "abc"}, ["64 hex digits, not 'abc'"]),
        ({"delegate": "composer", "sha256": 5}, ["64 hex digits, not 5"]),
        ({"delegate": "composer", "sha256": HASH + "\n"}, ["64 hex digits"]),
    ],
)
async def test_a_question_that_is_none_is_refused(asked: Any, words: list[str]) -> None:
    with refused("DelegateRefused", *words):
        await Loader(DelegateSources()).load(asked)


async def test_an_error_is_short_however_long_the_name_is() -> None:
    for name in ("x" * 1_000_000, "x://" + "y" * 1_000_000, "http://" + "z" * 1_000_000, "\n" * 1_000_000):
        with refused("DelegateRefused") as caught:
            await Loader(DelegateSources()).load({"delegate": name})
        assert len(caught.value.message) < 1000


def test_whether_another_attempt_is_worth_it_is_decided_in_one_place() -> None:
    types = {value for name, value in vars(wire).items() if name.startswith("DELEGATE_")}
    assert types - set(NON_RETRYABLE_TYPES) == {"DelegateUnavailable"}
    raised = set()
    root = Path(module.__file__).parent.parent
    for file in [Path(module.__file__), *(root / "delegates").glob("*.py")]:
        raised |= set(re.findall(r"\bDELEGATE_[A-Z_]+", file.read_text("utf-8")))
    assert {getattr(wire, name) for name in raised} == types


# -- the event loop --------------------------------------------------------------------


async def test_the_event_loop_goes_on_while_a_disk_is_slow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> tuple[bytes, str]:
        reading.set()
        assert go_on.wait(60)
        return BYTES, "composer.json"

    monkeypatch.setattr(module, "read_file", slow)
    loading = asyncio.create_task(Loader(DelegateSources((folder,))).load({"delegate": "composer"}))
    await asyncio.to_thread(reading.wait)
    assert not loading.done()
    go_on.set()
    assert (await loading)["sha256"] == HASH


async def test_a_load_that_is_cancelled_closes_its_connection() -> None:
    async with site() as web:
        web.will(Hanging(answer()[:-1]))
        loading = asyncio.create_task(for_site(web).load({"delegate": web.url()}))
        await web.arrived.wait()
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        await web.left.wait()


async def test_many_are_loaded_at_once(web: Site) -> None:
    web.will(*[answer()] * 50)
    own = for_site(web)
    found = await asyncio.gather(*(own.load({"delegate": web.url()}) for _ in range(50)))
    assert [each["sha256"] for each in found] == [HASH] * 50


# -- in a workflow ---------------------------------------------------------------------


@workflow.defn(name="loads-a-delegate")
class LoadsADelegate:
    @workflow.run
    async def run(self, asked: dict[str, Any]) -> list[Any]:
        """What was recorded, its size and beginning; or of a failure the type, the details, and if it is final."""
        policy = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=3)
        try:
            found = await workflow.execute_activity(
                LOAD_DELEGATE, asked, result_type=RawValue, retry_policy=policy,
                start_to_close_timeout=timedelta(seconds=60),
            )  # fmt: skip
        except ActivityError as error:
            cause = error.__cause__
            assert isinstance(cause, ApplicationError)
            return [cause.type, list(cause.details), cause.non_retryable]
        return [len(found.payload.data), found.payload.data[:1000].decode(errors="replace")]


async def run(client: Client, queue: str, own: Loader, asked: Any) -> list[Any]:
    async with Worker(
        client, task_queue=queue, workflows=[LoadsADelegate], activities=[own.activity()],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):  # fmt: skip
        found: list[Any] = await client.execute_workflow(LoadsADelegate.run, asked, id=queue, task_queue=queue)
        return found


async def test_what_is_recorded_keeps_the_authors_order_and_letters(
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


async def test_a_definition_that_grows_as_it_is_written_is_too_large(folder: Path) -> None:
    numbers = b",".join([b"1e15"] * 200_000)
    (folder / "grows.json").write_bytes(b'{"context":[{"type":"data","data":[' + numbers + b"]}]}")
    own = Loader(DelegateSources((folder,)))
    with refused("DelegateTooLarge", "bytes to record; at most 2,031,616"):
        await ActivityEnvironment().run(own.activity(), {"delegate": "grows"})


async def test_a_worker_that_loads_says_so_from_the_beginning(folder: Path) -> None:
    """So that one that died is missed after the heartbeat timeout, and not after all the time that a load may take."""
    beats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(Loader(DelegateSources((folder,))).activity(), {"delegate": "composer"})
    assert beats == [()]
    assert HEARTBEAT_SECONDS * 5 == LOAD_HEARTBEAT_SECONDS


async def test_a_failure_has_its_type_and_its_details_and_is_tried_again_only_where_that_helps(
    client: Client, task_queue: str, folder: Path, web: Site
) -> None:
    (folder / "broken.json").write_bytes(b'{"context": {}}')
    own = for_site(web)
    own._places = DelegateSources((folder,), own._places.hosts, own._places.private_hosts)
    type_, details, final = await run(client, task_queue, own, {"delegate": "broken"})
    assert (type_, final) == ("DelegateInvalid", True)
    assert details == [[{"code": "invalidRequest", "message": "context is a list of Messages, not object",
                         "pointer": "/context"}]]  # fmt: skip
    web.will(answer(status=503), answer(status=503), answer())
    _, recorded = await run(client, f"{task_queue}-again", own, {"delegate": web.url()})
    assert json.loads(recorded)["sha256"] == HASH
    assert len(web.asked) == 3
    assert await run(client, f"{task_queue}-other", own, {"delegate": f"http://{HOST}:1/"}) == [
        "DelegateRefused",
        [],
        True,
    ]
