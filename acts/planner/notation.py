r"""Values and types as a model reads them: JSON that cannot pose as anything else, in part where it is large.

Laws of this file: pure, equal input gives equal text. Data is JSON in which no ``<`` begins a closing tag or one of
our tags (it is written ``\u003c``, which JSON reads as the same text); free text keeps every ``<`` but those of our
tags. What stands between the tags, and where, is not decided here. A type is for reading only, like ``{id: string,
lines?: {sku: string, price: number}[]}``: nothing is checked by it. It takes a third of the room of its schema.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from acts.language.errors import truncate
from acts.language.references import Path
from acts.language.schemas import DEFS
from acts.language.strict_json import json_size, json_text
from acts.language.values import Json, Place, replace_parts, type_name

# Bytes of compact JSON, some 40,000 tokens: a value up to this size may have to be read
LARGE_VALUE_BYTES: Final = 128 * 1024
# Where all data together outgrows its room, values are shown in part above these sizes: the largest at which it fits
VALUE_LIMITS: Final = (LARGE_VALUE_BYTES, 16_384, 4096, 1024, 256)
# What is shown of a large value: this part of the limit, within these bounds
_BEGINNING: Final = 4
_LEAST_BEGINNING_BYTES: Final = 64
_MOST_BEGINNING_BYTES: Final = 2048
# A part of a part with less room than this has no beginning of its own: values nest 100 deep
_LEAST_PART_BYTES: Final = 16
_MAX_KEYS: Final = 64  # an object of more keys than these is a table: its beginning is shown, not each of its keys
_SAMPLE_ITEMS: Final = 50  # items of a list whose keys are described: enough to meet the optional ones
# Characters of a key in the beginning of a large object
_MAX_KEY: Final = 100
IN_PART: Final = "(in part)"

# Characters of one type: some 150 tokens. What a result holds is described, not specified: its Tool checks it
MAX_TYPE: Final = 600
_DEEPEST: Final = 6
# Characters of the description of one property, and of one constant
_MAX_NOTE: Final = 80
_MAX_CONSTANT: Final = 60
_MAX_CHOICES: Final = 12
_CONSTANTS: Final = json.JSONEncoder(ensure_ascii=False)
_PLAIN_NAME: Final = re.compile(r"[^\s<>(){}\[\]\"'|&:=?#]+")

TAGS: Final = (
    "text", "data", "outcomes", "problems", "earlier", "plan", "error", "call", "tool", "tools", "state", "input",
    "system", "developer", "user", "assistant", "instructions", "rules", "output",
)  # fmt: skip
"""Names of tags that are ours, or that a reader could take for ours."""
_OWN: Final = rf"\s*(?:{'|'.join(TAGS)})\b"
_IN_JSON: Final = re.compile(rf"<(?=\s*[/\\]|{_OWN})", re.IGNORECASE)
_IN_TEXT: Final = re.compile(rf"<(?=\s*/?{_OWN})", re.IGNORECASE)


def data_json(value: Any) -> str:
    """Compact JSON in which no tag of ours begins or ends."""
    return _IN_JSON.sub("\\\\u003c", json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def escape_text(text: str) -> str:
    """Free text in which no tag of ours begins or ends: their ``<`` is written ``&lt;``."""
    return _IN_TEXT.sub("&lt;", text)


def find_limit(sizes: Iterable[int], room: float, *, whole: bool = False) -> float:
    """The bytes above which a value is shown in part, so that values of these sizes fit into ``room`` together.

    ``whole``: where all of them fit, none is shown in part.
    """
    sizes = list(sizes)
    limits = (math.inf, *VALUE_LIMITS) if whole else VALUE_LIMITS
    return next((limit for limit in limits if sum(min(size, limit) for size in sizes) <= room), limits[-1])


# What models read, with the ends of its names. Other media are data like any other
MEDIA: Final = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "application/pdf": "pdf",
}  # fmt: skip
MAX_FILE_BYTES: Final = 20 * 1024 * 1024
# Estimates: the most that an image took of a window for years; a PDF of text has about a page for 60 kB, and the pages
# that most models read are no more
_IMAGE_TOKENS: Final = 1_600
_PDF_BYTES_PER_TOKEN: Final = 40
_MAX_PDF_TOKENS: Final = 50_000
_UNKNOWN_PDF_BYTES: Final = 400_000  # of one that only the provider loads
_TEXT_BYTES_PER_TOKEN: Final = 3.5


class File(dict[str, Json]):
    """What a prompt shows of a file: ``{media, file, bytes?, name?, whole?}``. The file goes beside the text.

    ``id`` is made of the content, so it is the same in every prompt. ``source`` is the base64 of a file, or its URL.
    """

    def __init__(self, value: Mapping[str, Any], path: Path | None) -> None:
        self.media, self.is_url = str(value["media"]), "ref" in value
        self.source = "".join(value["ref" if self.is_url else "base64"].split())
        self.id = hashlib.sha256(f"{self.media} {self.source}".encode()).hexdigest()[:8]
        size = None if self.is_url else len(self.source) * 3 // 4 - self.source[-2:].count("=")
        name = truncate(str(value["name"]), _MAX_NOTE) if "name" in value else None
        more = {"bytes": size, "name": name, "whole": None if path is None else str(path)}
        super().__init__(media=self.media, file=self.id, **{k: v for k, v in more.items() if v is not None})

    @property
    def is_image(self) -> bool:
        return self.media != "application/pdf"

    @property
    def text_bytes(self) -> int:
        """The bytes of a text of as many tokens, about."""
        tokens = min(self.get("bytes", _UNKNOWN_PDF_BYTES) // _PDF_BYTES_PER_TOKEN, _MAX_PDF_TOKENS)
        return math.ceil((_IMAGE_TOKENS if self.is_image else tokens) * _TEXT_BYTES_PER_TOKEN)

    def defect(self) -> str:
        """Why no model can be given it; empty where one can."""
        if self.get("bytes", 0) > MAX_FILE_BYTES:
            return f"it has {self['bytes']:,} bytes; a file has at most {MAX_FILE_BYTES:,}"
        try:
            return "" if self.is_url or binascii.a2b_base64(self.source, strict_mode=True) else "its base64 is empty"
        except ValueError as error:
            return f"its base64 is none: {error}"


def with_files(value: Json, path: Path | None) -> Json:
    """The value with a File in place of each file in it; ``path`` is as in ``in_part``. Without one it is the same."""
    files = _find_files(value) if '"media":"' in json_text(value) else ()
    return replace_parts(value, [(at, File(file, _below(path, *map(str, at)))) for at, file in files])


def _find_files(value: Json) -> Iterator[tuple[Place, dict[str, Json]]]:
    stack: list[tuple[Json, Place]] = [(value, ())]
    while stack:
        item, place = stack.pop()
        if isinstance(item, dict) and _is_file(item):
            yield place, item
            continue
        for key, child in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(child, (dict, list)):
                stack.append((child, (*place, key)))


def _is_file(value: dict[str, Json]) -> bool:
    """True for ``{media, base64 | ref, name?}``."""
    if not isinstance(media := value.get("media"), str) or media not in MEDIA:
        return False
    keys, source = value.keys() - {"media", "name"}, value.get("base64", value.get("ref"))
    return isinstance(source, str) and (keys == {"base64"} or (keys == {"ref"} and source.startswith("https://")))


def files_of(value: Json) -> Iterator[File]:
    """The files in a value that a prompt shows, in their order."""
    if isinstance(value, File):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from files_of(part)


def shown_bytes(value: Json, most: float = math.inf) -> float:
    """The bytes of a value in a prompt: ``most`` of its text, and its files as texts of as many tokens."""
    text = with_files(value, None)
    files = () if text is value else files_of(text)
    return min(json_size(text), most) + sum(file.text_bytes for file in files)


def in_part(value: Json, path: Path | None, limit: float = LARGE_VALUE_BYTES) -> Json:
    """The value itself up to ``limit`` bytes of JSON; of a larger one its shape, its beginning and its reference.

    ``path`` is where a Call can read all of it; None: nowhere. An object of few keys keeps them, each with a share;
    else it is ``{"(in part)": shape, "begins": …, "keys"?: …, "whole"?: reference}``. A file is a File.
    """
    return _shorten(with_files(value, path), path, limit)


def _shorten(value: Json, path: Path | None, limit: float) -> Json:
    size = json_size(value)
    if size <= limit or isinstance(value, File):
        return value
    if isinstance(value, dict) and len(value) <= _MAX_KEYS and limit >= _LEAST_BEGINNING_BYTES:
        share = limit // (len(value) + 1)  # smaller at each level: a value that nests deep is measured a few times
        parts = {k: _shorten(v, _below(path, k), share) for k, v in value.items()}
        if json_size(parts) <= limit:
            return parts
    if limit < _LEAST_PART_BYTES and isinstance(value, (dict, list)):  # so small a part says nothing
        return {IN_PART: f"{len(value):,} {'keys' if isinstance(value, dict) else 'items'}, {size:,} bytes"}
    room = min(max(int(limit) // _BEGINNING, _LEAST_BEGINNING_BYTES), _MOST_BEGINNING_BYTES)
    more: dict[str, Json] = {} if path is None else {"whole": str(path)}
    if isinstance(value, str):
        begins = value.encode()[:room].decode(errors="ignore")
        return {IN_PART: f"a text of {len(value):,} characters", "begins": begins, **more}
    if isinstance(value, list):
        items = [item for _, item in _first_parts(enumerate(value), path, room)]
        keys = _describe_items(value)
        text = f"a list of {len(value):,} items, {size:,} bytes"
        return {IN_PART: text, "begins": items, **({"keys": keys} if keys else {}), **more}
    if isinstance(value, dict):
        own = {truncate(key, _MAX_KEY): item for key, item in _first_parts(value.items(), path, room)}
        return {IN_PART: f"an object of {len(value):,} keys, {size:,} bytes", "begins": own, **more}
    return {IN_PART: f"a number of {size:,} digits", **more}


def _below(path: Path | None, *names: str) -> Path | None:
    return None if path is None else Path(path.kind, (*path.names, *names))


def _first_parts(parts: Iterable[tuple[Any, Json]], path: Path | None, room: int) -> list[tuple[Any, Json]]:
    """The first items of a list or keys of an object that fit into ``room`` bytes, at least one."""
    out: list[tuple[Any, Json]] = []
    for key, part in parts:
        short = _shorten(part, _below(path, str(key)), room // 2)
        room -= json_size(short) + (len(key) if isinstance(key, str) else 0)
        if out and room < 0:
            break
        out.append((key, short))
    return out


def _describe_items(value: list[Json]) -> dict[str, str]:
    """The keys of the objects in a list, each with its type; ``{}`` where the items are no objects, or have many."""
    types: dict[str, dict[str, None]] = {}
    for item in value[:_SAMPLE_ITEMS]:
        for key, part in item.items() if isinstance(item, dict) else ():
            types.setdefault(truncate(key, _MAX_KEY), {})[type_name(part)] = None
    return {key: " or ".join(names) for key, names in types.items()} if len(types) <= _MAX_KEYS else {}


def describe_type(schema: Json, definitions: Mapping[str, Json]) -> str:
    """A JSON Schema in few words; ``definitions`` are those that its ``#/$defs/…`` references name.

    A schema that says too much for one line loses its deepest levels.
    """
    texts = (_describe(schema, definitions, depth) for depth in range(_DEEPEST, 0, -1))
    short = next((text for text in texts if len(text) <= MAX_TYPE), None)
    return truncate(_describe(schema, definitions, 0), MAX_TYPE) if short is None else short


def write_types(schema: Json) -> str:
    """All of a JSON Schema, as types: that of the whole is ``Answer``, each definition has a line of its own.

    Properties with ``_`` that several definitions have alike, as the Calls of most Tools do, are written once.
    """
    definitions: dict[str, Json] = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    split = {name: _split_meta(part) for name, part in definitions.items()}
    counts = Counter(meta for _, meta in split.values() if meta)
    shared = {meta: f"call{i or ''}" for i, meta in enumerate(text for text, n in counts.items() if n > 1)}
    lines = [f"Answer = {_write(schema)}", *(f"{name} = {meta}" for meta, name in shared.items())]
    for name, (own, meta) in split.items():
        text = f"{shared[meta]} & {own}" if meta in shared else _write(definitions[name])
        lines.append(f"{_name(name)} = {text}")
    return _IN_JSON.sub("\\\\u003c", "\n".join(lines))


def _split_meta(schema: Json) -> tuple[str, str]:
    """The type of an object without its meta-properties, and the type of these; ``""`` where it has none."""
    properties: dict[str, Json] = schema.get("properties", {}) if isinstance(schema, dict) else {}
    names = [name for name in properties if name.startswith("_") and name != "_tool"]
    if not names:
        return "", ""
    meta = {"properties": {k: properties[k] for k in names}, "required": [k for k in schema["required"] if k in names]}
    rest = {k: v for k, v in properties.items() if k not in names}
    return _write({**schema, "properties": rest}), _write({"type": "object", **meta, "additionalProperties": False})


# Keywords that a type says, by the first of them that decides its form; those of no type's form say nothing
_SAID: Final = (
    ("$ref",), ("const", "type"), ("enum", "type"), ("anyOf",), ("oneOf",),
    ("type", "properties", "required", "additionalProperties", "items", "format"),
)  # fmt: skip
_SILENT: Final = ("description", "title", "nullable", "$defs", "$schema", "$id", "$comment", "examples")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _name(key: str) -> str:
    """The name of a property or a definition; one that could pose as more than a name is quoted."""
    return key if _PLAIN_NAME.fullmatch(key) else _CONSTANTS.encode(key)


def _write(schema: Json) -> str:
    """All of a schema on one line; a keyword that no type says stands behind it, with its JSON."""
    text = _describe(schema, None, math.inf)
    if not isinstance(schema, dict):
        return text
    keys_of_type = next((keys for keys in _SAID if keys[0] in schema), _SAID[-1])
    notes = [_one_line(schema["description"])] if isinstance(schema.get("description"), str) else []
    notes += [f"{key}: {data_json(part)}" for key, part in schema.items() if key not in (*keys_of_type, *_SILENT)]
    return f"{text} ({'; '.join(notes)})" if notes else text


def _describe(schema: Json, definitions: Mapping[str, Json] | None, depth: float) -> str:
    """The type of a schema, in ``depth`` levels; without ``definitions`` it is whole, and references are names."""
    if not isinstance(schema, dict):
        return "any" if schema is not False else "nothing"
    if definitions is None and isinstance(schema.get("$ref"), str):
        return _name(str(schema["$ref"]).removeprefix(DEFS))
    for _ in range(_DEEPEST):  # a circle of references ends as any value
        if definitions is None or not isinstance(schema.get("$ref"), str):
            break
        target = definitions.get(schema["$ref"].removeprefix(DEFS))
        schema = target if isinstance(target, dict) else {}
    else:
        return "any"
    most, most_choices = (None, None) if definitions is None else (_MAX_CONSTANT, _MAX_CHOICES)
    if "const" in schema:
        return _constant(schema["const"], most)
    if isinstance(schema.get("enum"), list):
        texts = [_constant(v, most) for v in schema["enum"][:most_choices]]
        return " | ".join([*texts, *(["…"] if len(schema["enum"]) > len(texts) else [])])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return " | ".join(dict.fromkeys(_describe_part(s, definitions, depth) for s in schema[key]))
    types = schema.get("type")
    names = types if isinstance(types, list) else [types]
    text = " | ".join(dict.fromkeys(_describe_as(schema, name, definitions, depth) for name in names))
    return f"{text} | null" if schema.get("nullable") is True and "null" not in names else text


def _describe_part(schema: Json, definitions: Mapping[str, Json] | None, depth: float) -> str:
    return _write(schema) if definitions is None else _describe(schema, definitions, depth)


def _describe_as(schema: dict[str, Any], name: Json, definitions: Mapping[str, Json] | None, depth: float) -> str:
    if name == "array" or (name is None and "items" in schema):
        item = _describe_part(schema.get("items", True), definitions, depth)
        return f"({item})[]" if " | " in item or item.endswith(")") else f"{item}[]"
    if name == "string" and isinstance(schema.get("format"), str):
        return f"string ({truncate(_one_line(schema['format']), _MAX_NOTE)})"
    if name != "object" and not (name is None and "properties" in schema):
        return name if isinstance(name, str) else "any"
    properties, required, rest = (schema.get(key) for key in ("properties", "required", "additionalProperties"))
    has_names = isinstance(properties, dict) and properties
    if not has_names and not (isinstance(rest, dict) and depth > 0):
        return "{}" if rest is False and definitions is None else "object"
    if depth <= 0:
        return "{…}"
    parts = []
    for key, part in properties.items() if isinstance(properties, dict) else ():
        mark = "" if isinstance(required, list) and key in required else "?"
        text = f"{_name(key)}{mark}: {_describe_part(part, definitions, depth - 1)}"
        note = part.get("description") if isinstance(part, dict) and depth > 1 and definitions is not None else None
        parts.append(f"{text} ({truncate(_one_line(note), _MAX_NOTE)})" if isinstance(note, str) and note else text)
    if isinstance(rest, dict) and (not has_names or definitions is None):
        parts.append(f"[name]: {_describe_part(rest, definitions, depth - 1)}")
    return f"{{{', '.join([*parts, *(['…'] if rest is True and definitions is None else [])])}}}"


def _constant(value: Json, most: int | None) -> str:
    text = _CONSTANTS.encode(value)
    return text if most is None else truncate(text, most)
