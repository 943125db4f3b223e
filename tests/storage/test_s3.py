"""Values in S3, against moto's server: what boto3 sends goes over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.contrib.aws.s3driver import S3StorageDriver, S3StorageDriverClient
from temporalio.converter import (
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from connection import s3_store
from connection.content_driver import ContentDriver
from connection.content_store import ContentMissing, StorageUnavailable, sha256
from connection.s3_store import S3Store

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")
STORE = StorageDriverStoreContext(StorageDriverWorkflowInfo(namespace="default", id="run"))
RETRIEVE = StorageDriverRetrieveContext()
BUCKET = "values"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(address: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, with an empty bucket."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": address, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=item["Key"])
    return client


def keys(s3: Any) -> list[str]:
    return [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


def payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


async def test_a_value_is_stored_once_and_read_by_others(s3: Any) -> None:
    large = payload(b"x" * 5_000_000)
    claims = await ContentDriver(S3Store(BUCKET, "some/prefix")).store(STORE, [large, large, payload(b"1")])
    assert len(keys(s3)) == 2
    assert all(key.startswith("some/prefix/ns/default/") for key in keys(s3))
    assert await ContentDriver(S3Store(BUCKET, "other")).retrieve(RETRIEVE, claims) == [large, large, payload(b"1")]


class BlockingClient(S3StorageDriverClient):
    """What a program of another team would use with the SDK's own driver."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    async def put_object(self, *, bucket: str, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=bucket, Key=key, Body=data)

    async def object_exists(self, *, bucket: str, key: str) -> bool:
        return bucket == BUCKET and key in keys(self._s3)

    async def get_object(self, *, bucket: str, key: str) -> bytes:
        data: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return data


async def test_the_sdks_own_driver_reads_our_references_and_we_read_its(s3: Any) -> None:
    ours, theirs = ContentDriver(S3Store(BUCKET, "acts")), S3StorageDriver(BlockingClient(s3), BUCKET)
    assert ours.name() == theirs.name()
    for writer, reader in ((ours, theirs), (theirs, ours)):
        claims = await writer.store(STORE, [payload(b"x" * 1_000)])
        assert await reader.retrieve(RETRIEVE, claims) == [payload(b"x" * 1_000)]


def test_a_clean_up_never_deletes_what_a_writer_of_this_week_uses(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of an earlier week is stored anew by whoever needs it now: old objects get no new references."""
    store, digest = S3Store(BUCKET, ""), sha256(b"value")
    now = datetime.now(UTC)
    old = store.put("default", digest, b"value")
    later = now + timedelta(weeks=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return later.astimezone(tz)

    monkeypatch.setattr(s3_store, "datetime", Later)
    new = store.put("default", digest, b"value")
    assert old != new
    contents = list(store.list_contents("default"))
    assert [store.delete(content, later - timedelta(hours=1)) for content in contents].count(True) <= 1
    assert store.get(new) == b"value"
    for content in contents:
        store.delete(content, later + timedelta(weeks=2))
    assert keys(s3) == []
    assert list(store.list_contents("default")) == []


def test_other_namespaces_and_objects_are_not_listed(s3: Any) -> None:
    store = S3Store(BUCKET, "acts")
    store.put("other", sha256(b"1"), b"1")
    s3.put_object(Bucket=BUCKET, Key=f"acts/ns/default/d/sha256/{sha256(b'1')}", Body=b"1")
    s3.put_object(Bucket=BUCKET, Key="acts/ns/default/notes.txt", Body=b"1")
    assert list(store.list_contents("default")) == []


def test_errors_say_what_is_missing(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(BUCKET, "")
    claim = store.put("default", sha256(b"1"), b"1")
    s3.delete_object(Bucket=BUCKET, Key=claim["key"])
    with pytest.raises(ContentMissing, match="it was deleted"):
        store.get(claim)
    with pytest.raises(ContentMissing, match="the bucket 'elsewhere'"):
        store.get({**claim, "bucket": "elsewhere"})
    with pytest.raises(StorageUnavailable, match=r"NoSuchBucket|Not Found"):
        S3Store("no-such-bucket", "").put("default", sha256(b"1"), b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailable, match="cannot write to s3://values"):
        S3Store(BUCKET, "").put("default", sha256(b"1"), b"1")
