"""A Python function with type hints as a Tool: ``@acts.tool``.

    @acts.tool(destructive=True, timeout="30s", retry=3, failures=["declined"])
    def issue_refund(order_id: str, cents: Annotated[int, Field(gt=0)], *, call: acts.Call) -> Refund:
        "Pays back to the card that was charged."

Laws of this file: it makes a schema and an Activity of a function, once, where the function is defined, and leaves the
function as it is. What cannot be a Tool is refused there. How Tools are found and served is not known here
(``activities/registry.py``).

Parameters are read by pydantic as JSON, so a ``datetime`` or a model arrives as one. ``call`` and ``context`` are no
parameters: they are passed, by these names, to a function that asks for them.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, get_type_hints, overload

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic.warnings import UnsupportedFieldAttributeWarning
from pydantic_core import PydanticSerializationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from acts.language.config import settings_text
from acts.language.errors import Problem, SettingsError, format_choices, truncate
from acts.language.messages import METHODS
from acts.language.references import MARK
from acts.language.schemas import DEFS
from acts.language.tools import FAILURES, HINTS, KEY, TYPED_TOOL, read_tool
from acts.language.values import ABSENT, Json
from acts.language.wire import BAD_RESULT, SCHEMA_MISMATCH

F = TypeVar("F", bound=Callable[..., Any])

_PATH: Final = {"type": "string", "pattern": f"^{MARK}"}
# What a Call of a typed Tool may choose, unless the Tool fixes it
_CHOICES: Final[dict[str, Json]] = {"_outputPath": _PATH, "_errorPath": _PATH, "_outputMethod": {"enum": [*METHODS]}}
_SCOPES: Final[dict[str, Json]] = {"type": "array", "items": {"type": "string"}}
_RAN: Final = "the call ran, and its effect may have happened"
# Sections of a docstring, and the parameters in one, as Google and Sphinx write them
_SECTION: Final = re.compile(r"^(?:(Args|Arguments|Parameters)|[A-Z]\w+):[ \t]*$|^(?=:\w[^\n:]*:)", re.MULTILINE)
_PARAMETER: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?::param (?:\S+ )?)?(?P<name>\w+)(?: \([^)\n]*\))?:"
    r"[ \t]*(?P<text>.+(?:\n(?P=indent)[ \t]+.+)*)",
    re.MULTILINE,
)

Duration = float | str | timedelta


class ToolSettings(TypedDict, total=False):
    """What ``@acts.tool`` takes. A duration is in seconds, or like ``"30s"``.

    ``name`` and ``description``: else those of the function and its docstring. ``timeout`` bounds an attempt; ``retry``
    is the number of attempts, or a map as in ``_options``. The hints are those of MCP. ``approval``: a person confirms
    each Call. ``undo`` is the Call that undoes one, such as ``{"_tool": "refund", "paymentId": "†result.id"}``.
    ``latent``: a model answers, and the function never runs. ``failures`` are the codes of the failures that it raises,
    or a map of code to meaning. ``output_path`` and ``scopes`` hold for every Call. ``output`` is the type of what is
    written, where the function returns a Message. ``secrets`` maps parameters to names of secrets, and ``meta`` has
    further meta-properties (docs/tools.md).
    """

    name: str
    description: str
    timeout: Duration
    retry: int | Mapping[str, Json]
    task_queue: str
    queue_timeout: Duration
    heartbeat: Duration
    local: bool
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    approval: bool
    undo: Mapping[str, Json]
    latent: bool
    failures: Iterable[str] | Mapping[str, str]
    output: Any
    output_path: str
    scopes: Iterable[str]
    secrets: Mapping[str, str]
    meta: Mapping[str, Json]


# By the setting's name, that in a schema
_OPTIONS: Final = {n: to_camel(n) for n in ("timeout", "retry", "task_queue", "queue_timeout", "heartbeat", "local")}
_HINTS: Final = {n: to_camel(n) for n in ("read_only", "destructive", "idempotent", "open_world")}


class Failure(ApplicationError):
    """A failure with a code that plans tell from others: ``raise acts.Failure("declined", "the card has expired")``.

    ``details`` are any JSON. The Call is not attempted again, unless ``retry`` says so: a number in so many seconds.
    """

    def __init__(self, code: str, message: str, *, details: Json = None, retry: bool | float = False) -> None:
        wait = None if isinstance(retry, bool) else timedelta(seconds=retry)
        parts = [] if details is None else [details]
        super().__init__(message, *parts, type=code, non_retryable=retry is False, next_retry_delay=wait)
        self.code = code


@dataclass(frozen=True)
class Call:
    """The Call that a Tool answers. ``id`` is its idempotency key: the same in every attempt, and of no other Call.

    ``attempt`` counts from 1, ``run`` is the workflow id, and ``key`` names the Call in the run: ``2:refund``.
    """

    id: str
    attempt: int = 1
    tool: str = ""
    run: str = ""
    key: str = ""


class _Schemas(GenerateJsonSchema):
    """pydantic's schemas without the titles that it makes of names; what it always writes is required in results."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001 - pydantic's signature
        is_written = field["type"] in ("model-field", "dataclass-field") and "serialization_exclude_if" not in field
        return (self.mode == "serialization" and is_written) or super().field_is_required(field, total)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its name in a Call, what reads it, and its default (JSON; ABSENT without one)."""

    name: str
    adapter: TypeAdapter[Any]
    default: Json = ABSENT


@dataclass(frozen=True)
class TypedTool:
    """A function as a Tool. ``place`` is its file and line; ``passed`` are ``call`` and ``context``, as it asks."""

    name: str
    place: str
    function: Callable[..., Any]
    schema: dict[str, Any] = field(repr=False)
    parameters: Mapping[str, Parameter] = field(repr=False)
    passed: frozenset[str]
    result: TypeAdapter[Any] = field(repr=False)
    is_latent: bool = False
    spec: Any = field(default=None, repr=False)  # of the module, as it was loaded

    @cached_property
    def activity(self) -> Callable[..., Any]:
        """The function as an Activity, with the three arguments of any Activity of a Tool."""

        async def run_async(call: dict[str, Any], _tool: dict[str, Any], context: list[Any]) -> Any:
            with self._noting_failures():
                return self.encode(await self.function(**self.decode(call, context)))

        def run(call: dict[str, Any], _tool: dict[str, Any], context: list[Any]) -> Any:
            with self._noting_failures():
                return self.encode(self.function(**self.decode(call, context)))

        return activity.defn(name=self.name)(run_async if inspect.iscoroutinefunction(self.function) else run)

    def decode(self, call: Mapping[str, Json], context: Sequence[Json]) -> dict[str, Any]:
        """The arguments of the function. Raises ApplicationError: the Call is not one of this Tool, as it is now."""
        arguments: dict[str, Any] = {}
        values = {name: value for name, value in call.items() if not name.startswith("_")}
        for name, parameter in self.parameters.items():
            value = values.pop(parameter.name, ABSENT)
            if value is not ABSENT:
                try:
                    arguments[name] = parameter.adapter.validate_json(json.dumps(value))
                except ValidationError as error:
                    raise self._mismatch(f'"{parameter.name}": {settings_text(error)}') from None
            elif parameter.default is ABSENT:
                raise self._mismatch(f'"{parameter.name}" is missing')
        if values:
            raise self._mismatch(f'"{min(values)}" is no parameter')
        if "call" in self.passed:
            info = activity.info()
            own = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
            run = str(info.workflow_id or "")
            arguments["call"] = Call(str(call.get("_id", own)), info.attempt, self.name, run, info.activity_id)
        if "context" in self.passed:
            arguments["context"] = context
        return arguments

    def _mismatch(self, text: str) -> ApplicationError:
        choices = format_choices(parameter.name for parameter in self.parameters.values())
        text = f'the call does not fit the tool "{self.name}" of this worker: {text}; its parameters: {choices}'
        return ApplicationError(text, type=SCHEMA_MISMATCH, non_retryable=True)

    def encode(self, result: Any) -> Json:
        """The result as JSON. Raises ApplicationError: it is not what the function's type hint says."""
        try:
            return self.result.dump_python(self.result.validate_python(result), mode="json", by_alias=True)
        except (ValidationError, PydanticSerializationError) as error:
            defects = settings_text(error) if isinstance(error, ValidationError) else str(error)
            text = f'the result of "{self.name}" does not fit its type: {truncate(defects, 1_000)}; {_RAN}'
            raise ApplicationError(text, type=BAD_RESULT, non_retryable=True) from None

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except Failure as failure:
            if failure.code not in self.schema.get(FAILURES, ()):
                text = 'tool "%s" fails with "%s", which it does not declare: add it to failures=[…] (%s)'
                activity.logger.warning(text, self.name, failure.code, self.place)
            raise


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**settings: Unpack[ToolSettings]) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **settings: Any) -> F | Callable[[F], F]:
    """Make a function with type hints a Tool (see ``ToolSettings``). The function stays as it is, and may be called.

    Raises SettingsError, with the place of the function and what is allowed: it cannot be a Tool.
    """
    return partial(_decorate, settings) if function is None else _decorate(settings, function)


