"""Every record that crosses from one run to another: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from acts.language.config import Budget
from acts.tree.instance_payload import join_instance_input, split_instance_input
from acts.tree.records import (
    DEFAULT_DEPTH,
    BudgetAccount,
    GrantedRequest,
    InstanceInput,
    PlanInput,
    PlanState,
    SettledRequest,
    TreePosition,
)
from acts.tree.set_records import SetState
from acts.tree.signal_records import BudgetGrant, BudgetRequest, DecisionAnswer
from acts.tree.wire_format import WIRE_VERSION, Record, RecordError, VersionedRecord
from tests.strategies import values

Json = Any
NAMES = st.text(max_size=5)
OBJECTS = st.dictionaries(NAMES, values, max_size=3)


def subclasses(base: type[Record]) -> Iterator[type[Record]]:
    for class_ in base.__subclasses__():
        yield class_
        yield from subclasses(class_)


RECORDS = [class_ for class_ in subclasses(Record) if class_ is not VersionedRecord]
assert SetState in RECORDS  # the records of sets are imported, too
VERSIONED = [class_ for class_ in RECORDS if issubclass(class_, VersionedRecord)]


def of_type(annotation: Json) -> st.SearchStrategy[Json]:
    """Values of a field, free-form JSON for ``Any``."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(arg) for arg in args])
    if origin is tuple:
        if args[-1] is Ellipsis:
            return st.lists(of_type(args[0]), max_size=3).map(tuple)
        return st.tuples(*map(of_type, args))
    if origin is dict:
        return st.dictionaries(of_type(args[0]), of_type(args[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return st.deferred(lambda: records(annotation))
    plain: dict[Json, st.SearchStrategy[Json]] = {
        Any: values, str: NAMES, int: st.integers(0, 2**40), bool: st.booleans(), type(None): st.none(),
        float: st.floats(0, 1e6), Budget: st.builds(Budget, requests=st.none() | st.integers(0, 9), cost=st.none()),
    }  # fmt: skip
    return plain[annotation]


def records(class_: type[Record]) -> st.SearchStrategy[Record]:
    fields = {name: of_type(field.annotation) for name, field in class_.model_fields.items() if name != "v"}
    required = {name: s for name, s in fields.items() if class_.model_fields[name].is_required()}
    optional = {name: s for name, s in fields.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given_: class_(**given_))


def smallest(class_: type[Record]) -> Record:
    """A record with its required fields only."""
    fields = {name: field.annotation for name, field in class_.model_fields.items() if field.is_required()}
    return class_(**{name: _smallest_value(get_origin(kind) or kind) for name, kind in fields.items()})


def _smallest_value(kind: Json) -> Json:
    return smallest(kind) if issubclass(kind, Record) else kind()


def through_json(data: Json) -> Json:
    return json.loads(json.dumps(data))


many = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("class_", RECORDS, ids=lambda c: c.__name__)
def test_what_is_written_is_read_again(class_: type[Record]) -> None:
    @many
    @given(records(class_))
    def check(record: Record) -> None:
        data = through_json(record.to_json())
        again = class_.from_json(data)
        assert again == record
        assert again.to_json() == record.to_json()

    check()


@pytest.mark.parametrize("class_", RECORDS, ids=lambda c: c.__name__)
def test_what_has_its_default_is_not_written(class_: type[Record]) -> None:
    required = {name for name, field in class_.model_fields.items() if field.is_required()}
    data = smallest(class_).to_json()
    assert set(data) == required | ({"v"} if class_ in VERSIONED else set())
    assert class_.from_json(through_json(data)) == smallest(class_)

    @many
    @given(records(class_))
    def check(record: Record) -> None:
        written = record.to_json()
        for name, field in class_.model_fields.items():
            if name != "v" and name not in required:
                is_default = getattr(record, name) == field.get_default(call_default_factory=True)
                assert (name in written) is not is_default

    check()


@pytest.mark.parametrize("class_", RECORDS, ids=lambda c: c.__name__)
def test_a_record_is_frozen_and_has_no_other_fields(class_: type[Record]) -> None:
    record = smallest(class_)
    with pytest.raises(ValidationError):
        record.v = 2  # type: ignore[attr-defined]
    with pytest.raises(RecordError, match=rf"not a {class_.__name__}: surprise: "):
        class_.from_json({**record.to_json(), "surprise": 1})


@pytest.mark.parametrize("class_", VERSIONED, ids=lambda c: c.__name__)
def test_the_version_comes_first_and_a_later_one_is_refused_by_name(class_: type[Record]) -> None:
    data = smallest(class_).to_json()
    assert next(iter(data)) == "v"
    assert data["v"] == WIRE_VERSION
    later = {**data, "v": WIRE_VERSION + 1, "somethingNew": True}
    with pytest.raises(RecordError, match=rf"not a {class_.__name__}: .* version {WIRE_VERSION + 1} .* update it"):
        class_.from_json(later)


def test_a_record_of_before_there_were_versions_is_read() -> None:
    data = smallest(PlanState).to_json()
    del data["v"]
    assert PlanState.from_json(data) == smallest(PlanState)


@pytest.mark.parametrize(
    ("class_", "data", "says"),
    [
        (BudgetGrant, None, "not a BudgetGrant: the record"),
        (BudgetGrant, [], "not a BudgetGrant: the record"),
        (BudgetGrant, {}, "not a BudgetGrant: id: Field required"),
        (BudgetGrant, {"id": "x"}, "not a BudgetGrant: id: "),
        (BudgetGrant, {"id": 1, "granted": [{"id": 5}]}, "not a BudgetGrant: granted.0.id: "),
        (BudgetGrant, {"id": 1, "v": "new"}, "not a BudgetGrant: v: "),
        (BudgetAccount, {"id": "r", "limits": {"requests": -1}}, "not a BudgetAccount: limits.requests: "),
        (BudgetAccount, {"id": "r", "limits": {"reqests": 1}}, "not a BudgetAccount: limits.reqests: "),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_and_its_field_named(class_: type[Record], data: Json, says: str) -> None:
    with pytest.raises(RecordError) as refused:
        class_.from_json(data)
    assert says in str(refused.value)


def test_null_in_what_is_free_form_stays_null() -> None:
    request = {"config": {"temperature": None}, "context": [{"type": "state", "state": {"a": None}}], "schema": None}
    record = PlanInput(request=request, position=TreePosition(), approve={"plan": None}, forecast={"calls": None})
    again = PlanInput.from_json(through_json(record.to_json()))
    assert (again.request, again.approve, again.forecast) == (request, {"plan": None}, {"calls": None})
    settled = SettledRequest(id="g", usage={"requests": 1, "cost": None})
    assert SettledRequest.from_json(through_json(settled.to_json())) == settled
    answer = DecisionAnswer(id="1", details=[None, {"a": None}])
    assert DecisionAnswer.from_json(through_json(answer.to_json())) == answer


def test_a_limit_that_is_not_set_is_not_written() -> None:
    account = BudgetAccount(id="r", limits=Budget(requests=0))
    assert account.to_json() == {"id": "r", "limits": {"requests": 0}}
    request = BudgetRequest(workflowId="r/x", id=1, accounts=(account,), settled=(SettledRequest(id="g"),))
    assert request.to_json() == {
        "v": WIRE_VERSION, "workflowId": "r/x", "id": 1, "accounts": [{"id": "r", "limits": {"requests": 0}}],
        "settled": [{"id": "g"}],
    }  # fmt: skip


# -- the input of an instance ----------------------------------------------------------------------

messages = st.fixed_dictionaries(
    {"type": st.sampled_from(["tool", "state", "input"])}, optional={"_instance": st.none() | NAMES, "state": values}
)


@many
@given(
    st.lists(messages, max_size=5),
    messages,
    records(TreePosition),
    st.lists(NAMES, min_size=1, max_size=3).map(tuple),
    records(PlanInput),
)
def test_the_two_halves_of_an_instances_input_are_the_whole(
    context: list[Json], plan: Json, position: TreePosition, instances: tuple[str, ...], more: PlanInput
) -> None:
    fields = {name: getattr(more, name) for name in PlanInput.model_fields if name not in ("request", "position")}
    request = {"config": {"model": None}, "context": [*context, plan]}
    record = InstanceInput(**{**fields, "request": request, "position": position, "instances": instances})
    own, shared = split_instance_input(record.to_json())
    joined = join_instance_input(through_json(own), shared)
    assert InstanceInput.from_json(joined) == record


def test_siblings_share_all_but_their_own_messages() -> None:
    """Whatever differs between them stands in the readable half: the rest is compressed once for all."""
    tool, plan = {"type": "tool", "tool": {}}, {"type": "plan", "plan": []}
    position = TreePosition(ancestors=("r",))
    halves = [
        split_instance_input(
            InstanceInput(
                request={"context": [tool, {"type": "state", "state": {"text": id_}, "_instance": id_}, plan]},
                position=position.child("r", id_), instances=(id_,),
            ).to_json()
        )
        for id_ in ("Ann", "Bob")
    ]  # fmt: skip
    assert halves[0][1] == halves[1][1]
    assert halves[0][0] == {
        "instances": ["Ann"], "context": [{"type": "state", "state": {"text": "Ann"}, "_instance": "Ann"}],
    }  # fmt: skip


@pytest.mark.parametrize("own", [{}, {"instances": []}, {"context": []}])
def test_half_of_an_input_that_lacks_something_is_refused(own: Json) -> None:
    request = {"context": [{"type": "plan", "plan": []}]}
    _, shared = split_instance_input(
        InstanceInput(request=request, position=TreePosition(), instances=("a",)).to_json()
    )
    with pytest.raises(KeyError):
        join_instance_input(own, shared)


# -- where a run stands ----------------------------------------------------------------------------


def test_a_child_stands_below_its_parent_and_a_delegate_one_level_deeper() -> None:
    root = TreePosition()
    assert (root.is_root, root.depth, root.maxDepth) == (True, 0, DEFAULT_DEPTH)
    plan = root.child("r")
    assert (plan.ancestors, plan.depth, plan.instance) == (("r",), 0, None)
    room = plan.delegate("r/plan-1", "Ann")
    assert (room.ancestors, room.depth, room.instance) == (("r", "r/plan-1"), 1, "Ann")
    assert room.child("r/plan-1/2:send", "Bob").instance == "Ann"  # that of the root's plan


@pytest.mark.parametrize(
    ("depth", "budget", "expected"),
    [(0, None, DEFAULT_DEPTH), (0, 3, 3), (0, 20, 20), (2, 3, 5), (2, 100, DEFAULT_DEPTH), (2, 0, 2)],
)
def test_a_budget_of_depth_counts_from_where_it_is_set_and_never_exceeds_one_above(
    depth: int, budget: int | None, expected: int
) -> None:
    position = TreePosition(ancestors=("r",) * depth, depth=depth)
    assert position.with_budget("r/x", Budget(depth=budget)).maxDepth == expected


def test_only_a_budget_that_limits_something_becomes_an_account() -> None:
    position = TreePosition()
    assert position.with_budget("r", Budget()).accounts == position.with_budget("r", Budget(depth=2)).accounts == ()
    both = position.with_budget("r", Budget(calls=0)).with_budget("r/x", Budget(cost=1.5))
    assert [account.id for account in both.accounts] == ["r", "r/x"]


def test_what_outlives_its_tree_is_the_root_of_its_own() -> None:
    position = TreePosition(ancestors=("r",), instance="Ann", depth=2, maxDepth=5, identity="i", token="t")  # noqa: S106
    own = position.with_budget("r", Budget(calls=1)).detached("its call")
    assert (own.is_root, own.depth, own.maxDepth, own.accounts, own.instance) == (True, 3, 5, (), None)
    assert (own.identity, own.token) == ("its call", "t")


def test_a_child_has_the_token_of_its_tree_and_an_identity_where_its_work_is_its_own() -> None:
    root = TreePosition(identity="i", token="t")  # noqa: S106
    part, delegate = root.child("r", "Ann"), root.delegate("r", "Ann", "its call")
    assert (part.identity, part.token) == ("i", "t")
    assert (delegate.identity, delegate.token) == ("its call", "t")


def test_a_grant_says_what_it_lacks_to_the_longest_answer() -> None:
    grant = GrantedRequest.from_json({"id": "r#1", "tokens": 5, "cost": 1, "mayRepair": True})
    assert (grant.tokensShort, grant.costShort, grant.cost) == (0, 0.0, 1.0)
