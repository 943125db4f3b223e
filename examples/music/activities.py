"""A melody, a synthesizer and a mixer: the tools of the composer, the sound designer and the producer.

Sounds are WAV files, one channel, 16 bit. The same Call writes the same bytes, so a second attempt may overwrite them.
"""

from __future__ import annotations

import array
import io
import math
import random
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, folder, own_file, scoped_value, write_atomically

RATE: Final = 8000  # samples per second, as on the telephone: files stay small
_PEAK: Final = 32767
# A semitone is a factor of the twelfth root of two; A above middle C has 440 Hz and the MIDI number 69
_HALF_TONES: Final = 12
_A: Final = 69
_A_HZ: Final = 440.0
_SCALES: Final = {"sad": (0, 2, 3, 5, 7, 8, 10), "glad": (0, 2, 4, 5, 7, 9, 11)}  # minor and major
_STEPS: Final = (0, 2, 4, 3, 1, 2, 0, -1)  # a small arch over two bars
_FADE_SECONDS: Final = 0.02  # without a fade every note begins and ends with a click

_PATH: Final = {"type": "string", "pattern": "^†"}
_NOTES: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"pitch": {"type": "integer", "minimum": 0, "maximum": 127}, "beats": {"type": "number"}},
        "required": ["pitch", "beats"],
    },
}
_SOUND: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"file": {"type": "string"}, "seconds": {"type": "number"}},
    "required": ["file", "seconds"],
}


def _tool(description: str, name: str, meta: Json, output: Json, parameters: Json, required: list[str]) -> Json:
    return {
        "type": "object",
        "description": description,
        "properties": {"_activity": {"const": name}, "_outputPath": _PATH, "_output": output, **meta, **parameters},
        "required": ["_outputPath", *required],
        "additionalProperties": False,
    }


TOOLS: Final[dict[str, dict[str, Any]]] = {
    "writeMelody": _tool(
        "A melody of some bars.", "writeMelody", {}, _NOTES,
        {"mood": {"enum": sorted(_SCALES)}, "bars": {"type": "integer", "minimum": 1, "maximum": 16}}, ["mood", "bars"],
    ),
    "synthesize": _tool(
        "Sound as a file: notes, or noise for so many seconds. The tempo is that of the session.", "synthesize",
        {"_scopes": {"const": ["†session.tempo"]}}, _SOUND,
        {
            "wave": {"enum": ["sine", "square", "noise"]}, "notes": _NOTES,
            "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 30},
            "loudness": {"type": "number", "minimum": 0, "maximum": 1},
        }, ["wave", "loudness"],
    ),
    "mix": _tool(
        "Several sounds at once, as one file.", "mix", {}, _SOUND,
        {"tracks": {"type": "array", "minItems": 1, "items": _SOUND}}, ["tracks"],
    ),
}  # fmt: skip


@activity.defn(name="writeMelody")
def write_melody(call: Json, _tool: Json, _context: list[Json]) -> list[Json]:
    """Returns four notes per bar, around the A below middle C."""
    scale, root = _SCALES[call["mood"]], _A - _HALF_TONES
    notes = []
    for place in range(4 * call["bars"]):
        octave, step = divmod(_STEPS[place % len(_STEPS)], len(scale))
        notes.append({"pitch": root + _HALF_TONES * octave + scale[step], "beats": 1})
    notes[-1]["beats"] = 2
    return notes


@activity.defn(name="synthesize")
def synthesize(call: Json, _tool: Json, context: list[Json]) -> Json:
    """Writes a WAV file: the notes at the session's tempo (120, if none is in scope), or noise."""
    beat = 60 / (scoped_value(context, "session") or {}).get("tempo", 120)
    if "notes" in call:
        sound = [s for note in call["notes"] for s in _tone(call["wave"], note["pitch"], note["beats"] * beat)]
    elif "seconds" in call:
        sound = _tone(call["wave"], _A, call["seconds"])
    else:
        raise ApplicationError("a sound has notes or seconds", type="no_length", non_retryable=True)
    return _write_wav(call, "sound", [call["loudness"] * s for s in sound])


@activity.defn(name="mix")
def mix(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Mixes the tracks into a WAV file as long as the longest one."""
    tracks = [_read_wav(track["file"]) for track in call["tracks"]]
    longest = max(map(len, tracks))
    sums = [sum(t[i] for t in tracks if i < len(t)) / _PEAK for i in range(longest)]
    loudest = max(1.0, *map(abs, sums))
    return _write_wav(call, "record", [s / loudest for s in sums])


def _tone(form: str, pitch: int, seconds: float) -> list[float]:
    """Samples of one tone, from -1 to 1."""
    hertz = _A_HZ * 2 ** ((pitch - _A) / _HALF_TONES)
    count, fade = round(seconds * RATE), round(_FADE_SECONDS * RATE)
    noise = random.Random(count)  # noqa: S311 - sound; the same on every attempt
    out = []
    for i in range(count):
        sine = math.sin(2 * math.pi * hertz * i / RATE)
        sample = noise.uniform(-1, 1) if form == "noise" else math.copysign(0.5, sine) if form == "square" else sine
        out.append(sample * min(1.0, i / fade, (count - i) / fade))
    return out


def _write_wav(call: Json, stem: str, samples: Sequence[float]) -> Json:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(array.array("h", (round(_PEAK * s) for s in samples)).tobytes())
    path = write_atomically(own_file("music", stem, call, ".wav"), content.getvalue())
    return {"file": path, "seconds": round(len(samples) / RATE, 2)}


def _read_wav(name: str) -> array.array[int]:
    """The samples of one of this example's files.

    Raises:
        ApplicationError: ``no_such_sound``, not retryable: it does not exist, or ``name`` leads elsewhere.
    """
    path = Path(name)
    if path.resolve().parent != folder("music").resolve() or not path.is_file():
        raise ApplicationError(f"{name} is no sound of this example", type="no_such_sound", non_retryable=True)
    with wave.open(str(path), "rb") as file:
        return array.array("h", file.readframes(file.getnframes()))
