"""Compression of the Tools and the plan, which a parent sends to every child of a batch.

Each child costs two copies in histories: the parent's and its own. Deflate alone shrinks a small
plan to a quarter; a preset dictionary of the most frequent keys shrinks it to a sixth.

WARNING: compressed data can only be read with the dictionary it was written with, and histories keep
that data. Never change a dictionary; a new one needs a new format letter.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

from acts.language.errors import format_choices

# Larger than any Request that can be recorded or stored; the limit stops decompression bombs
MAX_UNPACKED: Final = 65 * 1024 * 1024
# The preset dictionaries: frequent text of Requests, the most frequent last, where references are shortest
_SCHEMAS: Final = (
    '"nullable":true,"default":"title":"examples":["minLength":1,"maxLength":"pattern":"^†"},"format":"date-time"},'
    '"minItems":1,"maxItems":"additionalProperties":false},"oneOf":[{"anyOf":[{"type":"null"}]},"$defs":{"$ref":'
    '"#/$defs/"},"maximum":"minimum":0},"enum":["_options":{"const":{"timeout":"30s","retry":{"maxAttempts":3,'
    '"nonRetryable":["heartbeat":"taskQueue":"local":true}}},"_delegate":{"const":"anonymous"},"_approval":'
    '{"const":true},"_scopes":["†state.","†input."],"_scopes":{"const":["_reasoningForCall":{"type":"string"},'
    '"_errorPath":{"const":"†state."},"_errorPath":{"type":"string"},"_outputMethod":{"const":"push"},"_outputMethod":'
    '{"type":"string"},"_outputPath":{"enum":["†state."]},"_outputPath":{"type":"string"},"_instance":"items":'
    '{"type":"array","items":{"type":"object","properties":{"type":["string","null"]},"type":"number"},'
    '"type":"boolean"},"type":"integer"},"type":"object"},"type":"array"},"type":"string"},'
)
# By format letter: "b" knows the records of today, "a" is read in older histories
_DICTIONARIES: Final = {
    b"a": (_SCHEMAS + (
        '{"type":"tool","tool":'
        '{"type":"object","required":["properties":{"_tool":{"const":"description":"_activity":{"const":"_output":'
        '{"type":"object","properties":{"_output":{"properties":{"_outputPath":{"const":"†state."},"_tool":{"const":""},'
        '"":{"type":"string"}},"required":[""],"type":"object"}},{"type":"tool","tool":{"description":"","properties":'
        '{"_activity":{"const":"{"type":"state","state":{"kind":"{"_tool":"","_outputPath":"†state.","":"†state.","†input.'
        '"}],"mode":"lazy"}]},"missing":"wait","model":"anthropic:openai:{"type":"plan","plan":[{"_tool":""}]}]},'
        '"registry":{"tools":{},"served":[],"pins":{}},"source":{"workflowId":"","runId":"","upto":},'
        '"tree":{"depth":0,"limit":8,"bank":null}}{"request":{"config":{"maxParallel":100,"approve":{"plan":false}},'
        '"context":[{"type":"tool","tool":{"description":"'
    )).encode(),
    b"b": (_SCHEMAS + (
        '{"type":"tool","tool":{"type":"object","required":["properties":{"_tool":{"const":"description":"_activity":{'
        '"const":"_output":{"type":"object","properties":{"_output":{"properties":{"_outputPath":{"const":"†state."},'
        '"_tool":{"const":""},{"type":"state","state":{"kind":"missing":"wait","model":"anthropic:openai:",'
        '"instancesPerChild":"position":{"ancestors":[""],"depth":1,"maxDepth":"accounts":[{"id":"","limits":{"requests":'
        ',"tokens":"capabilities":{"tools":{},"served":["pins":{"price":["forecast":{"places":[{"type":"data","data":{'
        '"kind":"schema":{"type":"input","input":{"text":"{"_tool":"","_outputPath":"†state.","":"†state.","†input.",'
        '"mode":"lazy""]},"":{"minimum":0,"type":"integer"},"":{"type":"boolean"},"":{"type":"number"},"":{"type":"object'
        '"},"items":{"items":{"properties":{"":{"type":"string"}},"type":"object"},"type":"array"}},"required":["","'
        '"],"type":"object"}},{"type":"tool","tool":{"description":"","properties":{"_activity":{"const":""},"_output":'
        '{"properties":{"":{"type":"string"}},"required":[""],"type":"object"},"_outputPath":{"const":"†state."},"_tool":'
        '{"const":""},"":{"type":"string"}},"required":[""],"type":"object"}},{"type":"plan","plan":[{"_tool":"","":'
        '"†state."},{"_tool":"","":"†input."}]}]},"position":{"ancestors":[""]},"capabilities":{},"context":{"workflowId":'
        '"","runId":"01","messageCount":1},"approve":{"calls":[]},"part":true}{"v":1,"request":{"config":{"maxParallel":'
        '100,"approve":{"plan":false}},"context":[{"type":"tool","tool":{"description":"'
    )).encode(),
}  # fmt: skip
_LETTER: Final = b"b"


@lru_cache(maxsize=4)  # every child of a batch has the same shared half
def compress(data: bytes) -> bytes:
    """The compressed form of ``data``, after a letter that names the format."""
    compressor = zlib.compressobj(9, zdict=_DICTIONARIES[_LETTER])
    return _LETTER + compressor.compress(data) + compressor.flush()


def decompress(data: bytes) -> bytes:
    """The inverse of ``compress``.

    Raises:
        ValueError: the format is unknown, the data is corrupt, or the result exceeds 16 MiB.
    """
    dictionary = _DICTIONARIES.get(data[:1])
    if dictionary is None:
        letters = format_choices(letter.decode() for letter in _DICTIONARIES)
        raise ValueError(f"compressed data begins with one of {letters}, not {data[:1]!r}")
    decompressor = zlib.decompressobj(zdict=dictionary)
    try:
        out = decompressor.decompress(data[1:], MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"compressed data cannot be read: {error}") from None
    if not decompressor.eof:
        raise ValueError(f"compressed data is cut off, or holds more than {MAX_UNPACKED:,} bytes")
    return out
