"""The SDK's driver over a store: by content, verified, cached in bounds, and patient. And what ACTS_STORAGE may say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import (
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from acts.payloads.converter import ContentCache, ContentDriver, read_setting
from acts.payloads.stores import ContentMissing, FolderStore, S3Store, StorageError, make_key
from acts.worker.slots import TaskSlots, WatchedInstance, WatchedRunner
from acts.worker.watch import MemoryWatch

STORE = StorageDriverStoreContext(StorageDriverWorkflowInfo(namespace="default", id="run"))
RETRIEVE = StorageDriverRetrieveContext()


class CountingStore(FolderStore):
    """A folder that counts what it is asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.puts = self.gets = 0
        self.prepare(creates=True)

    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        self.puts += 1
        return super().put(namespace, digest, data)

    def get(self, claim: object) -> bytes:
        self.gets += 1
        return super().get(claim)  # type: ignore[arg-type]


def payload(data: bytes, **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=data)


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "values").rglob("*") if path.is_file()]


async def test_equal_payloads_are_stored_once_and_read_once(tmp_path: Path) -> None:
    store = CountingStore(tmp_path)
    writer = ContentDriver(store)
    first = payload(b"1", a=b"1", b=b"2", c=b"3")
    second = payload(b"1", c=b"3", b=b"2", a=b"1")  # metadata has no order
    claims = await writer.store(STORE, [first, second, first])
    assert len({claim.claim_data["key"] for claim in claims}) == len(files(tmp_path)) == 1
    assert await writer.retrieve(RETRIEVE, claims) == [first] * 3
    assert store.gets == 0, "who has stored it need not read it"
    reader = ContentDriver(store)
    for _ in range(5):
        assert await reader.retrieve(RETRIEVE, claims[:1]) == [first]
    assert store.gets == 1
    assert store.puts <= 3
    await writer.store(STORE, [first])
    assert store.puts <= 3, "a replay does not store again what it has just stored"


async def test_content_that_was_changed_is_an_error(tmp_path: Path) -> None:
    store = CountingStore(tmp_path)
    (claim,) = await ContentDriver(store).store(STORE, [payload(b"1")])
    (path,) = files(tmp_path)
    path.write_bytes(payload(b"2").SerializeToString())
    with pytest.raises(StorageError, match="has another content"):
        await ContentDriver(store).retrieve(RETRIEVE, [claim])


async def test_missing_content_is_an_error_in_a_second_however_patient_the_driver(tmp_path: Path) -> None:
    driver = ContentDriver(CountingStore(tmp_path), patience=3600)
    claim = StorageDriverClaim({"key": make_key("default", "a" * 64)})
    with pytest.raises(ContentMissing, match="another ACTS_STORAGE"):
        await driver.retrieve(RETRIEVE, [claim])


@given(sizes=st.lists(st.integers(0, 40), max_size=50))
def test_the_cache_never_holds_more_than_its_limit(sizes: list[int]) -> None:
    cache = ContentCache(limit=100, largest=30)
    for number, size in enumerate(sizes):
        cache.put(str(number), b"x" * size)
        assert cache.bytes <= 100
        assert cache.get(str(number)) == (b"x" * size if size <= 30 else None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("file:/data/acts", "file:/data/acts"),
        ("file:///data/acts", "file:/data/acts"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_a_setting_names_a_store(text: str, place: str) -> None:
    store = read_setting(text).contents
    assert isinstance(store, S3Store if text.startswith("s3:") else FolderStore)
    assert store.describe() == place


@pytest.mark.parametrize("text", ["", "file:", "/data/acts", "s3:bucket", "s3://", "gs://bucket/x", "file://host/x"])
def test_another_setting_is_an_error_that_says_what_is_allowed(text: str) -> None:
    with pytest.raises(StorageError, match="file:<folder>"):
        read_setting(text)


LARGE = Payload(data=b"x" * 3_000_000)


def activate(completion: WorkflowActivationCompletion, *, uses_storage: bool, has_storage: bool) -> Any:
    """What a task of a run comes to that ends with this completion."""
    inner: Any = SimpleNamespace(_object=SimpleNamespace(uses_storage=uses_storage))
    watch: Any = SimpleNamespace(activate=lambda _instance, _act: completion)
    runner = WatchedRunner(watch, MemoryWatch(0), TaskSlots(), has_storage=has_storage)
    return WatchedInstance(runner, inner).activate(WorkflowActivation())


def scheduling(*payloads: Payload) -> WorkflowActivationCompletion:
    completion = WorkflowActivationCompletion()
    completion.successful.commands.add().schedule_activity.arguments.extend(payloads)
    return completion


def test_a_large_value_of_a_run_with_storage_fails_the_task_of_a_worker_without() -> None:
    completion = scheduling(LARGE)
    with pytest.raises(RuntimeError, match="set ACTS_STORAGE to what the other workers have"):
        activate(completion, uses_storage=True, has_storage=False)
    assert activate(completion, uses_storage=True, has_storage=True) is completion
    assert activate(completion, uses_storage=False, has_storage=False) is completion, "it is measured where it is made"


def test_many_small_values_and_a_refused_update_pass() -> None:
    completion = scheduling(Payload(data=b"x"))
    completion.successful.commands.add().update_response.completed.CopyFrom(LARGE)
    for _ in range(30):
        completion.successful.commands.add().schedule_activity.arguments.add().data = b"x" * 100_000
    assert activate(completion, uses_storage=True, has_storage=False) is completion
