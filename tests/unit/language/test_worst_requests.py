"""Requests that are heavy for their size end readably, within the steps that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.language.strict_json import json_size
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from acts.views.results import failure_text
from tests.fuzz.worst_requests import WORST

Json = Any


@pytest.mark.long
@pytest.mark.parametrize("name", WORST)
def test_a_heavy_request_ends_with_what_was_too_much(name: str) -> None:
    make, type_, expected = WORST[name]
    request = make()
    assert json_size(request) < MAX_PAYLOAD_BYTES
    if type_ == "InvalidRequest":
        with pytest.raises(InvalidRequest) as refused:
            validate_request(request, {}, ("t",))
        assert expected in str(refused.value)
        return
    walk = Walk(validate_request(request, {}, ("t",)), lambda node: node.id)
    walk.begin("2026-01-01T00:00:00.000Z")
    assert expected in failure_text(walk)
