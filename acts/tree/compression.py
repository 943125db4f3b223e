"""JSON that is alike in many histories, as a short text.

What all children of a batch have in common (Tools, the plan) is recorded twice for each of
them: as what the run above sent, and as what the child was given. Compressed by itself a
small plan shrinks to a quarter; with the words that are in all of them known beforehand, to
a sixth.

WARNING: ``_WORDS`` is part of every text that was ever packed, and histories keep those. It
never changes; other words are another dictionary under a letter of its own.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import lru_cache
from typing import Final

from acts.language.values import Json

# The most that a text may unpack to: more than any Request that can be recorded, and no bomb
MAX_UNPACKED: Final = 16 * 1024 * 1024
_LETTER: Final = "a"
# What is frequent in Requests, the most frequent last: near words cost least
_WORDS: Final = (
    '"nullable":true,"default":"title":"examples":["minLength":1,"maxLength":"pattern":"^†"},"format":"date-time"},'
    '"minItems":1,"maxItems":"additionalProperties":false},"oneOf":[{"anyOf":[{"type":"null"}]},"$defs":{"$ref":'
    '"#/$defs/"},"maximum":"minimum":0},"enum":["_options":{"const":{"timeout":"30s","retry":{"maxAttempts":3,'
    '"nonRetryable":["heartbeat":"taskQueue":"local":true}}},"_delegate":{"const":"anonymous"},"_approval":'
    '{"const":true},"_scopes":["†state.","†input."],"_scopes":{"const":["_reasoningForCall":{"type":"string"},'
    '"_errorPath":{"const":"†state."},"_errorPath":{"type":"string"},"_outputMethod":{"const":"push"},"_outputMethod":'
    '{"type":"string"},"_outputPath":{"enum":["†state."]},"_outputPath":{"type":"string"},"_instance":"items":'
    '{"type":"array","items":{"type":"object","properties":{"type":["string","null"]},"type":"number"},'
    '"type":"boolean"},"type":"integer"},"type":"object"},"type":"array"},"type":"string"},{"type":"tool","tool":'
    '{"type":"object","required":["properties":{"_tool":{"const":"description":"_activity":{"const":"_output":'
    '{"type":"object","properties":{"_output":{"properties":{"_outputPath":{"const":"†state."},"_tool":{"const":""},'
    '"":{"type":"string"}},"required":[""],"type":"object"}},{"type":"tool","tool":{"description":"","properties":'
    '{"_activity":{"const":"{"type":"state","state":{"kind":"{"_tool":"","_outputPath":"†state.","":"†state.","†input.'
    '"}],"mode":"lazy"}]},"missing":"wait","model":"anthropic:openai:{"type":"plan","plan":[{"_tool":""}]}]},'
    '"registry":{"tools":{},"served":[],"pins":{}},"source":{"workflowId":"","runId":"","upto":},'
    '"tree":{"depth":0,"limit":8,"bank":null}}{"request":{"config":{"maxParallel":100,"approve":{"plan":false}},'
    '"context":[{"type":"tool","tool":{"description":"'
).encode()


def packed(value: Json) -> str:
    """A text that ``unpacked`` reads."""
    return _pressed(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@lru_cache(maxsize=4)  # a batch packs the same again for each of its children
def _pressed(text: str) -> str:
    press = zlib.compressobj(9, zdict=_WORDS)
    return _LETTER + base64.b64encode(press.compress(text.encode()) + press.flush()).decode()


def unpacked(text: str) -> Json:
    """What was packed.

    Raises:
        ValueError: it is no text of ``packed``, or of one that is too large.
    """
    if text[:1] != _LETTER:
        raise ValueError(f"a packed text begins with {_LETTER!r}, not {text[:1]!r}")
    press = zlib.decompressobj(zdict=_WORDS)
    try:
        data = press.decompress(base64.b64decode(text[1:], validate=True), MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"what was packed cannot be read: {error}") from None
    if not press.eof:
        raise ValueError(f"what was packed is cut off, or more than {MAX_UNPACKED:,} bytes")
    return json.loads(data)
