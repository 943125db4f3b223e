"""Definitions over https: the connection goes to an address, the certificate is that of the name."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.delegates.support import DEFINITION, HOST, Names, Site, answer, loader, redirect, refused, site

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl")


@dataclass
class Certificate:
    """A certificate for ``HOST`` that signs itself, valid from today; ``names`` are those that clients asked for."""

    pem: Path
    key: Path
    names: list[str | None] = field(default_factory=list)

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pem, self.key)

        def seen(_: object, name: str | None, __: object) -> None:
            self.names.append(name)

        context.sni_callback = seen
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.pem)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",  # noqa: S607
         "-days", "2", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}",
         "-keyout", str(made.key), "-out", str(made.pem)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.fixture
async def secure(certificate: Certificate) -> AsyncIterator[Site]:
    certificate.names.clear()
    async with site(certificate.server()) as found:
        yield found


async def test_the_certificate_is_checked_for_the_name_and_not_for_the_address(
    secure: Site, certificate: Certificate
) -> None:
    secure.will(answer())
    own = loader(private=[f"{HOST}:{secure.port}"], tls=certificate.client())
    assert (await own.load({"delegate": secure.url(scheme="https")}))["definition"] == DEFINITION
    assert certificate.names == [HOST]


async def test_a_certificate_for_another_name_is_refused(secure: Site, certificate: Certificate) -> None:
    names = Names({"other.test": ["127.0.0.1"]})
    own = loader(private=[f"other.test:{secure.port}"], names=names, tls=certificate.client())
    with refused("DelegateRefused", "its certificate is not accepted", "other.test"):
        await own.load({"delegate": secure.url(host="other.test", scheme="https")})
    assert secure.asked == []


async def test_a_certificate_for_a_name_is_not_one_for_the_address_in_a_url(
    secure: Site, certificate: Certificate
) -> None:
    names = Names({"127.0.0.1": ["127.0.0.1"]})
    own = loader(private=[f"127.0.0.1:{secure.port}"], names=names, tls=certificate.client())
    with refused("DelegateRefused", "its certificate is not accepted", "127.0.0.1"):
        await own.load({"delegate": secure.url(host="127.0.0.1", scheme="https")})
    assert secure.asked == []


async def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Site) -> None:
    own = loader(private=[f"{HOST}:{secure.port}"])  # the certificates that the system trusts
    with refused("DelegateRefused", "its certificate is not accepted", "self-signed"):
        await own.load({"delegate": secure.url(scheme="https")})
    assert secure.asked == []


async def test_a_server_that_speaks_no_tls_is_worth_another_attempt(certificate: Certificate) -> None:
    async with site() as plain:
        own = loader(private=[f"{HOST}:{plain.port}"], tls=certificate.client())
        with refused("DelegateUnavailable", f"https://{HOST}:{plain.port} cannot be reached"):
            await own.load({"delegate": plain.url(scheme="https")})


async def test_a_redirect_may_lead_up_to_https_and_not_down_from_it(secure: Site, certificate: Certificate) -> None:
    async with site() as plain:
        own = loader(private=[f"{HOST}:{plain.port}", f"{HOST}:{secure.port}"], tls=certificate.client())
        plain.will(redirect(secure.url(scheme="https")))
        secure.will(answer(), redirect(plain.url()))
        assert (await own.load({"delegate": plain.url()}))["definition"] == DEFINITION
        with refused("DelegateRefused", "from https to http is not followed"):
            await own.load({"delegate": secure.url(scheme="https")})
        assert len(plain.asked) == 1
