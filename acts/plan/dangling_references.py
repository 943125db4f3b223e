"""References that nothing in the context or the plan can satisfy, and what their author may have meant.

The check looks at the reads that no Call listed before satisfies (``PlanListing.open_reads``) and
needs no plan order, so it works for a plan with a cycle or with Calls that could not be read.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem, find_similar, format_choices
from acts.language.reference_uses import ELEMENT_KINDS
from acts.language.references import Path
from acts.language.values import ABSENT, pointer, type_name, with_article
from acts.plan.context_log import START

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acts.language.reference_uses import ReferenceUse
    from acts.language.values import Place
    from acts.plan.context_log import Log
    from acts.plan.graph import Has, OpenRead, PlanListing
    from acts.plan.planned_call import PlannedCall

# Of the Calls that write near a reference, so many are compared with it: a hint is short, and its cost bounded
_WRITERS_COMPARED: Final = 50
# Of the paths that they write
_WRITES_COMPARED: Final = 100
_WRITES_LISTED: Final = 6
# Of the end of each path: a comparison takes the product of the lengths
_CHARACTERS_COMPARED: Final = 60
# Expressions of one string, and paths of one of them, that a problem names
_PATHS_LISTED: Final = 20
# Strings that read nothing: of more, the check says no more, as of Calls with errors
MAX_LACKING: Final = 1_000


class ReferenceCheck:
    """Checks the references of one plan; ``log`` is its context, for the hints."""

    def __init__(self, listing: PlanListing, log: Log, severity: str) -> None:
        self._listing = listing
        self._log = log
        self._severity = severity
        self._hints_left = MAX_PROBLEMS_REPORTED  # no report shows more of them

    def problems(self, unsatisfied: Iterable[OpenRead], has: Has, instance: str | None = None) -> list[Problem]:
        """One ``unknownReference`` for each of these reads that no other Call satisfies either.

        ``instance`` is the one whose context the hints describe; without it, that of each Call.
        """
        lacking: dict[tuple[int, Place], tuple[ReferenceUse, list[tuple[Path, ...]]]] = {}
        for read in unsatisfied:
            if len(lacking) >= MAX_LACKING:
                break
            call = self._listing.calls[read.position]

            def is_available(path: Path, read: OpenRead = read, call: PlannedCall = call) -> bool:
                return self._listing.is_written_by_another(path, read.position) or has(path, call.instance)

            if not read.is_satisfied(is_available):
                missing = tuple(path for path in read.paths if not is_available(path))
                lacking.setdefault((read.position, read.use.at), (read.use, []))[1].append(missing)
        return [self._problem(at, use, missing, instance) for (at, _), (use, missing) in lacking.items()]

    def _problem(
        self, position: int, use: ReferenceUse, missing: Sequence[tuple[Path, ...]], instance: str | None
    ) -> Problem:
        """The problem of one string; ``missing`` are the paths of each of its expressions that lacks some."""
        call = self._listing.calls[position]
        texts = [" or ".join(map(str, paths[:_PATHS_LISTED])) for paths in missing[:_PATHS_LISTED]]
        texts += [f"{len(missing) - _PATHS_LISTED:,} more"] if len(missing) > _PATHS_LISTED else []
        text = f"nothing in the context or the plan provides {', nor '.join(texts)}"
        hint = self._hint(missing[0][0], position, instance or call.instance)
        # A condition that reads nothing is false: its Call is skipped
        severity = "warning" if use is call.condition else self._severity
        return Problem("unknownReference", text, call.pointer + pointer(*use.at), call.id, hint, severity)

    # -- hints -----------------------------------------------------------------

    def _hint(self, path: Path, position: int, instance: str | None) -> str | None:
        """What the context and the plan offer instead, the likely one first."""
        self._hints_left -= 1
        if self._hints_left < 0:
            return None
        if path.kind in ELEMENT_KINDS:
            return f"{path} is an element of a list in the parameters of a call with _each, and nowhere else"
        context_depth, names, text = self._context_near(path, instance)
        write_depth, writes = self._writes_near(path, position)
        if writes:
            end = str(path)[-_CHARACTERS_COMPARED:]
            listed = sorted(
                writes[:_WRITES_COMPARED],
                key=lambda w: SequenceMatcher(None, str(w)[-_CHARACTERS_COMPARED:], end).ratio(),
                reverse=True,
            )
            more = f", … ({len(writes)} in all)" if len(writes) > _WRITES_LISTED else ""
            text += f"; the plan writes: {', '.join(map(str, listed[:_WRITES_LISTED]))}{more}"
        offers = [(write_depth, [_tokens(w)[write_depth] for w in writes[:_WRITES_COMPARED]]), (context_depth, names)]
        for depth, candidates in sorted(offers, key=lambda offer: -offer[0]):
            similar = find_similar(_tokens(path)[depth], candidates)
            if similar is not None:
                tokens = [*_tokens(path)[:depth], similar, *_tokens(path)[depth + 1 :]]
                return f'did you mean "{Path(tokens[0], tuple(tokens[1:]))}"? {text}'
        return text

    def _context_near(self, path: Path, instance: str | None) -> tuple[int, list[str], str]:
        """The deepest place on the way to ``path`` that the context has: how deep, its names, and both in words."""
        for depth in range(len(path.names) - 1, -1, -1):
            place = Path(path.kind, path.names[:depth])
            value = self._log.read(place, START, instance)
            if isinstance(value, dict):
                return depth + 1, list(value), f"{place} has: {format_choices(value)}"
            if value is not ABSENT:
                size = f" of {len(value)}" if isinstance(value, list) else ""
                return depth + 1, [], f"{place} is {with_article(type_name(value))}{size}"
        kinds = list(self._log.view_of(instance).kinds())
        return 0, kinds, f"kinds in the context: {format_choices(kinds)}"

    def _writes_near(self, path: Path, position: int) -> tuple[int, list[Path]]:
        """What other Calls write below the longest possible part of ``path``, and how long that part is."""
        calls = self._listing.calls
        for depth in range(len(path.names) - 1, -1, -1):
            place = Path(path.kind, path.names[:depth])
            chains = self._listing.writers.at_or_below(place, calls[position].instance)
            writers = [calls[i] for chain in chains for i in chain.entries[:_WRITERS_COMPARED] if i != position]
            writes = dict.fromkeys(w for call in writers for w in call.writes if place.holds(w))
            if writes:
                return depth + 1, list(writes)
        others = (call for i, call in enumerate(calls[:_WRITERS_COMPARED]) if i != position)
        return 0, list(dict.fromkeys(w for call in others for w in call.writes))


def _tokens(path: Path) -> tuple[str, ...]:
    return (path.kind, *path.names)
