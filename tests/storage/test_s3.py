"""Values in S3, against moto's server: what boto3 sends goes over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext, StorageDriverWorkflowInfo

from acts.payloads.converter import ContentDriver, verify_storage
from acts.payloads.stores import ContentMissing, S3Store, StorageRefused, StorageUnavailable, sha256
from tests.storage.s3_server import CREDENTIALS, S3Server, contents

STORE = StorageDriverStoreContext(StorageDriverWorkflowInfo(namespace="default", id="run"))
RETRIEVE = StorageDriverRetrieveContext()
BUCKET = "values"


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server, with an empty bucket."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    client = s3_server.client()
    client.create_bucket(Bucket=BUCKET)
    for key in contents(client, BUCKET):
        client.delete_object(Bucket=BUCKET, Key=key)
    return client


def keys(s3: Any) -> list[str]:
    return list(contents(s3, BUCKET))


def payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


async def test_a_value_is_stored_once_and_read_by_others(s3: Any) -> None:
    large = payload(b"x" * 5_000_000)
    claims = await ContentDriver(S3Store(BUCKET, "some/prefix")).store(STORE, [large, large, payload(b"1")])
    assert len(keys(s3)) == 2
    assert all(key.startswith("some/prefix/values/default/") for key in keys(s3))
    assert await ContentDriver(S3Store(BUCKET, "other")).retrieve(RETRIEVE, claims) == [large, large, payload(b"1")]


def test_other_namespaces_and_objects_are_not_listed(s3: Any) -> None:
    store = S3Store(BUCKET, "acts")
    store.put("other", sha256(b"1"), b"1")
    s3.put_object(Bucket=BUCKET, Key=f"acts/values/default/d/sha256/{sha256(b'1')}", Body=b"1")
    s3.put_object(Bucket=BUCKET, Key="acts/values/default/notes.txt", Body=b"1")
    assert list(store.list_contents("default")) == []
    (content,) = store.list_contents("other")
    store.delete(content)
    assert list(store.list_contents("other")) == []


def test_errors_say_what_is_missing(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store(BUCKET, "")
    claim = store.put("default", sha256(b"1"), b"1")
    s3.delete_object(Bucket=BUCKET, Key=claim["key"])
    with pytest.raises(ContentMissing, match="it was deleted"):
        store.get(claim)
    with pytest.raises(ContentMissing, match="the bucket 'elsewhere'"):
        store.get({**claim, "bucket": "elsewhere"})
    with pytest.raises(StorageRefused, match=r"NoSuchBucket.* check the bucket"):
        S3Store("no-such-bucket", "").put("default", sha256(b"1"), b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(StorageUnavailable, match="cannot write to s3://values") as error:
        S3Store(BUCKET, "").put("default", sha256(b"1"), b"1")
    assert not isinstance(error.value, StorageRefused), "it may come back"


def test_an_object_that_was_cut_is_written_again(s3: Any) -> None:
    store, digest = S3Store(BUCKET, ""), sha256(b"value")
    claim = store.put("default", digest, b"value")
    s3.put_object(Bucket=BUCKET, Key=claim["key"], Body=b"val")
    assert store.get(store.put("default", digest, b"value")) == b"value"


def test_a_worker_verifies_that_it_can_write_and_a_client_that_it_can_read(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_STORAGE", f"s3://{BUCKET}/verified")
    assert verify_storage(writes=False) == ""
    assert keys(s3) == [], "a client writes nothing"
    assert verify_storage(writes=True) == ""
    assert keys(s3) == ["verified/acts-storage.json"]
    assert list(S3Store(BUCKET, "verified").list_contents("default")) == []


@pytest.mark.parametrize("writes", [True, False])
def test_what_refuses_says_what_to_change_and_what_is_away_is_waited_for(
    s3: Any, monkeypatch: pytest.MonkeyPatch, *, writes: bool
) -> None:
    monkeypatch.setenv("ACTS_STORAGE", f"s3://no-such-bucket/{writes}")
    with pytest.raises(StorageRefused, match="NoSuchBucket"):
        verify_storage(writes=writes)
    monkeypatch.setenv("ACTS_STORAGE", f"s3://{BUCKET}/away-{writes}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    assert "Could not connect" in verify_storage(writes=writes)
    monkeypatch.setenv("ACTS_STORAGE", f"s3://{BUCKET}/nobody-{writes}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StorageRefused, match="AWS_PROFILE, or AWS_ACCESS_KEY_ID"):
        verify_storage(writes=writes)


ANSWERS = {"denied": (403, "AccessDenied"), "busy": (503, "SlowDown")}


class Refusing(BaseHTTPRequestHandler):
    """Answers each request with what the name of the bucket says."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, code = ANSWERS[self.path.split("/")[1]]
        body = f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Nothing."""


@pytest.mark.parametrize(
    ("bucket", "is_refused", "text"), [("denied", True, "AccessDenied"), ("busy", False, "SlowDown")]
)
def test_an_answer_of_the_server_is_told_apart_from_its_silence(
    monkeypatch: pytest.MonkeyPatch, bucket: str, text: str, *, is_refused: bool
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StorageUnavailable, match=text) as error:
            S3Store(bucket, "").verify(writes=True)
        server.shutdown()
    assert isinstance(error.value, StorageRefused) == is_refused
    assert f"127.0.0.1:{server.server_port}" in str(error.value) or not is_refused
