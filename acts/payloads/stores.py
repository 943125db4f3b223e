"""Where large values are kept: a folder that all programs share, such as a network file system, or a bucket of S3.

    acts-storage.json                        has an id of the folder: one with another id, or without this file, is not
                                             mounted, and is not written to; in S3, each worker that starts writes it, a
                                             test of its permissions
    values/<namespace>/<week>/ab/<sha256>    one value: a serialized Temporal ``Payload``
    users/<namespace>/<id of the namespace>  who refers to the values: of two servers, namespaces have other ids
    new/…                                    in a folder: what is being written; a kill never leaves half a value

A week is named by its Monday (UTC). A writer uses only content of the present week, and a clean-up deletes only that of
weeks that are over, so the two never meet. What is used for many weeks is stored once a week. A *claim* is what a
history records of a piece of content: a small map of strings. Claims on S3 have the form of the SDKs' own S3 driver
(``aws.s3driver``: bucket, key, hash), so clients in any language read our values with it, and we theirs.

Laws of this file: a store knows no Temporal and blocks; what it raises is a ``StorageError`` that names the place, what
was found, and what to do. Every path is built from a key that has been checked; none leaves the folder.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import re
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from acts.language.errors import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MARKER: Final = "acts-storage.json"
_MARKER_DATA: Final = b'{"storage": "acts", "version": 2}\n'
_KEY: Final = re.compile(r"[A-Za-z0-9_%-]+/(\d{4}-\d\d-\d\d)/[0-9a-f]{2}/([0-9a-f]{64})")
_MAX_SEGMENT: Final = 200  # a file name has at most 255 bytes


class StorageError(Exception):
    """A value could not be stored or read."""


class StorageUnavailable(StorageError):
    """The place cannot be reached or written to now; it may come back."""


class StorageRefused(StorageUnavailable):
    """The place answers, and refuses, until credentials, permissions or the setting are changed."""


class ContentMissing(StorageError):
    """The place is there, the content is not."""


class StoredContent(NamedTuple):
    """One piece of content. ``last_use``: no program has begun to refer to it after that time."""

    location: str
    digest: str
    size: int
    last_use: datetime


def make_key(namespace: str, digest: str) -> str:
    now = datetime.now(UTC)
    monday = now - timedelta(days=now.weekday())
    return f"{path_segment(namespace)}/{monday:%Y-%m-%d}/{digest[:2]}/{digest}"


def read_key(key: str) -> tuple[str, datetime] | None:
    """The SHA-256 in a key, and the end of its week; None for a key of another form."""
    with suppress(ValueError):
        if match := _KEY.fullmatch(key):
            return match[2], datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(weeks=1)
    return None


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path_segment(name: str) -> str:
    """A name as one segment of a path, on file systems and in S3 keys: different names stay different."""
    text = quote(name, safe="").replace(".", "%2E").replace("~", "%7E") or "%"
    return text if len(text) <= _MAX_SEGMENT else f"%-{sha256(name.encode())}"


# == a folder ===============================================================================
# Values hold whatever the plans hold: they are for the owner of the folder, and its group
_FOLDER_MODE, _FILE_MODE = 0o770, 0o660


class FolderStore:
    """Values as files of one folder. ``driver_name`` is in references: every client must have a driver of this name."""

    driver_name = "acts.folder"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._marker, self._values, self._new = root / MARKER, root / "values", root / "new"
        self._first_marker = b""  # what this process has read first; old ones have no id, and are equal

    def describe(self) -> str:
        return f"file:{self.root}"

    def prepare(self, *, creates: bool) -> None:
        """Create what is missing; a client creates nothing, since a mount point without its mount is empty, too."""
        if not creates:
            return
        try:
            self.root.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            for folder in (self._values, self._new):
                folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            if not self._marker.exists():
                id_ = secrets.token_hex(8).encode()
                self._write(self._marker, b'{"storage": "acts", "version": 2, "id": "%s"}\n' % id_, _link)
            if not os.access(self._new, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            is_alone = isinstance(error, FileNotFoundError | NotADirectoryError)
            hint = f"; create {self.root.parent}, or mount it, or correct ACTS_STORAGE" if is_alone else ""
            raise StorageError(f"{self.describe()} cannot be used: {_reason(error)}{hint}") from error

    def verify(self, *, writes: bool) -> None:  # noqa: ARG002 - ``prepare`` has tried to write
        with self._explained("read"):
            self._require_marker()

    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        """Keep the data, unless it is there already, for this week; returns the claim."""
        key = make_key(namespace, digest)
        path = self._values / key
        with self._explained("write to"):
            self._require_marker()
            # A file of another size was cut by the file system: the writer has the right bytes
            if not path.exists() or path.stat().st_size != len(data):
                self._write(path, data)
        return {"key": key}

    def read_digest(self, claim: Mapping[str, str]) -> str:
        """The SHA-256 that a claim names; raises ContentMissing for a claim of another form."""
        content = read_key(str(claim.get("key")))
        if content is None:
            raise ContentMissing(f"a reference to {self.describe()} has a key, not {dict(claim)!r}")
        return content[0]

    def get(self, claim: Mapping[str, str]) -> bytes:
        """The bytes of a claim, not verified."""
        self.read_digest(claim)
        with self._explained("read"):
            with suppress(FileNotFoundError):
                return (self._values / claim["key"]).read_bytes()
            self._require_marker()
        text = "it was deleted, or its writer has another ACTS_STORAGE; restore it from a backup"
        raise ContentMissing(f"the value {claim['key']} is not in {self.describe()}: {text}")

    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        """All content of a namespace; each may have been used until its week was over."""
        with self._explained("read"):
            self._require_marker()
            for path in (self._values / path_segment(namespace)).glob("*/??/*"):
                content = read_key(path.relative_to(self._values).as_posix())
                with suppress(FileNotFoundError):
                    if content is not None:
                        yield StoredContent(str(path), content[0], path.stat().st_size, content[1])

    def delete(self, content: StoredContent) -> None:
        with self._explained("delete from"):
            Path(content.location).unlink(missing_ok=True)

    def delete_leftovers(self, unused_since: datetime) -> None:
        """Delete what was being written when its writer was killed."""
        with self._explained("delete from"):
            for path in self._new.iterdir():
                with suppress(FileNotFoundError):
                    if datetime.fromtimestamp(path.stat().st_mtime, UTC) < unused_since:
                        path.unlink()

    def add_user(self, namespace: str, id_: str) -> None:
        """Remember that the namespace with this id refers to values under its name."""
        path = self.root / "users" / path_segment(namespace) / path_segment(id_)
        with self._explained("write to"):
            self._require_marker()
            if not path.exists():
                self._write(path, b"")

    def users(self, namespace: str) -> set[str]:
        """The ids of the namespaces that refer to values under this name."""
        with self._explained("read"):
            return {path.name for path in (self.root / "users" / path_segment(namespace)).glob("*")}

    def _require_marker(self) -> None:
        """Raise unless the folder is there, and the one that this process saw first."""
        marker = b""
        with suppress(FileNotFoundError):
            marker = self._marker.read_bytes()
        if not marker:
            text = f"it has no {MARKER}. Mount it; a worker makes a new one when it starts"
            raise StorageUnavailable(f"{self.describe()} is not there: {text}")
        self._first_marker = self._first_marker or marker
        if marker != self._first_marker:
            text = "Mount the one from before; if it was replaced on purpose, restart this program"
            raise StorageUnavailable(f"{self.describe()} is another folder than before: {MARKER} has changed. {text}")

    def _write(self, path: Path, data: bytes, name: Callable[[Path, Path], object] = Path.rename) -> None:
        """Write a file that is there as a whole or not at all, and still there after a power cut."""
        temporary = self._new / f"{os.getpid()}-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            for folder in reversed(path.relative_to(self.root).parents[:-1]):
                with suppress(FileExistsError):
                    (self.root / folder).mkdir(mode=_FOLDER_MODE)
                    _synchronize((self.root / folder).parent)
            name(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _synchronize(path.parent)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(f"cannot {verb} {self.describe()}: {_reason(error)}") from error


def _link(file: Path, path: Path) -> None:
    """Name a file, unless another has the name: of two writers at once, the first wins."""
    try:
        path.hardlink_to(file)
    except FileExistsError:
        pass
    except OSError:  # there are file systems without links
        file.rename(path)
    file.unlink(missing_ok=True)


def _synchronize(folder: Path) -> None:
    """Make the names in a folder durable; some network file systems have no such call."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    full = "; the disk is full: make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}{full}"


