"""The plan as a state machine: events in, commands out, plain data in between.

Everything that decides what a plan does next lives here, and nothing else does. A
shell feeds events (a Call completed, a message was provided, pause …) and performs
the commands that come back (start this Call, ask a human, the plan is over). Time
comes in with the events; the walk has no clock.

A Call's life::

    pending → ready → (awaiting) → running → completed | failed | cancelled
                 └─→ skipped | failed              └─→ detached (fire-and-forget)
    awaiting → rejected

Serial equivalence rests on two waits, both prefixes of chains (see ``graph``):

* a Call *starts* when every writer before it that overlaps one of its reads settled;
* a result *takes effect* at once, save where a write before it could still decide
  whether it can be applied at all (``push`` onto what may become an object): then it
  waits for that write. Whoever could read it waits for that write anyway.

WARNING: what is in ``snapshot`` must be enough for ``restore``; a new field of
``CallState`` that outlives a quiet moment belongs into both.
"""

from __future__ import annotations

import bisect
import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

from acts.language.errors import CallError, EngineError, InvalidRequest, Problem
from acts.language.messages import Data
from acts.language.references import Path, conjunction, evaluate, parse, paths, resolve
from acts.language.schemas import Checker, checker
from acts.language.scopes import scoped_context
from acts.language.values import ABSENT, Json, pointer
from acts.language.wire import APPROVAL_TIMEOUT, CANCELLED, REJECTED, SCHEMA_MISMATCH, UNRESOLVED
from acts.machines.call_state import SETTLED, CallState, ChainProgress
from acts.machines.commands import AskHuman, Command, PlanFinished, StartCall
from acts.machines.instance_results import calls_by_instance, replay_into_log, status_from_states, status_of
from acts.machines.snapshot import Resumable
from acts.plan.context_log import END
from acts.plan.planned_call import approval_needed
from acts.plan.result_placement import Writes, appended_message, place_result
from acts.plan.validate import ValidatedPlan, state_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts.plan.context_log import Log
    from acts.plan.graph import WriterChain
    from acts.plan.planned_call import PlannedCall


