"""The SDKs' clients: of a provider by its own environment variables, of an endpoint by the file of ``ACTS_MODELS``.

The SDKs bring clients for Bedrock, Vertex and Azure; they sign requests and choose paths. Their own retries are off
everywhere: the activity retries. A client is built anew when its key changes.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import httpx2

from activities.providers.endpoints import Endpoint, EndpointsError
from activities.providers.http_clients import CONNECT_TIMEOUT, NO_KEY, READ_TIMEOUT, get_client
from activities.providers.interface import ModelError
from activities.providers.provider_errors import build_error

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

ANTHROPIC_HOME: Final = "https://api.anthropic.com"
OPENAI_HOME: Final = "https://api.openai.com/v1"
# Kinds of errors of the clouds' packages that another attempt may not have
_PASSING: Final = re.compile(r"transport|timeout|connect", re.IGNORECASE)
_OPTIONS: Final[dict[str, Any]] = {
    "max_retries": 0, "timeout": httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT)
}  # fmt: skip


def anthropic_client(endpoint: Endpoint | None, model: str) -> AsyncAnthropic:
    """The client of Anthropic's API, or of an endpoint that speaks it.

    Raises:
        ModelError: there is no key, or what a cloud needs is not installed.
    """
    if endpoint is not None:
        key = _read_key(endpoint, model)
        return get_client((endpoint.name, endpoint, key), lambda: _cloud_anthropic(endpoint, key))
    key, token = os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN")
    base = os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_HOME
    if not key and not token and base == ANTHROPIC_HOME:
        raise build_error("modelNoKey", "anthropic", model, "no key: ANTHROPIC_API_KEY is not set")
    return get_client(("anthropic", base, key, token), lambda: _plain_anthropic(base, key, token))


def _plain_anthropic(base: str, key: str | None, token: str | None = None) -> AsyncAnthropic:
    from anthropic import AsyncAnthropic

    if not key and not token:
        key = NO_KEY
    # The SDK sends the key as a bearer token; servers that imitate the API look for the older header
    headers = {"x-api-key": key} if key and base != ANTHROPIC_HOME else {}
    credentials: dict[str, Any] = {"api_key": key} if key else {"auth_token": token}
    return AsyncAnthropic(**credentials, base_url=base, default_headers=headers, **_OPTIONS)


def _cloud_anthropic(endpoint: Endpoint, key: str | None) -> AsyncAnthropic:
    if endpoint.cloud is None:
        return _plain_anthropic(endpoint.url or ANTHROPIC_HOME, key)
    import anthropic as sdk

    build, settings = {
        "bedrock": (sdk.AsyncAnthropicBedrock, {"aws_region": endpoint.region, "api_key": key}),
        "vertex": (
            sdk.AsyncAnthropicVertex, {"region": endpoint.region, "project_id": endpoint.project, "access_token": key}
        ),
        "azure": (sdk.AsyncAnthropicFoundry, {"api_key": key}),
    }[endpoint.cloud]  # fmt: skip
    # They have the same `messages` as the SDK's own client, and no common class
    client: Any = build(base_url=endpoint.url, **settings, **_OPTIONS)
    return client  # type: ignore[no-any-return]


def openai_client(endpoint: Endpoint | None, model: str) -> AsyncOpenAI:
    """The client of OpenAI's API, or of an endpoint that speaks it.

    Raises:
        ModelError: there is no key, or what a cloud needs is not installed.
    """
    if endpoint is not None:
        key = _read_key(endpoint, model)
        return get_client((endpoint.name, endpoint, key), lambda: _cloud_openai(endpoint, key))
    base = os.environ.get("OPENAI_BASE_URL") or OPENAI_HOME
    key = os.environ.get("OPENAI_API_KEY") or None
    if key is None and is_openai_home(base):
        raise build_error("modelNoKey", "openai", model, "no key: OPENAI_API_KEY is not set")
    organization, project = os.environ.get("OPENAI_ORG_ID") or None, os.environ.get("OPENAI_PROJECT_ID") or None
    settings = {"base_url": base, "organization": organization, "project": project}
    return get_client(("openai", key, *settings.values()), lambda: _plain_openai(key, settings))


def _plain_openai(key: str | None, settings: dict[str, Any]) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=key or NO_KEY, **settings, **_OPTIONS)


def _cloud_openai(endpoint: Endpoint, key: str | None) -> AsyncOpenAI:
    from openai import AsyncAzureOpenAI, AsyncOpenAI
    from openai.providers import bedrock, vertex

    if endpoint.cloud is None:
        return _plain_openai(key, {"base_url": endpoint.url or OPENAI_HOME})
    if endpoint.cloud == "azure":
        address, version = endpoint.url or "", endpoint.apiVersion
        return AsyncAzureOpenAI(azure_endpoint=address, api_version=version, api_key=key, **_OPTIONS)
    if endpoint.cloud == "bedrock":
        provider = bedrock(region=endpoint.region, base_url=endpoint.url, api_key=key)
    else:
        token = None if key is None else lambda: key
        provider = vertex(
            project=endpoint.project, location=endpoint.region, base_url=endpoint.url, token_provider=token
        )
    return AsyncOpenAI(provider=provider, **_OPTIONS)


def _read_key(endpoint: Endpoint, model: str) -> str | None:
    try:
        endpoint.require_extra()
    except EndpointsError as error:
        raise build_error("modelUnknown", endpoint.name, model, str(error)) from None
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


def is_openai_home(base: str) -> bool:
    """True for OpenAI itself, in any region."""
    host = httpx2.URL(base).host
    return host == "api.openai.com" or host.endswith(".api.openai.com")
