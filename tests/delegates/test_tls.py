"""Definitions over https: the connection goes to an address, and the certificate must be that of the name."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.delegates.support import DEFINITION, HOST, Names, Site, answer, loader, raises_load_error, redirect, site

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@dataclass
class Certificate:
    """A self-signed certificate for ``HOST``, valid from today; ``names`` are the server names that clients sent."""

    pem: Path
    key: Path
    names: list[str | None] = field(default_factory=list)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem, self.key)

        def record(_: object, name: str | None, __: object) -> None:
            self.names.append(name)

        context.sni_callback = record
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.pem)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    certificate = Certificate(folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",  # noqa: S607
         "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}",
         "-keyout", str(certificate.key), "-out", str(certificate.pem)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate


@pytest.fixture
async def secure(certificate: Certificate) -> AsyncIterator[Site]:
    certificate.names.clear()
    async with site(certificate.server()) as server:
        yield server


async def test_the_certificate_is_checked_against_the_name_not_the_address(
    secure: Site, certificate: Certificate
) -> None:
    secure.reply_with(answer())
    own = loader(private=[f"{HOST}:{secure.port}"], tls=certificate.client())
    assert (await own.load({"delegate": secure.url(scheme="https")}))["definition"] == DEFINITION
    assert certificate.names == [HOST]


async def test_a_certificate_for_another_name_is_refused(secure: Site, certificate: Certificate) -> None:
    names = Names({"other.test": ["127.0.0.1"]})
    own = loader(private=[f"other.test:{secure.port}"], names=names, tls=certificate.client())
    with raises_load_error("DelegateRefused", "its certificate is not accepted", "other.test"):
        await own.load({"delegate": secure.url(host="other.test", scheme="https")})
    assert secure.requests == []


async def test_a_redirect_to_https_is_followed_and_one_from_https_to_http_is_refused(
    secure: Site, certificate: Certificate
) -> None:
    async with site() as plain:
        own = loader(private=[f"{HOST}:{plain.port}", f"{HOST}:{secure.port}"], tls=certificate.client())
        plain.reply_with(redirect(secure.url(scheme="https")))
        secure.reply_with(answer(), redirect(plain.url()))
        assert (await own.load({"delegate": plain.url()}))["definition"] == DEFINITION
        with raises_load_error("DelegateRefused", "from https to http is not followed"):
            await own.load({"delegate": secure.url(scheme="https")})
        assert len(plain.requests) == 1
