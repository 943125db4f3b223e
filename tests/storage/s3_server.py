"""A server of S3 for tests: moto's, in a thread; what is stored outlives its stop. No fixtures and no tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import free_port

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


class S3Server:
    """Serves at one address, between a start and a stop as often as you like."""

    def __init__(self) -> None:
        self._module = pytest.importorskip("moto.server")
        self._port = free_port()
        self._running: Any = None
        self.start()

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self._port}"}

    def start(self) -> None:
        """Serve, with all that was stored before."""
        self._running = self._module.ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._running.start()

    def stop(self) -> None:
        self._running.stop()

    def client(self) -> Any:
        """A client of ``boto3``."""
        names = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        return pytest.importorskip("boto3").client("s3", endpoint_url=self.environment["AWS_ENDPOINT_URL_S3"], **names)


def contents(s3: Any, bucket: str) -> dict[str, int]:
    """The sizes in bytes of all objects of a bucket, by key."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}
