"""JSON that is heavy for its size: deep, wide, repetitive, long, with odd numbers and text. Seeded, so it comes again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Json = Any

# Deeper JSON is refused by everything; inputs are mostly below, some at the limit, some far beyond
DEEP = 95
WORDS = (
    "a",
    "b",
    "code",
    "error",
    "state",
    "items",
    "0",
    "name",
    "†state.x",
    "_tool",
    "x" * 40,
    "é",
    "漢字",
    "🦊",
    "a.b",
    "~1/",
)
NUMBERS = (0, 1, -1, 7, 2**53 + 1, 2**63, 10**30, 10**300, 10**400, 0.1, 1e-300, 1e300, 4.02, -0.0)
ALPHABETS = ("a", "ab", "abcdefghij", "é漢字🦊", "\u0000\u0001\n\t", '†{}&|.[]"\\', "<>`|#*_ ")


CAREFUL_SHARE = 0.7


class Source:
    """Random choices within a budget of bytes: ``left`` says how many more the input may have.

    ``greed`` is the chance that one thing takes all that is left. A careful source makes nothing wrong on purpose:
    what comes after the checks is reached by such inputs only.
    """

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.left = size
        self.greed = self.random.choice((0.2, 0.5, 0.95))
        self.is_careful = self.random.random() < CAREFUL_SHARE

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def slips(self, share: float) -> bool:
        """True, sometimes, where something wrong is to be made on purpose."""
        return not self.is_careful and self.chance(share)

    def count(self, bytes_each: int, most: int = 10**9) -> int:
        """How many things of so many bytes to make: often a few, sometimes all that fit."""
        fitting = max(1, min(self.left // max(1, bytes_each), most))
        if not self.chance(self.greed):
            fitting = min(fitting, self.random.choice((1, 2, 3, 8, 30, 100)))
        self.left -= fitting * bytes_each
        return fitting

    def pick(self, options: Any) -> Any:
        return self.random.choice(options)

    def word(self) -> str:
        return self.pick(WORDS)

    def text(self, most: int = 2_000_000) -> str:
        alphabet = self.pick(ALPHABETS)
        length = self.count(max(len(c.encode()) for c in alphabet), most)
        if self.chance(0.5):
            return (alphabet * (length // len(alphabet) + 1))[:length]
        return "".join(self.random.choices(alphabet, k=min(length, 100_000)))


def value(source: Source, depth: int = 0) -> Json:
    shapes: tuple[Callable[[Source, int], Json], ...] = (
        _scalar, _wide_list, _wide_object, _tower, _text, _list_of_alike, _small, _same_keys,
    )  # fmt: skip
    return source.pick(shapes if depth < 4 and source.left > 50 else (_scalar,))(source, depth)


def _scalar(source: Source, depth: int) -> Json:
    return source.pick((None, True, False, *NUMBERS, *WORDS))


def _text(source: Source, depth: int) -> Json:
    return source.text()


def _wide_list(source: Source, depth: int) -> Json:
    item = source.pick((0, "", None, [], {}, 1.5, "a", True, 10**300, 2**60))
    count = source.count(len(str(item)) + 2)
    return [item] * count if source.chance(0.5) else list(range(min(count, source.left // 6 + 1)))


def _wide_object(source: Source, depth: int) -> Json:
    item = source.pick((0, "", {}, [], None))
    return {f"{source.pick('ab')}{i}": item for i in range(source.count(12))}


def _tower(source: Source, depth: int) -> Json:
    inner: Json = value(source, depth + 1)
    key = source.pick((None, "a", "properties", "b"))
    for _ in range(source.random.randrange(1, DEEP if source.chance(0.9) else 105)):
        inner = [inner] if key is None else {key: inner}
    return inner


def _list_of_alike(source: Source, depth: int) -> Json:
    keys = [f"k{i}" for i in range(source.random.randrange(1, 6))]
    return [{k: i if j else str(i) for j, k in enumerate(keys)} for i in range(source.count(12 * len(keys)))]


def _same_keys(source: Source, depth: int) -> Json:
    return [{"a": 1, "b": i} for i in range(source.count(18))]


def _small(source: Source, depth: int) -> Json:
    return {source.word(): value(source, depth + 1) for _ in range(source.random.randrange(4))}


def mutate(source: Source, root: Json) -> Json:
    """The value with some of its parts replaced, doubled, moved or renamed; parts are shared, not copied."""
    for _ in range(source.random.randrange(1, 4)):
        root = _mutate_once(source, root)
    return root


def _mutate_once(source: Source, root: Json) -> Json:
    """Walk down to a random part and change it there."""
    if not isinstance(root, (dict, list)) or not root or source.chance(0.15):
        return _changed(source, root)
    if isinstance(root, dict):
        key = source.pick(list(root)[:200])
        new = _mutate_once(source, root[key])
        return {k: (new if k == key else v) for k, v in root.items()}
    index = source.random.randrange(len(root))
    return [*root[:index], _mutate_once(source, root[index]), *root[index + 1 :]]


def _changed(source: Source, part: Json) -> Json:
    choice = source.random.randrange(7)
    if choice == 0:
        return _scalar(source, 0)
    if choice == 1:
        return [part, part] if source.chance(0.5) else {"allOf": [part, part]}
    if choice == 2 and isinstance(part, dict):
        return {**part, source.word(): part}
    if choice == 3 and isinstance(part, list):
        return part * source.random.randrange(0, 4)
    if choice == 4 and isinstance(part, dict) and part:
        gone = source.pick(list(part)[:100])
        return {k: v for k, v in part.items() if k != gone}
    if choice == 5 and isinstance(part, str):
        return part * 3 or "†"
    return value(source, 3)