class Walk(Resumable):
    """One plan, being walked. Feed it events; perform the commands it returns.

    ``identify`` gives a Call the ``_id`` it is started with: stable, and different for
    every Call of every run. ``dry`` makes it a dry run, in which results may be
    ``UNKNOWN`` and nobody is asked.
    """

    def __init__(self, prepared: ValidatedPlan, identify: Callable[[PlannedCall], str], *, dry: bool = False) -> None:
        self.prepared = prepared
        self.nodes = prepared.nodes
        self.ids = {n.key: rank for rank, n in enumerate(self.nodes)}
        self.known = calls_by_instance(prepared.whole) if prepared.whole is not None else {}
        self.runs = [CallState() for _ in self.nodes]
        self.log = prepared.log()
        self.paused = False
        self.draining = False
        self.cancelling = False
        self.running = 0
        self.open = len(self.nodes)
        self.provided: list[dict[str, Any]] = []
        self._identify = identify
        self.counts: dict[str, int] = {"pending": len(self.nodes)}
        self.changed: list[int] = []
        self._dry = dry
        self._over = False
        self._startable: list[int] = []
        self._asked: list[AskHuman] = []
        self._provided: list[Data] = []
        self._delayed: list[tuple[int, int, Writes, str]] = []
        self._freed: deque[tuple[int, str]] = deque()
        self._draining = False
        self._progress: dict[int, ChainProgress] = {}
        self._members: list[list[ChainProgress]] = [[] for _ in self.nodes]
        self._schemas = [m for m in prepared.request.data() if m.schema is not None]
        self._build()

    def _build(self) -> None:
        chains = self.prepared.graph.chains
        for table in (chains.exact, chains.below):
            for chain in table.values():
                progress = self._progress[id(chain)] = ChainProgress(chain)
                for rank in chain.entries:
                    self._members[rank].append(progress)
        for rank in range(len(self.nodes)):
            self.runs[rank].waiting = sum(
                self._await(chain, count, "start", rank) for chain, count in self.prepared.graph.waits[rank]
            )

    # -- events ----------------------------------------------------------------

    def begin(self, now: str) -> list[Command]:
        """Start walking (after a ``restore`` too)."""
        for rank, outcome, writes, date in self._delayed:
            self._take_effect(rank, outcome, writes, date)
        self._delayed.clear()
        for rank, run in enumerate(self.runs):
            if run.state == "pending" and run.waiting == 0:
                self._ready(rank, now)
        return self._commands()

    def completed(self, rank: int, value: Json, now: str, chosen: int | None = None) -> list[Command]:
        """What runs behind a Call returned ``value``; ``chosen`` is the outcome that a model chose for it."""
        if self._stop_running(rank):
            self._result(rank, value, now, chosen)
        return self._commands()

    def failed(self, rank: int, error: CallError, now: str) -> list[Command]:
        """What runs behind a Call failed, retries spent."""
        if self._stop_running(rank):
            if self.cancelling and error.code == CANCELLED:
                self._settle(rank, "cancelled", now)
            else:
                self._fail(rank, error, now)
        return self._commands()

    def unit_ended(self, rank: int, value: dict[str, Any], now: str) -> list[Command]:
        """A child has walked its instances; ``value`` is what each came to, by id."""
        if self._stop_running(rank):
            self.runs[rank].value = value
            self.take_unit(self.log, value)
            state = status_of("completed", [item["status"] for item in value.values()])
            self._settle(rank, "completed" if state == "partial" else state, now)
        return self._commands()

    def take_unit(self, log: Log, value: Json) -> None:
        """What instances wrote stands in their layers: whoever asks for their view finds it."""
        for id_, item in value.items():
            replay_into_log(log, self.known, id_, item)

    def detached(self, rank: int, now: str) -> list[Command]:
        """A fire-and-forget Call has been started durably."""
        if self._stop_running(rank):
            self._settle(rank, "detached", now)
        return self._commands()

    def decide(self, rank: int, decision: str, reason: str, now: str) -> list[Command]:
        """It was decided about an awaiting Call: ``approve``, ``reject``, or ``fail`` (nobody did in time)."""
        run = self.runs[rank] if 0 <= rank < len(self.runs) else CallState()
        if run.state == "awaiting" and run.resolved is not None:
            if decision == "approve":
                run.approved = True
                self._move(rank, "ready")
                if rank in self.prepared.given:
                    self._given(rank, now)
                else:
                    heapq.heappush(self._startable, rank)
            elif decision == "fail":
                self._fail(rank, CallError(APPROVAL_TIMEOUT, reason), now)
            else:
                run.error = {"code": REJECTED, "message": reason}
                self._settle(rank, "rejected", now)
        return self._commands()

    def provide(self, message: Data, now: str) -> list[Command]:
        """A message arrived from outside. It stands before the plan; Calls that started keep what they read.

        Raises:
            InvalidRequest: the message cannot be folded into the context.
        """
        if message.instance is not None and message.instance not in self.log.own:
            raise InvalidRequest([Problem("unknownInstance", f"unknown instance {message.instance!r}", "/_instance")])
        self.log = self._folded_again(message)
        self._provided.append(message)
        self.provided.append(message.raw)
        for rank, run in enumerate(self.runs):
            if run.state == "awaiting" and run.missing:
                run.missing = ()
                self._move(rank, "pending")
                self._ready(rank, now)
        return self._commands()

    def _folded_again(self, message: Data) -> Log:
        """The log with one more message below what the plan wrote; refused where that could not stand on it."""
        log = self.prepared.log()
        refused = None
        for known in (*self._provided, message):
            refused = refused or log.layer(known.instance).take(known, set())
        for rank, (node, run) in enumerate(zip(self.nodes, self.runs, strict=True)):
            if run.value is not None:
                self.take_unit(log, run.value)
            layer = log.layer(node.instance)
            for path, value, _ in run.written:
                refused = refused or layer.conflict(path, node.method, value, rank)
                layer.write(path, node.method, value, rank)
        if refused:
            raise InvalidRequest([Problem("invalidMessage", refused.message, "")])
        return log

    def pause(self) -> list[Command]:
        """Start nothing more until ``resume``; what runs goes on."""
        self.paused = True
        return []

    def resume(self) -> list[Command]:
        """Go on."""
        self.paused = False
        return self._commands()

    def drain(self, *, on: bool) -> list[Command]:
        """Hold back new Calls (before a snapshot), or stop holding them back."""
        self.draining = on
        return self._commands()

    def cancel(self, now: str) -> list[Command]:
        """Nothing more starts; what runs is to be cancelled by the shell and reported."""
        self.cancelling = True
        self._startable.clear()
        for rank, run in enumerate(self.runs):
            if run.state in ("pending", "ready", "awaiting"):
                self._settle(rank, "cancelled", now)
        return self._commands()

    def _move(self, rank: int, state: str) -> None:
        run = self.runs[rank]
        self.counts[run.state] -= 1
        self.counts[state] = self.counts.get(state, 0) + 1
        run.state = state
        self.changed.append(rank)

    # -- readiness -------------------------------------------------------------

    def _await(self, chain: WriterChain, count: int, what: str, rank: int) -> bool:
        """Wait for a prefix of a chain; False when it has settled already."""
        progress = self._progress[id(chain)]
        if progress.done >= count:
            return False
        progress.waiters.setdefault(count, []).append((what, rank))
        return True

    def _ready(self, rank: int, now: str) -> None:
        """Every Call that this one depends on has settled: resolve, check, queue."""
        node, run = self.nodes[rank], self.runs[rank]
        if self.cancelling:
            self._settle(rank, "cancelled", now)
            return
        if rank in self.prepared.given and (not run.edited or run.approved):
            self._given(rank, now)
            return
        if node.kind == "latent" and not node.outcomes:
            self._settle(rank, "skipped", now)
            return
        missing: list[str] = []
        parameters = resolve(node.parameters, lambda path: self.read(rank, path), missing)
        if missing:
            self._unresolved(rank, tuple(dict.fromkeys(missing)), now)
            return
        check = node.tool.parameters.partial_defects if self._dry else node.tool.parameters.defects
        defects = check(parameters)
        if defects:
            text = "; ".join(f"{pointer(*at) or 'the parameters'}: {why}" for at, why in defects[:5])
            self._fail(rank, CallError(SCHEMA_MISMATCH, f'parameters of "{node.tool.name}": {text}'), now)
            return
        call = {k: v for k, v in node.call.items() if k not in parameters and k != "_output"}
        run.resolved = {**call, **parameters, "_id": self._identify(node)}
        asked = self._asks(rank)
        if asked is not None and not run.approved:
            self._move(rank, "awaiting")
            self._asked.append(AskHuman(rank, node, run.resolved, asked))
            return
        self._move(rank, "ready")
        heapq.heappush(self._startable, rank)

    def read(self, rank: int, path: Path) -> Json:
        """What a Call reads at ``path``: what stands before it in plan order."""
        return self.log.read(path, rank, self.nodes[rank].instance, settled=True)

    def _scoped(self, rank: int) -> list[dict[str, Any]]:
        """What of the context a Call may see."""
        node = self.nodes[rank]
        if not node.scopes:
            return []
        layer = self.log.layer(node.instance)
        return scoped_context(
            node.scopes, lambda path: self.read(rank, path), lambda path: layer.shape(path, rank) == "list"
        )

    def _asks(self, rank: int) -> str | None:
        """What of a Call a human confirms; one that was edited is confirmed in any case."""
        if self._dry:
            return None
        node = self.nodes[rank]  # of a unit, each Call is confirmed where it is walked
        about = None if node.members else approval_needed(node, self.prepared.request.config.approve)
        return "call" if about is None and self.runs[rank].edited else about

    def _given(self, rank: int, now: str) -> None:
        node = self.nodes[rank]
        if not node.outcomes:
            self._settle(rank, "completed", now)
            return
        self._result(rank, node.call["_output"], now)

    def _unresolved(self, rank: int, missing: tuple[str, ...], now: str) -> None:
        run = self.runs[rank]
        if self._withheld(rank, missing):
            self._settle(rank, "skipped", now)
        elif self.prepared.request.config.missing == "wait":
            run.missing = missing
            self._move(rank, "awaiting")
        else:
            text = f"nothing is there for {', '.join(missing)}"
            self._fail(rank, CallError(UNRESOLVED, text), now)

    def _withheld(self, rank: int, missing: tuple[str, ...]) -> bool:
        """True when a dependency did not run, or took another outcome than one that is missed."""
        lacking = [path for text in missing for path in paths(parse(text))]
        for chain, count in self.prepared.graph.waits[rank]:
            for writer in chain.entries[:count]:
                if self.runs[writer].state != "completed":
                    return True
                done = [path for path, _, _ in self.runs[writer].written]
                others = (p for p in self.nodes[writer].writes if p not in done)
                if any(p.overlaps(x) for p in others for x in lacking):
                    return True
        return False

    # -- results ---------------------------------------------------------------

    def _stop_running(self, rank: int) -> bool:
        """True when the Call was running; a report of any other changes nothing."""
        if not 0 <= rank < len(self.runs):
            return False
        run = self.runs[rank]
        if run.state != "running" or run.effect is not None:
            return False
        self.running -= 1
        run.resolved = None
        return True

    def _result(self, rank: int, value: Json, now: str, chosen: int | None = None) -> None:
        node = self.nodes[rank]
        try:
            outcome, writes = place_result(node, value, chosen)
            self._check_output(node, writes)
        except CallError as error:
            self._fail(rank, error, now)
            return
        self._take_effect(rank, outcome, writes, now)

    def _check_output(self, node: PlannedCall, writes: Writes) -> None:
        seen: list[Json] = []
        for path, value in writes:
            if node.tool.output_check is not None and not any(value is s for s in seen):
                seen.append(value)
                self._fits(node.tool.output_check, value, f'the result of "{node.tool.name}" breaks its _output')
            schema = state_schema(self._schemas, path) if self._schemas and node.method == "set" else None
            if isinstance(schema, dict):
                self._fits(checker(schema), value, f"the schema of {path.kind} does not allow this at {path}")

    def _fits(self, check: Checker, value: Json, what: str) -> None:
        defects = check.partial_defects(value) if self._dry else check.defects(value)
        if defects:
            text = "; ".join(f"{pointer(*at) + ': ' if at else ''}{why}" for at, why in defects[:5])
            raise CallError(SCHEMA_MISMATCH, f"{what}: {text}")

    def _fail(self, rank: int, error: CallError, now: str) -> None:
        """A failure goes to the Call's error outcome, or ends it."""
        node, run = self.nodes[rank], self.runs[rank]
        first = run.error is None
        if first:
            run.error = error.to_json()
        if node.error is None or not first:
            self._settle(rank, "failed", now)
            return
        self._take_effect(rank, node.error, tuple((p, run.error) for p in node.outcomes[node.error]), now)

    def _take_effect(self, rank: int, outcome: int, writes: Writes, now: str) -> None:
        """Write, once nothing before this Call can decide whether it may."""
        run = self.runs[rank]
        run.outcome, run.effect = outcome, (writes, now)
        if run.state != "running":
            self._move(rank, "running")
        run.waiting = sum(self._await_above(rank, path) for path, _ in writes)
        if run.waiting == 0:
            self._effect_ready(rank)

    def _await_above(self, rank: int, path: Path) -> int:
        """Register for the writes above (and, save for ``set``, at) a path: they decide what stands there."""
        node = self.nodes[rank]
        above = self.prepared.graph.chains.above(path, node.instance, itself=node.method != "set")
        return sum(self._await(chain, _before(chain, rank), "effect", rank) for chain in above)

    def _effect_ready(self, rank: int) -> None:
        """What stands above is known; what was written below may still matter to other methods than ``set``."""
        node, run = self.nodes[rank], self.runs[rank]
        if node.method != "set" and run.effect is not None:
            for path, value in run.effect[0]:
                merges = node.method in ("merge", "assign") and isinstance(value, dict)
                if not (merges and self._open_shape(rank, path)):
                    below = self.prepared.graph.chains.at_or_below(path, node.instance)
                    run.waiting += sum(self._await(chain, _before(chain, rank), "effect", rank) for chain in below)
        if run.waiting == 0:
            self._write(rank)

    def _open_shape(self, rank: int, path: Path) -> bool:
        """True when what stands at ``path``, as far as it is known, takes a merge."""
        return self.log.layer(self.nodes[rank].instance).shape(path, rank) in ("object", "nothing", "null")

    def _write(self, rank: int) -> None:
        node, run = self.nodes[rank], self.runs[rank]
        if run.effect is None or run.outcome is None:
            raise EngineError(f"call {node.id} has nothing to write")
        (writes, now), run.effect = run.effect, None
        layer = self.log.layer(node.instance)
        for path, value in writes:
            refused = layer.conflict(path, node.method, value, rank)
            if refused:
                self._fail(rank, refused, now)
                return
        for path, value in writes:
            layer.write(path, node.method, value, rank)
        run.written = tuple((path, value, now) for path, value in writes)
        self._settle(rank, "completed", now)

    # -- settling --------------------------------------------------------------

    def _settle(self, rank: int, state: str, now: str) -> None:
        run = self.runs[rank]
        if run.state in SETTLED:
            raise EngineError(f"call {self.nodes[rank].id} settled twice: {run.state}, {state}")
        self._move(rank, state)
        run.resolved = None
        self.open -= 1
        self._freed.append((rank, now))
        if self._draining:
            return
        self._draining = True
        while self._freed:
            done, when = self._freed.popleft()
            for progress in self._members[done]:
                self._advance(progress, when)
        self._draining = False

    def _advance(self, progress: ChainProgress, now: str) -> None:
        entries = progress.chain.entries
        while progress.done < len(entries) and self.runs[entries[progress.done]].state in SETTLED:
            progress.done += 1
            for what, rank in progress.waiters.pop(progress.done, ()):
                run = self.runs[rank]
                run.waiting -= 1
                if run.waiting:
                    continue
                if what == "effect":
                    self._effect_ready(rank)
                elif run.state == "pending":
                    self._ready(rank, now)

    def _commands(self) -> list[Command]:
        """Start what may be started, in plan order."""
        out: list[Command] = list(self._asked)
        self._asked.clear()
        while self._startable and not self.paused and not self.draining and self.running < self.prepared.max_parallel:
            rank = heapq.heappop(self._startable)
            node, run = self.nodes[rank], self.runs[rank]
            self._move(rank, "running")
            self.running += 1
            out.append(StartCall(rank, node, run.resolved or {}, self._scoped(rank)))
        if self.open == 0 and not self._over:
            self._over = True
            out.append(PlanFinished(self.status))
        return out

    # -- what can be seen ------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """True when nothing runs: the moment for a snapshot."""
        return self.running == 0

    @property
    def status(self) -> str:
        """How the plan ends, or would end now."""
        if not self.prepared.request.instances():
            found = next((s for s in ("cancelled", "failed", "rejected") if self.counts.get(s)), "completed")
        else:
            found = self._status_of_instances()
        ended_so = self.cancelling and (found == "completed" or self.counts.get("cancelled"))
        return "cancelled" if ended_so else found

    def _status_of_instances(self) -> str:
        shared: list[str] = []
        parts: dict[str, list[str]] = {}
        for node, run in zip(self.nodes, self.runs, strict=True):
            if node.members:
                value = run.value if isinstance(run.value, dict) else {}
                parts.update({id_: [value.get(id_, {}).get("status", run.state)] for id_ in node.members})
            elif node.instance is None:
                shared.append(run.state)
            else:
                parts.setdefault(node.instance, []).append(run.state)
        return status_of(status_from_states(shared), [status_from_states(states) for states in parts.values()])

    def find(self, call: str | None, instance: str | None) -> int | None:
        """The rank of a Call by its id and, where several have it, its instance."""
        rank = self.ids.get(str(call))
        if rank is None and instance is not None:
            rank = self.ids.get(f"{instance}/{call}")
        return rank

    def awaits(self, call: str | None, instance: str | None = None) -> int | None:
        """The rank of a Call that waits for a decision, or None."""
        rank = self.find(call, instance)
        return rank if rank is not None and self.runs[rank].state == "awaiting" else None

    def provided_data(self) -> list[Data]:
        """The messages that were provided."""
        return self._provided

    def path_written(self, rank: int) -> str | None:
        """Where a Call wrote, as one expression, or None."""
        return conjunction(path for path, _, _ in self.runs[rank].written) or None

    def appended(self) -> list[dict[str, Any]]:
        """The messages that came after the Request's: provided ones, then outputs in plan order."""
        out = list(self.provided)
        for node, run in zip(self.nodes, self.runs, strict=True):
            out.extend(appended_message(node, path, value, date) for path, value, date in run.written)
        return out

    def value(self, tree: Any, instance: str | None = None) -> Json:
        """What an expression yields after everything that has taken effect."""
        return evaluate(tree, lambda path: self.log.read(path, END, instance))

    def state(self, instance: str | None = None) -> Json:
        """The view of the state kind: ``{}`` when there is none."""
        found = self.log.view("state", instance=instance)
        return {} if found is ABSENT else found


def _before(chain: WriterChain, rank: int) -> int:
    """How many entries of a chain stand before ``rank``."""
    return bisect.bisect_left(chain.entries, rank)
