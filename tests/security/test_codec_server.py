"""The codec server: what the Web UI and `temporal` send, who gets an answer, and who does not."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload, Payloads

from acts.payloads.codec import AesGcmCodec, CodecError
from acts.payloads.codec_server import create_server

UI = "http://localhost:8233"
CODEC = AesGcmCodec(lambda: {"k": bytes(32)}, "the test")
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"card": 1}')


def encrypt(payloads: list[Payload], codec: AesGcmCodec = CODEC) -> list[Payload]:
    return asyncio.run(codec.encode(payloads))


def write_payloads(payloads: list[Payload]) -> Any:
    return MessageToDict(Payloads(payloads=payloads))


def read_payloads(answer: Any) -> list[Payload]:
    return list(ParseDict(answer, Payloads()).payloads)


@pytest.fixture(params=[None, "token"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, str | None]]:
    with create_server(CODEC, "127.0.0.1", 0, (UI,), request.param) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running.server_address[1], request.param
        running.shutdown()
        thread.join()


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, json.loads(text) if text else None


def test_payloads_are_decrypted_and_encrypted_for_the_web_ui(server: tuple[int, str | None]) -> None:
    port, token = server
    headers = {"Origin": UI, "X_Namespace": "default"} | ({"Authorization": f"Bearer {token}"} if token else {})
    sealed = write_payloads(encrypt([PLAIN]))
    status, sent, answer = ask(port, "POST", "/decode", sealed, **headers)
    assert (status, read_payloads(answer), sent["access-control-allow-origin"]) == (200, [PLAIN], UI)
    status, _, answer = ask(port, "POST", "/proxied/encode", write_payloads([PLAIN]), **headers)
    assert (status, asyncio.run(CODEC.decode(read_payloads(answer)))) == (200, [PLAIN])
    status, sent, _ = ask(port, "OPTIONS", "/decode", **headers)
    assert status == 204
    assert "authorization" in sent["access-control-allow-headers"]


def test_another_page_gets_nothing(server: tuple[int, str | None]) -> None:
    port, token = server
    headers = {"Origin": "http://evil.example"} | ({"Authorization": f"Bearer {token}"} if token else {})
    for method in ("POST", "OPTIONS"):
        status, sent, answer = ask(port, method, "/decode", write_payloads(encrypt([PLAIN])), **headers)
        assert status == 403
        assert "access-control-allow-origin" not in sent
        assert "payloads" not in (answer or {})


def test_the_token_is_required_where_there_is_one(server: tuple[int, str | None]) -> None:
    port, token = server
    status, _, _ = ask(port, "POST", "/decode", write_payloads([PLAIN]), Authorization="Bearer wrong")
    assert status == (200 if token is None else 401)


def test_what_is_no_request_is_refused(server: tuple[int, str | None]) -> None:
    port, token = server
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for body in (b"", b"nonsense", b'{"payloads": [1]}', b'{"payloads": [{"data": 1}]}'):
        assert ask(port, "POST", "/decode", body, **headers)[0] == 400
    assert ask(port, "POST", "/encode", b"{}", **headers)[2] == {"payloads": []}
    lost = encrypt([PLAIN], AesGcmCodec(lambda: {"lost": os.urandom(32)}, "x"))
    status, _, answer = ask(port, "POST", "/decode", write_payloads(lost), **headers)
    assert status == 400
    assert "'lost'" in answer["error"]
    assert ask(port, "POST", "/other", write_payloads([PLAIN]), **headers)[0] == 404
    assert ask(port, "GET", "/health")[0] == 200


def test_it_does_not_listen_to_the_world_without_a_token_nor_for_any_page() -> None:
    with pytest.raises(CodecError, match="ACTS_CODEC_TOKEN"):
        create_server(CODEC, "0.0.0.0", 0, (UI,))  # noqa: S104 - it is refused
    with pytest.raises(CodecError, match="origin"):
        create_server(CODEC, "127.0.0.1", 0, ("*",))
    create_server(CODEC, "0.0.0.0", 0, (UI,), "token").server_close()  # noqa: S104 - with a token
