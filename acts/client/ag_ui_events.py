"""The events of a run in the types of AG-UI (docs.ag-ui.com), as server-sent events: for pages that show an agent.

A stream begins with RUN_STARTED and a STATE_SNAPSHOT, which STATE_DELTA changes: ``{phase, waiting, calls: {id:
{tool, state, instance?, run?, call?}}, waits: {id: {…}}}``; the ids of Calls in runs below begin with the run. What
AG-UI has no type for is CUSTOM, named ``acts.`` and the type of the event. The id of a server-sent event is an offset;
it and the timestamp stand with the last part of each event: whoever reads on from it (Last-Event-ID) gets whole events.
RUN_FINISHED, or RUN_ERROR, is about the run that is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from pydantic_core import to_json

from acts.language.values import pointer
from acts.views.run_events import RunEvent

Part = dict[str, Any]
# Ends that are no error of a run: its plan, or a person, wanted it so
_FINISHED: Final = ("completed", "partial", "rejected", "cancelled")
_EMPTY: Final = {"phase": "running", "waiting": 0, "calls": {}, "waits": {}}
_MICROS_PER_MILLI: Final = 1000


class AgUiStream:
    """What AG-UI says of each event of one stream, in order."""

    def __init__(self) -> None:
        self._root: str | None = None
        self._calls: set[str] = set()  # those that have started, and have not ended
        self._waits: set[str] = set()
        self._messages: dict[tuple[str, str | None, int | None], str] = {}  # those that are being written

    def __call__(self, event: RunEvent) -> bytes:
        """The server-sent events of one event."""
        parts = list(self.parts(event))
        if not event.offset:
            return b"".join(map(_frame, parts))
        parts[-1]["timestamp"] = event.order[0] // _MICROS_PER_MILLI
        frames = [_frame(part) for part in parts]
        return b"".join([*frames[:-1], b"id: %b\n" % event.offset.encode(), frames[-1]])

    def parts(self, event: RunEvent) -> Iterator[Part]:
        """One or several events of AG-UI."""
        if self._root is None and event.offset:
            self._root = event.run
            yield {"type": "RUN_STARTED", "threadId": event.run, "runId": event.run}
            yield {"type": "STATE_SNAPSHOT", "snapshot": _EMPTY}
            if event.type == "runStarted":
                return
        yield from self._READERS.get(event.type, AgUiStream._other)(self, event)

    def _other(self, event: RunEvent) -> Iterator[Part]:
        yield {"type": "CUSTOM", "name": f"acts.{event.type}", "value": event.to_json()}

    def _run_ended(self, event: RunEvent) -> Iterator[Part]:
        if event.run != self._root:
            yield from self._other(event)
            return
        status, error = event.data["status"], event.data.get("error") or {}
        if status in _FINISHED:
            result = {k: v for k, v in event.data.items() if k not in ("workflow", "error")}
            yield {"type": "RUN_FINISHED", "threadId": event.run, "runId": event.run, "result": result}
        else:
            yield {"type": "RUN_ERROR", "message": error.get("message") or status, "code": error.get("code") or status}

    def _tick_started(self, event: RunEvent) -> Iterator[Part]:
        yield {"type": "STEP_STARTED", "stepName": self._step(event)}

    def _tick_ended(self, event: RunEvent) -> Iterator[Part]:
        yield {"type": "STEP_FINISHED", "stepName": self._step(event)}

    def _step(self, event: RunEvent) -> str:
        return f"tick {event.tick}" if event.run == self._root else f"tick {event.tick} of {event.run}"

    def _phase_changed(self, event: RunEvent) -> Iterator[Part]:
        yield _delta(
            *(("replace", f"/{name}", event.data[name]) for name in ("phase", "waiting") if name in event.data)
        )

    # -- Calls ---------------------------------------------------------------------------------------

    def _call_started(self, event: RunEvent) -> Iterator[Part]:
        id_ = self._call_key(event)
        self._calls.add(id_)
        arguments = event.data.get("parameters", event.data.get("parametersOmitted", {}))
        yield {"type": "TOOL_CALL_START", "toolCallId": id_, "toolCallName": event.tool or "?"}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": id_, "delta": _text_of(arguments)}
        yield {"type": "TOOL_CALL_END", "toolCallId": id_}
        yield _delta(("add", pointer("calls", id_), self._call_state(event, "running")))

    def _call_ended(self, event: RunEvent) -> Iterator[Part]:
        id_, data = self._call_key(event), event.data
        yield from self._end_message(event)
        if id_ not in self._calls:  # it never ran: it was skipped, or rejected
            yield _delta(("add", pointer("calls", id_), self._call_state(event, data["state"])))
            return
        self._calls.discard(id_)
        content = _text_of(data.get("error") or data.get("result", data.get("resultOmitted")))
        yield {"type": "TOOL_CALL_RESULT", "toolCallId": id_, "messageId": f"{id_}/result", "content": content}
        yield _delta(("replace", pointer("calls", id_, "state"), data["state"]))

    def _call_key(self, event: RunEvent) -> str:
        """The id of a Call; of one below, behind the run that has it."""
        own = f"{event.call} [{event.instance}]" if event.instance else str(event.call)
        return own if event.run == self._root else f"{event.run}/{own}"

    def _call_state(self, event: RunEvent, state: str) -> dict[str, Any]:
        own = {"tool": event.tool, "state": state, "call": event.call, "instance": event.instance, "run": event.run}
        if event.run == self._root:
            own |= {"call": None, "run": None}
        return {key: value for key, value in own.items() if value is not None}

    # -- waits ---------------------------------------------------------------------------------------

    def _wait_opened(self, event: RunEvent) -> Iterator[Part]:
        self._waits.add(id_ := _wait_key(event))
        yield from self._other(event)
        yield _delta(("add", pointer("waits", id_), event.to_json()))

    def _wait_closed(self, event: RunEvent) -> Iterator[Part]:
        yield from self._other(event)
        if (id_ := _wait_key(event)) in self._waits:
            self._waits.discard(id_)
            yield {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": pointer("waits", id_)}]}

    # -- words ---------------------------------------------------------------------------------------

    def _text(self, event: RunEvent) -> Iterator[Part]:
        key, id_ = (event.run, event.call, event.tick), str(event.data["message"])
        if self._messages.get(key) != id_:
            if not event.data["delta"]:  # an answer without words
                return
            yield from self._end_message(event)
            self._messages[key] = id_
            yield {"type": "TEXT_MESSAGE_START", "messageId": id_, "role": "assistant"}
        if event.data["delta"]:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": id_, "delta": event.data["delta"]}
        if event.data.get("isComplete"):
            yield from self._end_message(event)

    def _end_message(self, event: RunEvent) -> Iterator[Part]:
        if (id_ := self._messages.pop((event.run, event.call, event.tick), None)) is not None:
            yield {"type": "TEXT_MESSAGE_END", "messageId": id_}

    def _model_answered(self, event: RunEvent) -> Iterator[Part]:
        yield from self._end_message(event)
        yield from self._other(event)

    _READERS: ClassVar[Mapping[str, Callable[[AgUiStream, RunEvent], Iterator[Part]]]] = {
        "runEnded": _run_ended,
        "tickStarted": _tick_started,
        "tickEnded": _tick_ended,
        "phaseChanged": _phase_changed,
        "callStarted": _call_started,
        "callEnded": _call_ended,
        "waitOpened": _wait_opened,
        "waitClosed": _wait_closed,
        "text": _text,
        "modelAnswered": _model_answered,
    }


def _frame(part: Part) -> bytes:
    return b"data: %b\n\n" % to_json(part)


def _text_of(value: Any) -> str:
    return to_json(value).decode()


def _delta(*changes: tuple[str, str, Any]) -> Part:
    return {"type": "STATE_DELTA", "delta": [{"op": op, "path": path, "value": value} for op, path, value in changes]}


def _wait_key(event: RunEvent) -> str:
    parts = (event.data.get("source"), event.data.get("what"), event.call, event.instance)
    return " ".join(str(part) for part in parts if part)