# == S3, and what speaks its protocol =======================================================
THREADS: Final = 16  # that store and load, each with a connection
_CONNECT_SECONDS: Final = 2  # with one more try, a workflow task still ends in its 10 s
_READ_SECONDS: Final = 10  # between two bytes of an answer: a slow server takes some to write 64 MiB
_NOT_THERE: Final = ("404", "NoSuchKey", "NotFound")
_DENIED: Final = ("403", "AccessDenied", "AllAccessDisabled", "AccountProblem")
# Answers below 500 by which a server asks for patience
_BUSY: Final = ("408", "429", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests")
_SERVER_ERROR: Final = 500
_HINT: Final = (
    "check the bucket, the credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), AWS_REGION, and "
    "what the credentials may do (docs/sizing.md)"
)


class S3Store:
    """Values as objects of one bucket, below a prefix (or none: ""); boto3 finds address, region and credentials."""

    driver_name = "aws.s3driver"

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix.strip("/")
        self._folder = f"{self.prefix}/values/".removeprefix("/")

    def describe(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def prepare(self, *, creates: bool) -> None:  # noqa: ARG002 - a bucket is created by its owner
        """Look whether boto3 is installed: to load it takes half a second, and many commands store nothing."""
        if importlib.util.find_spec("boto3") is None:
            hint = install_hint("s3")
            raise StorageError(f"ACTS_STORAGE is {self.describe()}, but boto3 is not installed: {hint}")

    def verify(self, *, writes: bool) -> None:
        """Read the marker, and write it before where the caller ``writes``. Raises StorageRefused or …Unavailable."""
        key = f"{self.prefix}/{MARKER}".removeprefix("/")
        if writes:
            with self._explained("write to"):
                self._client.put_object(Bucket=self.bucket, Key=key, Body=_MARKER_DATA)
        # A client may be here before the first worker: the bucket has answered
        with suppress(ContentMissing), self._explained("read", key):
            self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def put(self, namespace: str, digest: str, data: bytes) -> dict[str, str]:
        key = self._folder + make_key(namespace, digest)
        with self._explained("write to"):
            if not self._has(key, len(data)):
                self._client.put_object(Bucket=self.bucket, Key=key, Body=data)
        return {"bucket": self.bucket, "key": key, "hash_algorithm": "sha256", "hash_value": digest}

    def read_digest(self, claim: Mapping[str, str]) -> str:
        digest = str(claim.get("hash_value"))
        if claim.get("hash_algorithm") != "sha256" or not re.fullmatch("[0-9a-f]{64}", digest) or not claim.get("key"):
            raise ContentMissing(f"a reference to S3 has bucket, key and a sha256, not {dict(claim)!r}")
        if claim.get("bucket") != self.bucket:
            raise ContentMissing(f"a value is in the bucket {claim.get('bucket')!r}; ACTS_STORAGE is {self.describe()}")
        return digest

    def get(self, claim: Mapping[str, str]) -> bytes:
        self.read_digest(claim)
        with self._explained("read", claim["key"]):
            answer = self._client.get_object(Bucket=self.bucket, Key=claim["key"])
            return bytes(answer["Body"].read())

    def list_contents(self, namespace: str) -> Iterator[StoredContent]:
        for item in self._list(f"{self._folder}{path_segment(namespace)}/"):
            content = read_key(item["Key"].removeprefix(self._folder))
            if content is not None:
                yield StoredContent(item["Key"], content[0], item["Size"], content[1])

    def delete(self, content: StoredContent) -> None:
        with self._explained("delete from"):
            self._client.delete_object(Bucket=self.bucket, Key=content.location)

    def delete_leftovers(self, _unused_since: datetime) -> None:
        """An object is there as a whole or not at all."""

    def add_user(self, namespace: str, id_: str) -> None:
        """Remember that the namespace with this id refers to values under its name."""
        with self._explained("write to"):
            self._client.put_object(Bucket=self.bucket, Key=self._users(namespace) + path_segment(id_), Body=b"")

    def users(self, namespace: str) -> set[str]:
        """The ids of the namespaces that refer to values under this name."""
        return {item["Key"].rpartition("/")[2] for item in self._list(self._users(namespace))}

    def _users(self, namespace: str) -> str:
        return f"{self.prefix}/users/{path_segment(namespace)}/".removeprefix("/")

    def _list(self, prefix: str) -> Iterator[dict[str, Any]]:
        with self._explained("list"):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
                yield from page.get("Contents", ())

    def _has(self, key: str, size: int) -> bool:
        """Whether the object is there; one of another size is written anew: the writer has the right bytes."""
        from botocore.exceptions import ClientError

        try:
            answer = self._client.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            # Without s3:ListBucket, S3 says 403 of what is not there. If it means it, it says so to the writing, too
            if _code(error) not in (*_NOT_THERE, *_DENIED):
                raise
            return False
        return bool(answer["ContentLength"] == size)

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, max_pool_connections=THREADS,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )  # fmt: skip
        try:
            # A session is for one thread, and each that comes first has its own; its client is for all
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
            raise self._refusal(text, error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise self._refusal(text, error) from error
        except BotoCoreError as error:
            raise StorageUnavailable(f"{text}: {error}") from error

    def _refusal(self, text: str, error: Exception) -> StorageRefused:
        # A forgotten address means that AWS was asked
        place = f"the request went to {self._client.meta.endpoint_url} (AWS_ENDPOINT_URL)"
        return StorageRefused(f"{text}: {error}; {_HINT}; {place}")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


ContentStore = FolderStore | S3Store
