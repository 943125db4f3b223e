"""What a provider's prompt cache would serve of a request, by the provider's documented rules, on the bodies as sent.

Nothing here is a provider: tokens are estimated by bytes, entries never expire, and routing never misses. So a share is
the most that the marks and the order of a request allow. The rules, and the prices as multiples of fresh input:

* Anthropic: an entry ends at each mark, where the part up to it is long enough; a mark finds entries that end at most
  20 blocks before it. Written at 1.25, read at 0.1. The schema is part of the system text.
* OpenAI before GPT-5.6: the longest beginning that is equal to that of an earlier request, in steps of 128 tokens,
  from 1,024 on. Written at 1, read at 0.1.
* OpenAI since GPT-5.6: an entry ends at each breakpoint, from 1,024 tokens on. Written at 1.25, read at 0.1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

_LOOK_BACK: Final = 20
_OPENAI_MINIMUM: Final = 1_024
_OPENAI_STEP: Final = 128
WRITE: Final = 1.25
READ: Final = 0.1


@dataclass(frozen=True)
class Rules:
    """The rules of one model. ``minimum`` is the shortest entry in tokens; ``step``: the cache needs no marks."""

    model: str
    api: str
    bytes_per_token: float
    minimum: int
    look_back: int | None = None
    step: int | None = None
    write: float = WRITE


# Minimums of Anthropic's models: its documentation, as gateways quote it; that of 5.5 is taken to be that of 5
MODELS: Final = (
    Rules("claude-opus-5-5", "anthropic", 2.7, 512, _LOOK_BACK),
    Rules("claude-sonnet-4-5", "anthropic", 2.7, 1_024, _LOOK_BACK),
    Rules("claude-haiku-4-5", "anthropic", 2.7, 4_096, _LOOK_BACK),
    Rules("gpt-6-sol", "responses", 3.5, _OPENAI_MINIMUM),
    Rules("gpt-4.1", "responses", 3.5, _OPENAI_MINIMUM, step=_OPENAI_STEP, write=1.0),
)


@dataclass(frozen=True)
class Share:
    """Tokens of one request: all of its input, and what of it was read from the cache and written to it."""

    total: float
    read: float
    written: float

    def cost(self, rules: Rules) -> float:
        """The cost of the input in fresh tokens."""
        return self.total - self.read - self.written + self.read * READ + self.written * rules.write


@dataclass
class PromptCache:
    """A cache that serves requests of one model in order."""

    rules: Rules
    _entries: set[bytes] = field(default_factory=set)
    _texts: list[str] = field(default_factory=list)

    def serve(self, *bodies: dict[str, Any]) -> list[Share]:
        """The shares of requests that are sent at the same time: none finds what another of them writes."""
        requests = [blocks_of(body, self.rules.api) for body in bodies]
        shares = [self._serve_prefix(blocks) if self.rules.step else self._serve_marks(blocks) for blocks in requests]
        for blocks in requests:
            self._texts.append("".join(text for text, _ in blocks))
            self._entries |= {_digests(blocks)[i] for i in self._marks(blocks)}
        return shares

    def _tokens(self, size: int) -> float:
        return size / self.rules.bytes_per_token

    def _ends(self, blocks: Sequence[tuple[str, bool]]) -> list[float]:
        return [self._tokens(size) for size in accumulate(len(text.encode()) for text, _ in blocks)]

    def _marks(self, blocks: Sequence[tuple[str, bool]]) -> list[int]:
        """The blocks that an entry ends with."""
        ends = self._ends(blocks)
        return [i for i, (_, marked) in enumerate(blocks) if marked and ends[i] >= self.rules.minimum]

    def _serve_marks(self, blocks: Sequence[tuple[str, bool]]) -> Share:
        ends, digests, marks = self._ends(blocks), _digests(blocks), self._marks(blocks)
        first = 0 if self.rules.look_back is None else self.rules.look_back
        places = {at for mark in marks for at in range(max(0, mark - first), mark + 1)}
        hit = max((at for at in places if digests[at] in self._entries), default=None)
        read = 0.0 if hit is None else ends[hit]
        last = ends[marks[-1]] if marks else 0.0
        return Share(ends[-1], read, max(0.0, last - read))

    def _serve_prefix(self, blocks: Sequence[tuple[str, bool]]) -> Share:
        text = "".join(part for part, _ in blocks)
        longest = max((_common_bytes(text, other) for other in self._texts), default=0)
        tokens = int(self._tokens(longest))
        step = self.rules.step or 1
        read = tokens // step * step if tokens >= self.rules.minimum else 0
        total = self._tokens(len(text.encode()))
        return Share(total, read, total - read)


def blocks_of(body: dict[str, Any], api: str) -> list[tuple[str, bool]]:
    """The blocks of a request in the order in which a provider reads them: (text, ends with a mark)."""
    if api == "anthropic":
        schema = body.get("output_config", {}).get("format")
        turns = [("system", body.get("system", "")), *((m["role"], m["content"]) for m in body["messages"])]
    else:
        schema = body["text"]["format"]
        turns = [("system", body.get("instructions", "")), *((m["role"], m["content"]) for m in body["input"])]
    out = [(json.dumps(schema), False)]
    for role, content in turns:
        parts = [{"text": content}] if isinstance(content, str) else content
        out += [(f"{role}\n{p['text']}", bool({"cache_control", "prompt_cache_breakpoint"} & set(p))) for p in parts]
    return out


def _digests(blocks: Sequence[tuple[str, bool]]) -> list[bytes]:
    """For each block, the digest of all up to its end."""
    digest, out = hashlib.sha256(), []
    for text, _ in blocks:
        digest.update(len(text).to_bytes(8, "big") + text.encode())
        out.append(digest.digest())
    return out


def _common_bytes(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return len(one[:low].encode())
