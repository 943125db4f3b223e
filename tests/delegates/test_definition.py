"""Which bytes are a definition, and the Activity that loads one."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.activities.run_setup import Loader
from acts.delegates.definitions import read_definition
from acts.delegates.sources import DelegateSources
from acts.language.messages import read_request
from tests.delegates.support import BYTES, DEFINITION, raises_load_error


def read(data: bytes) -> dict[str, Any]:
    return read_definition(data, "d.json")


def with_schema(schema: Any) -> bytes:
    return json.dumps({"context": [{"type": "input", "schema": schema}]}).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["not JSON", "line 1 column 1"]),
        (b"<html>Log in</html>", ["not JSON"]),
        (b'\xff\xfe{\x00"\x00', ["not JSON in UTF-8", "0xff"]),
        (b'{"context": [{"type": "text", "text": "\xe4"}]}', ["not JSON in UTF-8", "0xe4"]),
        (b'{"context": [], "context": []}', ['"context"', "is twice"]),
        (b'{"context": [{"type": "data", "data": NaN}]}', ["NaN is not a JSON number"]),
        (b"[" * 100_000, ["nested deeper than 100"]),
        (b"[]", ["an object {config, context, schema}, not list"]),
        (b"{}", ["it has no context"]),
        (b'{"context": {}}', ["context is a list of Messages, not object"]),
        (b'{"context": [], "tools": []}', ['unknown key "tools"', "config, context and schema"]),
        (b'{"context": [{"type": "sistem"}]}', ["unknown type 'sistem'", 'did you mean "system"?']),
        (b'{"context": [], "config": {"modell": "x"}}', ['unknown setting "modell"', 'did you mean "model"?']),
        (b'{"context": [], "schema": "string"}', ["a schema is an object, not string"]),
        (with_schema({"type": "objekt"}), ["[invalidSchema]", "/context/0/schema"]),
        (with_schema({"properties": []}), ["[invalidSchema]"]),
        (with_schema({"$ref": "https://elsewhere.test/x"}), ["leads out of the schema"]),
    ],
)
def test_bytes_that_are_no_definition_are_refused_with_the_reason(data: bytes, words: list[str]) -> None:
    with raises_load_error("DelegateInvalid", '"d.json" is not a definition', *words):
        read(data)


def test_an_error_has_all_problems_and_lists_them_in_its_details() -> None:
    with raises_load_error("DelegateInvalid", "it has 3 problems") as caught:
        read(b'{"context": [{"type": "x"}, 5], "y": 1}')
    listed = caught.value.details[0]
    assert [p["pointer"] for p in listed] == ["/y", "/context/0/type", "/context/1"]


@pytest.mark.parametrize(
    "data",
    [
        BYTES,
        b"\xef\xbb\xbf" + BYTES,
        b" \r\n" + BYTES + b"\n",
        b'{"context": []}',
        b'{"config": null, "context": [], "schema": null}',
        b'{"config": {"maxTicks": 3}, "context": [{"type": "plan", "plan": [], "run": true}], "schema": {}}',
        '{"context": [{"type": "text", "text": "Сократи"}]}'.encode(),
    ],
)
def test_a_definition_is_returned_unchanged(data: bytes) -> None:
    assert read(data) == json.loads(data.decode("utf-8-sig"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries({"type": st.sampled_from(["input", "text", "tool", "plan", "data", "x"])}) | JSON
REQUEST = st.fixed_dictionaries(
    {"context": st.lists(MESSAGE, max_size=3) | JSON}, optional={"schema": JSON, "config": JSON, "more": JSON}
)


@given(st.binary(max_size=200) | (REQUEST | JSON).map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        definition = read(data)
    except ApplicationError as error:
        type_: str | None = error.type
    else:
        type_ = None
        assert not [p for p in read_request(definition).problems if p.fatal]
        assert set(definition) <= {"config", "context", "schema"}
    assert type_ in (None, "DelegateInvalid")


HASH = sha256(BYTES).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "composer.json").write_bytes(BYTES)
    return tmp_path


async def test_the_result_has_the_definition_its_hash_and_its_path_in_the_folder(folder: Path) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer"})
    assert result == {"definition": DEFINITION, "sha256": HASH, "source": "composer.json"}


@pytest.mark.parametrize("expected", [HASH, HASH.upper(), None])
async def test_a_definition_with_the_expected_hash_is_loaded(folder: Path, expected: str | None) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": expected})
    assert result["sha256"] == HASH


async def test_a_definition_with_another_hash_is_refused(folder: Path) -> None:
    (folder / "composer.json").write_bytes(b"no JSON either")
    with raises_load_error(
        "DelegateChanged", '"composer.json" has changed', f"sha256 '{HASH}' was expected, and it is "
    ):
        await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": HASH})


async def test_a_definition_whose_result_is_too_large_is_refused(folder: Path) -> None:
    numbers = b",".join([b"1e15"] * 200_000)
    (folder / "grows.json").write_bytes(b'{"context":[{"type":"data","data":[' + numbers + b"]}]}")
    own = Loader(DelegateSources((folder,)))
    with raises_load_error("DelegateTooLarge", "bytes; at most 2,031,616 can be recorded"):
        await ActivityEnvironment().run(own.load_delegate, {"delegate": "grows"})
