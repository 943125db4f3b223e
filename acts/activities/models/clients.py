"""The SDKs' clients: of a provider by its own environment variables, of an endpoint by the file of ``ACTS_MODELS``.

The SDKs bring clients for Bedrock, Vertex and Azure; they sign requests and choose paths. Their own retries are off
everywhere: the activity retries. A client belongs to one event loop, which its pool of connections must not outlive,
and is built anew when its key changes.
"""

from __future__ import annotations

import asyncio
import os
import re
import weakref
from typing import Any, Final

import httpx2

from acts.activities.models.endpoints import Endpoint, EndpointsError
from acts.activities.models.interface import ModelError
from acts.activities.models.provider_errors import build_error

HOMES: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
# The variables by which the SDKs set up a client: the address, the key, and more
_VARIABLES: Final = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
}
# Seconds between two pieces of an answer. A model may think for minutes without sending any; the timeout of the
# activity bounds the request as a whole
_READ_TIMEOUT: Final = 300.0
_CONNECT_TIMEOUT: Final = 10.0
# The SDKs want a key; a server of one's own needs none
_NO_KEY: Final = "none"
# Kinds of errors of the clouds' packages that another attempt may not have
_PASSING: Final = re.compile(r"transport|timeout|connect", re.IGNORECASE)
_OPTIONS: Final[dict[str, Any]] = {
    "max_retries": 0, "timeout": httpx2.Timeout(_READ_TIMEOUT, connect=_CONNECT_TIMEOUT)
}  # fmt: skip

_CLIENTS: Final[weakref.WeakKeyDictionary[Any, dict[Any, Any]]] = weakref.WeakKeyDictionary()


def get_client(provider: str, endpoint: Endpoint | None, model: str) -> Any:
    """The client of a provider, or of an endpoint that speaks its API, in the running event loop.

    Raises:
        ModelError: there is no key, or what a cloud needs is not installed.
    """
    credentials: tuple[str | None, ...]
    if endpoint is not None:
        base, credentials = endpoint.url, (_read_key(endpoint, model),)
    else:
        base, *rest = (os.environ.get(name) or None for name in _VARIABLES[provider])
        credentials = tuple(rest)
        if not any(credentials) and is_home(provider, base or HOMES[provider]):
            raise build_error("modelNoKey", provider, model, f"no key: {_VARIABLES[provider][1]} is not set")
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    name = (provider, endpoint, base, credentials)
    if name not in clients:
        if endpoint is not None and endpoint.cloud is not None:
            build_cloud = _cloud_anthropic if provider == "anthropic" else _cloud_openai
            try:
                clients[name] = build_cloud(endpoint, credentials[0])
            except Exception as error:  # a setting or a package is missing: the SDKs say which
                raise build_error("modelNoKey", endpoint.name, model, str(error)) from error
        else:
            build = _plain_anthropic if provider == "anthropic" else _plain_openai
            clients[name] = build(base or HOMES[provider], *credentials)
    return clients[name]


async def close_clients() -> None:
    """Close the connections of the running event loop; the next request builds its client again."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()


def _plain_anthropic(base: str, key: str | None, token: str | None = None) -> Any:
    from anthropic import AsyncAnthropic

    key = key or (None if token else _NO_KEY)
    # The SDK sends the key as a bearer token; servers that imitate the API look for the older header
    headers = {"x-api-key": key} if key and not is_home("anthropic", base) else {}
    credentials: dict[str, Any] = {"api_key": key} if key else {"auth_token": token}
    return AsyncAnthropic(**credentials, base_url=base, default_headers=headers, **_OPTIONS)


def _cloud_anthropic(endpoint: Endpoint, key: str | None) -> Any:
    import anthropic as sdk

    if endpoint.cloud == "bedrock":
        return sdk.AsyncAnthropicBedrock(aws_region=endpoint.region, api_key=key, base_url=endpoint.url, **_OPTIONS)
    if endpoint.cloud == "azure":
        return sdk.AsyncAnthropicFoundry(api_key=key, base_url=endpoint.url or "", **_OPTIONS)
    place: dict[str, Any] = {"region": endpoint.region, "project_id": endpoint.project}
    return sdk.AsyncAnthropicVertex(**place, access_token=key, base_url=endpoint.url, **_OPTIONS)


def _plain_openai(base: str, key: str | None, organization: str | None = None, project: str | None = None) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=base, api_key=key or _NO_KEY, organization=organization, project=project, **_OPTIONS)


def _cloud_openai(endpoint: Endpoint, key: str | None) -> Any:
    from openai import AsyncAzureOpenAI, AsyncOpenAI
    from openai.providers import bedrock, vertex

    url, region = endpoint.url, endpoint.region
    if endpoint.cloud == "azure":
        return AsyncAzureOpenAI(azure_endpoint=url or "", api_version=endpoint.apiVersion, api_key=key, **_OPTIONS)
    if endpoint.cloud == "bedrock":
        return AsyncOpenAI(provider=bedrock(region=region, base_url=url, api_key=key), **_OPTIONS)
    token = None if key is None else lambda: key
    provider = vertex(project=endpoint.project, location=region, base_url=url, token_provider=token)
    return AsyncOpenAI(provider=provider, **_OPTIONS)


def _read_key(endpoint: Endpoint, model: str) -> str | None:
    try:
        return endpoint.read_key()
    except EndpointsError as error:
        raise build_error("modelNoKey", endpoint.name, model, str(error)) from None


def credentials_error(endpoint: Endpoint | None, model: str, error: Exception) -> ModelError | None:
    """The error of a cloud's credentials, looked up at the first request; None: it is another error."""
    if endpoint is None or endpoint.cloud is None:
        return None
    kind = type(error).__name__
    code = "modelUnavailable" if _PASSING.search(kind) else "modelNoKey"
    return build_error(code, endpoint.name, model, f"no credentials of {endpoint.cloud}: {kind}: {error}")


def is_home(provider: str, base: str) -> bool:
    """True for an address of the provider itself, in any region."""
    host, home = httpx2.URL(base).host, httpx2.URL(HOMES[provider]).host
    return host == home or host.endswith(f".{home}")
