"""Compression of what all children of a batch are sent: Tools and the plan.

It is recorded twice for each child, by the run above and by the child. Compressed by itself a small plan
shrinks to a quarter; with the words that most of them use known beforehand, to a sixth.

WARNING: ``_WORDS`` is part of everything that was ever compressed, and histories keep that. It never
changes; other words are another dictionary under a letter of its own.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

# More than any Request that can be recorded: a bomb is refused
MAX_UNPACKED: Final = 16 * 1024 * 1024
_LETTER: Final = b"a"
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


@lru_cache(maxsize=4)  # a batch compresses the same again for each of its children
def compress(data: bytes) -> bytes:
    """Bytes that ``decompress`` reads."""
    compressor = zlib.compressobj(9, zdict=_WORDS)
    return _LETTER + compressor.compress(data) + compressor.flush()


def decompress(data: bytes) -> bytes:
    """What was compressed.

    Raises:
        ValueError: it is nothing that ``compress`` made, or too large.
    """
    if data[:1] != _LETTER:
        raise ValueError(f"compressed data begins with {_LETTER!r}, not {data[:1]!r}")
    decompressor = zlib.decompressobj(zdict=_WORDS)
    try:
        out = decompressor.decompress(data[1:], MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"compressed data cannot be read: {error}") from None
    if not decompressor.eof:
        raise ValueError(f"compressed data is cut off, or holds more than {MAX_UNPACKED:,} bytes")
    return out
