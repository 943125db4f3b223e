"""The activity ``acts.searchAttributes``: asks the server whether the namespace has our search attributes.

To write one that it lacks would fail the run's workflow task again and again.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from acts.language.wire import SEARCH_ATTRIBUTES
from acts.tree.search_attributes import TYPES

# The run waits for the answer before its first Call
_RPC_TIMEOUT: Final = timedelta(seconds=2)
# Attributes that are missing may be registered while the worker runs
_RECHECK_SECONDS: Final = 60.0

_answers: dict[str, tuple[bool, float]] = {}


def value_type(name: str) -> IndexedValueType.ValueType:
    """The server's number for the type of a search attribute."""
    words = {"Keyword": "KEYWORD", "Int": "INT", "KeywordList": "KEYWORD_LIST", "Double": "DOUBLE"}
    return IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{words[TYPES[name]]}")


async def registered_types(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """The custom search attributes of the client's namespace, by name.

    Raises:
        RPCError: the server does not say.
    """
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request, timeout=_RPC_TIMEOUT)
    return dict(answer.custom_attributes)


@activity.defn(name=SEARCH_ATTRIBUTES)
async def check_search_attributes() -> bool:
    """Whether the namespace has all of them, with the right types; False when the server does not say."""
    client = activity.client()
    is_complete, until = _answers.get(client.namespace, (False, 0.0))
    if not is_complete and time.monotonic() >= until:
        try:
            types = await registered_types(client)
        except RPCError:
            types = {}
        is_complete = all(types.get(name) == value_type(name) for name in TYPES)
        _answers[client.namespace] = is_complete, time.monotonic() + _RECHECK_SECONDS
    return is_complete