def _decorate(settings: Mapping[str, Any], function: F) -> F:
    builder = _Builder(function, settings)
    setattr(function, TYPED_TOOL, typed := builder.build())
    # A module that is loaded again has a spec of its own, and a notebook has none
    before = getattr(function.__globals__.get(function.__name__), TYPED_TOOL, None)
    if before is not None and before.spec is typed.spec is not None:
        raise builder.refusal(f"it replaces the tool of that name at {before.place}; each name is of one function")
    return function


class _Builder:
    """Makes the Tool of one function. Every error begins with its place and its name."""

    def __init__(self, function: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self.function, self.settings = function, settings
        code = getattr(inspect.unwrap(function), "__code__", None)
        self.place = repr(function) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
        self.name = str(settings.get("name") or getattr(function, "__name__", ""))
        text = str(settings.get("description") or inspect.getdoc(function) or "")
        self.description, self.descriptions = read_docstring(text)

    def refusal(self, text: str) -> SettingsError:
        return SettingsError(f'{self.place}: tool "{self.name}": {text}')

    def build(self) -> TypedTool:
        if unknown := self.settings.keys() - ToolSettings.__annotations__.keys():
            raise self.refusal(f'no setting "{min(unknown)}"; allowed: {", ".join(ToolSettings.__annotations__)}')
        if not inspect.isfunction(self.function) or inspect.isgeneratorfunction(self.function):
            raise self.refusal("a tool is a plain function, def or async def, that returns its result")
        signature, hints = inspect.signature(self.function), self._read_hints()
        passed = frozenset(name for name in signature.parameters if self._is_passed(signature.parameters[name], hints))
        own = {name: self._read(one, hints) for name, one in signature.parameters.items() if name not in passed}
        result = self._adapter("its result", hints.get("return", Any))
        schema = self._schema(own, None if "return" not in hints else result, passed)
        read, problems = read_tool(self.name, schema)
        if read is None or problems:
            raise self.refusal("; ".join(map(self._problem_text, problems)))
        is_latent, spec = bool(self.settings.get("latent")), self.function.__globals__.get("__spec__")
        return TypedTool(self.name, self.place, self.function, schema, own, passed, result, is_latent, spec)

    def _problem_text(self, problem: Problem) -> str:
        """What is wrong with the schema; with a setting, in the words of ``ToolSettings``."""
        option = problem.pointer.partition("/_options/")[2].partition("/")[0]
        key = next((key for key, word in _OPTIONS.items() if word == option and key in self.settings), None)
        return problem.message if key is None else f"{key}={self.settings[key]!r}: {problem.message.partition(': ')[2]}"

    def _read_hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function, include_extras=True)
        except Exception as error:  # noqa: BLE001 - a hint may be any expression
            hint = "what a hint names is defined before the function, and not under TYPE_CHECKING"
            raise self.refusal(f"a type hint cannot be read: {error}; {hint}") from None

    def _is_passed(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
        """True for ``call`` and ``context``; raises SettingsError for one in another place or of another kind."""
        is_call, is_last = hints.get(parameter.name) is Call, parameter.kind is parameter.KEYWORD_ONLY
        if (parameter.name == "call") != is_call or ((is_call or parameter.name == "context") and not is_last):
            rule = "`call: acts.Call` and `context: list` are passed by name: they stand after a `*`, and no parameter"
            raise self.refusal(f'parameter "{parameter.name}": {rule} of a Call has these names')
        return is_call or parameter.name == "context"

    def _read(self, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Parameter:
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            rule = "a Call passes each parameter by its name, so there is no *args, no **kwargs and no /"
            raise self.refusal(f'parameter "{name}": {rule}')
        if name.startswith("_"):
            raise self.refusal(f'parameter "{name}": names that begin with _ are those of meta-properties')
        if name not in hints:
            raise self.refusal(f'parameter "{name}" has no type hint; Any allows every value')
        adapter, alias = self._adapter(f'parameter "{name}"', hints[name]), name
        for note in getattr(hints[name], "__metadata__", ()):
            alias = (note.alias or alias) if isinstance(note, FieldInfo) else alias
        if parameter.default is parameter.empty:
            return Parameter(alias, adapter)
        return Parameter(alias, adapter, self._default(name, parameter.default, adapter))

    def _adapter(self, what: str, hint: Any, mode: Literal["validation", "serialization"] = "validation") -> Any:
        try:
            with warnings.catch_warnings(action="ignore", category=UnsupportedFieldAttributeWarning):
                adapter = TypeAdapter(hint)  # the alias is that of the parameter
            adapter.json_schema(mode=mode, schema_generator=_Schemas)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError, ValueError) as error:
            allowed = "models, dataclasses, TypedDict, Literal, Annotated, Enum, lists, dicts and plain values have one"
            reason = str(error).partition("\n")[0]
            if isinstance(error, PydanticSchemaGenerationError):  # whose advice is for models
                reason = "make its class a dataclass or a pydantic model, or pass what it is made of"
            raise self.refusal(f"the type hint of {what}, {hint!r}, has no JSON Schema: {reason}; {allowed}") from None
        return adapter

    def _schema(
        self, own: Mapping[str, Parameter], result: TypeAdapter[Any] | None, passed: frozenset[str]
    ) -> dict[str, Any]:
        if "output" in self.settings:
            result = self._adapter("output", self.settings["output"], "serialization")
        inputs: list[Any] = [(one.name, "validation", one.adapter) for one in own.values()]
        inputs += [] if result is None else [("_output", "serialization", result)]
        parts, shared = TypeAdapter.json_schemas(inputs, schema_generator=_Schemas)
        defs = shared.get("$defs", {})
        texts = self.descriptions
        notes = {one.name: {"description": texts[name]} for name, one in own.items() if name in texts}
        schemas = {name: _inline({**notes.get(name, {}), **part}, defs) for (name, _), part in parts.items()}
        defs = _used_definitions(schemas, defs)
        output = {"_output": schemas.pop("_output")} if result is not None else {}
        for parameter in own.values():
            schemas[parameter.name] |= {} if parameter.default is ABSENT else {"default": parameter.default}
        secrets = self._read_secrets(own)
        required = [one.name for one in own.values() if one.default is ABSENT and one.name not in secrets]
        failures = self._read_failures()
        hints = {word: bool(self.settings[key]) for key, word in _HINTS.items() if key in self.settings}
        meanings = ", ".join(f"{code} ({text})" if text else code for code, text in failures.items())
        about = [self.description, f"It may fail with: {meanings}." if failures else ""]
        return {
            "type": "object",
            "description": "\n".join(filter(None, about)),
            "properties": {**self._meta(passed), **output, **schemas, **secrets},
            "required": required,
            "additionalProperties": False,
            **({HINTS: hints} if hints else {}),
            **({FAILURES: failures} if failures else {}),
            **({"$defs": defs} if defs else {}),
        }

    def _meta(self, passed: frozenset[str]) -> dict[str, Json]:
        settings, latent = self.settings, bool(self.settings.get("latent"))
        meta: dict[str, Json] = {"_tool": {"const": self.name}, "_activity": {"const": "" if latent else self.name}}
        meta |= _CHOICES | ({"_scopes": _SCOPES} if "context" in passed else {})
        meta |= {"_outputPath": {"const": settings["output_path"]}} if "output_path" in settings else {}
        meta |= {"_scopes": {"const": list(settings["scopes"])}} if "scopes" in settings else {}
        meta |= {"_approval": {"const": True}} if settings.get("approval") else {}
        meta |= {"_undo": {"const": dict(settings["undo"])}} if "undo" in settings else {}
        options: dict[str, Json] = {}
        for value, word in ((settings[key], word) for key, word in _OPTIONS.items() if key in settings):
            is_map, is_count = isinstance(value, Mapping), word == "retry" and isinstance(value, int)
            plain = value.total_seconds() if isinstance(value, timedelta) else dict(value) if is_map else value
            options[word] = {"maxAttempts": value} if is_count else plain
        return {**meta, **({"_options": {"const": options}} if options else {}), **settings.get("meta", {})}

    def _default(self, name: str, default: Any, adapter: TypeAdapter[Any]) -> Json:
        try:
            return adapter.dump_python(adapter.validate_python(default), mode="json", by_alias=True)
        except (ValidationError, PydanticSerializationError) as error:
            reason = settings_text(error) if isinstance(error, ValidationError) else str(error)
            hint = "; write `| None` in its hint" if default is None else ""
            raise self.refusal(
                f'the default of parameter "{name}", {default!r}, does not fit: {reason}{hint}'
            ) from None

    def _read_secrets(self, own: Mapping[str, Parameter]) -> dict[str, Json]:
        secrets = self.settings.get("secrets", {})
        if unknown := secrets.keys() - own.keys():
            raise self.refusal(f'secrets name "{min(unknown)}"; its parameters: {format_choices(own)}')
        return {own[name].name: {"const": {KEY: secret}} for name, secret in secrets.items()}

    def _read_failures(self) -> dict[str, str]:
        failures = self.settings.get("failures", ())
        listed = dict(failures) if isinstance(failures, Mapping) else dict.fromkeys(failures, "")
        if isinstance(failures, str) or not all(isinstance(part, str) for item in listed.items() for part in item):
            raise self.refusal('failures are a list of codes, or a map of code to meaning: failures=["declined"]')
        return listed


def _inline(part: dict[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that is one definition, as that: models are asked for an object where they can see that it is one."""
    name = part.get("$ref", "").removeprefix(DEFS)
    return {**defs.get(name, {}), **{key: value for key, value in part.items() if key != "$ref" or name not in defs}}


def _used_definitions(schemas: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    used: dict[str, Any] = {}
    while True:
        text = json.dumps([schemas, used])
        more = {name: part for name, part in defs.items() if name not in used and f'"{DEFS}{name}"' in text}
        if not more:
            return used
        used |= more


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section of a docstring, and the descriptions of the parameters by name."""
    starts = [*_SECTION.finditer(text)]
    ends = [match.start() for match in starts[1:]] + [len(text)]
    descriptions: dict[str, str] = {}
    for match, end in zip(starts, ends, strict=False):
        section = text[match.end() : end]
        if match[1] or section.startswith(":param "):
            descriptions |= {one["name"]: " ".join(one["text"].split()) for one in _PARAMETER.finditer(section)}
    return (text[: starts[0].start()] if starts else text).strip(), descriptions
