"""A melody, a synthesizer and a mixer: the tools of the composer, the sound designer and the producer.

Sounds are WAV files, one channel, 16 bit. The same Call writes the same bytes, so a second attempt may overwrite them.
"""

from __future__ import annotations

import array
import io
import math
import random
import wave as wav
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

import acts
from examples.effects import folder, own_file, scoped_value, write_atomically

RATE: Final = 8000  # samples per second, as on the telephone: files stay small
_PEAK: Final = 32767
# A semitone is a factor of the twelfth root of two; A above middle C has 440 Hz and the MIDI number 69
_HALF_TONES: Final = 12
_A: Final = 69
_A_HZ: Final = 440.0
_SCALES: Final = {"sad": (0, 2, 3, 5, 7, 8, 10), "glad": (0, 2, 4, 5, 7, 9, 11)}  # minor and major
_STEPS: Final = (0, 2, 4, 3, 1, 2, 0, -1)  # a small arch over two bars
_FADE_SECONDS: Final = 0.02  # without a fade every note begins and ends with a click


class Note(BaseModel):
    pitch: int = Field(ge=0, le=127)
    beats: float


class Sound(BaseModel):
    file: str
    seconds: float


Notes = Annotated[list[Note], Field(min_length=1)]
Wave = Literal["sine", "square", "noise"]


@acts.tool(name="writeMelody", read_only=True)
def write_melody(mood: Literal["glad", "sad"], bars: Annotated[int, Field(ge=1, le=16)]) -> Notes:
    """A melody of some bars."""
    scale, root = _SCALES[mood], _A - _HALF_TONES
    notes = []
    for place in range(4 * bars):
        octave, step = divmod(_STEPS[place % len(_STEPS)], len(scale))
        notes.append(Note(pitch=root + _HALF_TONES * octave + scale[step], beats=1))
    notes[-1].beats = 2
    return notes


@acts.tool(name="synthesize", scopes=["†session.tempo"], failures={"no_length": "neither notes nor seconds"})
def synthesize(
    wave: Wave, loudness: Annotated[float, Field(ge=0, le=1)], notes: Notes | None = None,
    seconds: Annotated[float, Field(gt=0, le=30)] | None = None, *, call: acts.Call, context: list[Any],
) -> Sound:  # fmt: skip
    """Sound as a file: notes, or noise for so many seconds. The tempo is that of the session."""
    beat = 60 / (scoped_value(context, "session") or {}).get("tempo", 120)
    if notes is not None:
        sound = [s for note in notes for s in _tone(wave, note.pitch, note.beats * beat)]
    elif seconds is not None:
        sound = _tone(wave, _A, seconds)
    else:
        raise acts.Failure("no_length", "a sound has notes or seconds")
    return _write_wav(call, "sound", [loudness * s for s in sound])


@acts.tool(name="mix", failures=["no_such_sound"])
def mix(tracks: Annotated[list[Sound], Field(min_length=1)], *, call: acts.Call) -> Sound:
    """Several sounds at once, as one file."""
    sounds = [_read_wav(track.file) for track in tracks]
    longest = max(map(len, sounds))
    sums = [sum(t[i] for t in sounds if i < len(t)) / _PEAK for i in range(longest)]
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


def _write_wav(call: acts.Call, stem: str, samples: Sequence[float]) -> Sound:
    content = io.BytesIO()
    with wav.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(array.array("h", (round(_PEAK * s) for s in samples)).tobytes())
    path = write_atomically(own_file("music", stem, call, ".wav"), content.getvalue())
    return Sound(file=path, seconds=round(len(samples) / RATE, 2))


def _read_wav(name: str) -> array.array[int]:
    """The samples of one of this example's files.

    Raises:
        Failure: ``no_such_sound``: it does not exist, or ``name`` leads elsewhere.
    """
    path = Path(name)
    if path.resolve().parent != folder("music").resolve() or not path.is_file():
        raise acts.Failure("no_such_sound", f"{name} is no sound of this example")
    with wav.open(str(path), "rb") as file:
        return array.array("h", file.readframes(file.getnframes()))
