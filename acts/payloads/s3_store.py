"""Large values in S3 and what speaks its protocol: ``boto3`` finds address, region and credentials by its own rules.

::

    <prefix>/acts-storage.json                        written by each worker that starts: a test of its permissions
    <prefix>/values/<namespace>/<week>/ab/<sha256>    one value: a serialized Temporal ``Payload``

References have the form of the SDKs' own S3 driver (``aws.s3driver``: bucket, key, hash), so a client in any language
reads our values with that driver, and we read its values of the same bucket.
"""

from __future__ import annotations

import importlib.util
import threading
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import install_hint
from acts.payloads.content_store import (
    ContentMissing,
    ContentStore,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    StoredContent,
    is_digest,
    make_key,
    path_segment,
    read_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Seconds to connect: with one more try, a workflow task still ends in its 10 s
_CONNECT_SECONDS: Final = 2
# Seconds between two bytes of an answer: a slow server takes some to write 64 MiB. A workflow task does not wait so
# long: the server gives it up after 10 s, and begins it again
_READ_SECONDS: Final = 10
_TRIES: Final = 2
# Connections at a time: as many as threads that store and load (``content_store.THREADS``)
_CONNECTIONS: Final = 16
_NOT_THERE: Final = ("404", "NoSuchKey", "NotFound")
_DENIED: Final = ("403", "AccessDenied", "AllAccessDisabled", "AccountProblem")
# What is done with the bucket -> the permission for it
_PERMISSIONS: Final = {
    "write to": "s3:PutObject",
    "read": "s3:GetObject, and s3:ListBucket, without which what is missing is denied, too",
    "list": "s3:ListBucket",
    "delete from": "s3:DeleteObject",
}
_CREDENTIALS: Final = "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION"
# Answers below 500 by which a server asks for patience
_BUSY: Final = ("408", "429", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests")
_SERVER_ERROR: Final = 500
_MARKER: Final = "acts-storage.json"
_MARKER_DATA: Final = b'{"storage": "acts", "version": 1}\n'
_BOTO3_MISSING: Final = f"boto3 is not installed: {install_hint('s3')}"


class S3Store(ContentStore):
    """Values as objects of one bucket, below a prefix (or none: "")."""

    driver_name = "aws.s3driver"

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self._folder = f"{self.prefix}/values/".removeprefix("/")
        self._lock = threading.Lock()

    def describe(self) -> str:
        """The address of bucket and prefix."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def prepare(self, *, creates: bool) -> None:  # noqa: ARG002 - a bucket is created by its owner
        """Look whether boto3 is installed: to load it takes half a second, and many commands store nothing."""
        if importlib.util.find_spec("boto3") is None:
            raise StorageError(f"ACTS_STORAGE is {self.describe()}, but {_BOTO3_MISSING}")

    def verify(self, *, writes: bool) -> None:
        """Read the marker, and write it before where the caller ``writes``."""
        key = f"{self.prefix}/{_MARKER}".removeprefix("/")
        if writes:
            with self._explained("write to"):
                self._client.put_object(Bucket=self.bucket, Key=key, Body=_MARKER_DATA)
        # A client may be here before the first worker: the bucket has answered
        with suppress(ContentMissing), self._explained("read", key):
            self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        """Keep the data, unless this week's object is there."""
        key = self._folder + make_key(namespace, digest)
        with self._explained("write to"):
            if not self._has(key, len(data)):
                self._client.put_object(Bucket=self.bucket, Key=key, Body=data)
        return {"bucket": self.bucket, "key": key, "hash_algorithm": "sha256", "hash_value": digest}

    def read_digest(self, claim: Mapping[str, str]) -> str:
        """The ``hash_value`` of a claim on this bucket."""
        digest = claim.get("hash_value")
        if claim.get("hash_algorithm") != "sha256" or not is_digest(digest) or not claim.get("key"):
            raise ContentMissing(f"a reference to S3 has bucket, key and a sha256, not {dict(claim)!r}")
        if claim.get("bucket") != self.bucket:
            raise ContentMissing(f"a value is in the bucket {claim.get('bucket')!r}; ACTS_STORAGE is {self.describe()}")
        return str(digest)

    def get(self, claim: Mapping[str, str]) -> bytes:
        """The content of the object."""
        self.read_digest(claim)
        with self._explained("read", claim["key"]):
            answer = self._client.get_object(Bucket=self.bucket, Key=claim["key"])
            data: bytes = answer["Body"].read()
            return data

    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        """All objects of the namespace; each may have been used until its week was over."""
        prefix = f"{self._folder}{path_segment(namespace)}/"
        with self._explained("list"):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    content = read_key(item["Key"].removeprefix(self._folder))
                    if content is not None:
                        yield StoredContent(item["Key"], content[0], item["Size"], content[1])

    def delete(self, content: StoredContent) -> None:
        """Delete an object."""
        with self._explained("delete from"):
            self._client.delete_object(Bucket=self.bucket, Key=content.location)

    def _has(self, key: str, size: int) -> bool:
        """Whether the object is there; one of another size is written anew: the writer has the right bytes."""
        from botocore.exceptions import ClientError

        try:
            answer = self._client.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            # Without s3:ListBucket, S3 says 403 of what is not there. If it means it, it says so to the writing, too
            if _code(error) in (*_NOT_THERE, *_DENIED):
                return False
            raise
        return bool(answer["ContentLength"] == size)

    @property
    def _client(self) -> Any:
        with self._lock:  # a session of boto3 is for one thread, its clients are for all
            return self._own_client

    @cached_property
    def _own_client(self) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
        )  # fmt: skip
        try:
            return boto3.session.Session().client("s3", config=config)
        except (BotoCoreError, ValueError) as error:  # a profile that is not there, an address that is none
            raise StorageRefused(f"{self.describe()} cannot be used: {error}; check the AWS_* variables") from error

    @contextmanager
    def _explained(self, verb: str, key: str = "") -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        text = f"cannot {verb} {self.describe()}"
        try:
            yield
        except ClientError as error:
            if key and _code(error) in _NOT_THERE:
                missing = f"the value {key} is not in s3://{self.bucket}: it was deleted (by a lifecycle rule?), or its"
                raise ContentMissing(f"{missing} writer has another ACTS_STORAGE; restore it from a backup") from error
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= _SERVER_ERROR or _code(error) in _BUSY:
                raise StorageUnavailable(f"{text}: {error}") from error
            raise StorageRefused(f"{text}: {error}; {self._hint(verb, _code(error))}") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StorageRefused(f"{text}: {error}; {self._hint(verb, '')}") from error
        except BotoCoreError as error:
            raise StorageUnavailable(f"{text}: {error}") from error

    def _hint(self, verb: str, code: str) -> str:
        """What to do about an answer, and who gave it: a forgotten address means that AWS was asked."""
        hint = f"check the credentials ({_CREDENTIALS})"
        if code in _DENIED:
            hint = f"these credentials need {_PERMISSIONS[verb]} (docs/storage.md)"
        elif code == "NoSuchBucket":
            hint = "create the bucket, or correct ACTS_STORAGE"
        return f"{hint}; the request went to {self._client.meta.endpoint_url} (AWS_ENDPOINT_URL)"


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
