#!/usr/bin/env python3
"""A small stand-in, with numpy only, for the tokenizer, the codec and the speaker encoder of a published folder: enough
to make records from recordings, and sound from codes, without the real ones. Accepts the same arguments as
to_records.py; FOLDER is one that small_talker.py made.

    stand_in.py OUT.safetensors ROWS... --model FOLDER

Text ids are the text's bytes. The codec is a residual vector quantizer of what can be heard of 80 ms: the loudness of
60 bands, every 10 ms. Code 0 is the nearest entry of a codebook for all bands; each of the others covers a few bands,
and is the entry nearest to the remaining difference. A speaker's vector is the mean spectrum."""
from __future__ import annotations

import json
import os
import sys
import wave
from typing import Any

import numpy as np

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import to_records  # noqa: E402
from to_records import fail, record_files  # noqa: E402

RATE, STEP, STEPS = 24000, 240, 8  # samples per second, samples between spectra, spectra per frame
WINDOW, BANDS = 960, 60
QUIET = 1e-4                       # anything softer is inaudible
IM_START, IM_END, ASSISTANT = 256, 257, 258  # after the bytes' ids; for what surrounds a text
ROUNDS = 12                        # of k-means, and twice as many for phases


def text_of(ids: list[int]) -> str:
    """The readable part of the ids."""
    return bytes(id for id in ids if id < IM_START).decode(errors="replace")


def samples(path: str) -> Any:
    """The samples of a 16-bit WAV file, resampled to one channel at RATE."""
    if os.path.getsize(path) == 0:
        fail(f"{path} is empty: record it again, or leave it out")
    try:
        with wave.open(path) as file:
            channels, width, rate, n = file.getparams()[:4]
            data = file.readframes(n)
        if width != 2:
            raise wave.Error(f"{8 * width} bits")
    except (wave.Error, EOFError) as e:
        why = str(e) or "it ends early"
        fail(f"{path} is no plain WAV file of 16-bit PCM ({why}): ffmpeg -i IN -c:a pcm_s16le OUT.wav makes one")
    if len(data) < 2 * channels * n:
        fail(f"{path} is cut short, {len(data)} of {2 * channels * n} bytes of sound: copy it again, or leave it out")
    if n == 0:
        fail(f"{path} holds no sound: record it again, or leave it out")
    audio = np.frombuffer(data, "<i2").reshape(-1, channels).mean(-1) / 32768
    return np.interp(np.arange(0, n, rate / RATE), np.arange(n), audio)


def write_sound(path: str, audio: Any) -> None:
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((audio.clip(-1, 1) * 32767).astype("<i2").tobytes())


def filters() -> Any:
    """[bands, frequencies]: triangles, evenly spaced in pitch."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(WINDOW, 1 / RATE)
    rise = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(1e-6, np.minimum(rise, fall))


def waves(audio: Any, n: int) -> Any:
    """n complex spectra, one every STEP samples."""
    padded = np.pad(audio, (WINDOW // 2, WINDOW + n * STEP))
    starts = np.arange(n)[:, None] * STEP
    return np.fft.rfft(padded[starts + np.arange(WINDOW)] * np.hanning(WINDOW))


def overlapped(spectra: Any) -> Any:
    """The samples whose spectra are closest to these."""
    n, window = len(spectra), np.hanning(WINDOW)
    audio, weight = np.zeros(WINDOW + n * STEP), np.full(WINDOW + n * STEP, 1e-3)
    for i, piece in enumerate(np.fft.irfft(spectra, WINDOW)):
        audio[i * STEP:i * STEP + WINDOW] += piece * window
        weight[i * STEP:i * STEP + WINDOW] += window ** 2
    return (audio / weight)[WINDOW // 2:][:n * STEP]


def heard(audio: Any) -> Any:
    """[frames, STEPS * BANDS] logarithms of loudness."""
    frames = -(-len(audio) // (STEP * STEPS))
    loudness = np.abs(waves(audio, frames * STEPS)) @ filters().T
    return np.log(loudness + QUIET).reshape(frames, -1)


def sound(features: Any) -> Any:
    """Samples that sound like these features: finds phases by alternating between samples and spectra (Griffin and
    Lim)."""
    bank = filters()
    bands = (np.exp(features.reshape(-1, BANDS)) - QUIET).clip(0)
    loudness = bands / bank.sum(1) @ (bank / bank.sum(0))
    spectra = loudness * np.exp(2j * np.pi * np.random.default_rng(1).random(loudness.shape))
    for _ in range(2 * ROUNDS):
        again = waves(overlapped(spectra), len(spectra))
        spectra = loudness * again / (np.abs(again) + 1e-9)
    return overlapped(spectra)


def nearest(points: Any, entries: Any) -> Any:
    return ((entries ** 2).sum(-1) - 2 * points @ entries.T).argmin(-1)


def means(points: Any, n: int, generator: Any) -> Any:
    """n entries of a codebook, by k-means from random points."""
    entries = points[generator.choice(len(points), n, replace=len(points) < n)]
    for _ in range(ROUNDS):
        of = nearest(points, entries)
        for i in np.unique(of):
            entries[i] = points[of == i].mean(0)
    return entries


def learned(paths: list[str], codebooks: int, codes_each: int) -> Any:
    """Codebooks [codebooks, codes_each, STEPS * BANDS] for the recordings."""
    generator = np.random.default_rng(1)
    rest = np.concatenate([heard(samples(path)) for path in paths])
    part = np.tile(np.arange(BANDS) * (codebooks - 1) // BANDS, STEPS) + 1  # the codebook to which a band belongs
    books = []
    for i in range(codebooks):
        books.append(means(rest * ((part == i) | (i == 0)), codes_each, generator))
        rest = rest - books[-1][nearest(rest, books[-1])]
    return np.stack(books).astype("<f4")


class StandIn:
    """A Voice of to_records.py."""

    def __init__(self, books: Any, hidden: int) -> None:
        self.books, self.hidden = books, hidden
        self.codebooks, self.codes_each = books.shape[:2]

    def ids(self, text: str) -> list[int]:
        header = [IM_START, ASSISTANT, *b"\n"]
        return [*header, *text.encode(), IM_END, *b"\n", *header]

    def codes(self, paths: list[str]) -> list[Any]:
        return [self.encode(samples(path)) for path in paths]

    def vector(self, path: str) -> Any:
        spectrum = heard(samples(path)).reshape(-1, BANDS).mean(0)
        at = np.interp(np.linspace(0, BANDS - 1, self.hidden), np.arange(BANDS), spectrum)
        return (at - at.mean()) / at.std()

    def encode(self, audio: Any) -> Any:
        """Codes [frames, codebooks]."""
        rest, codes = heard(audio), []
        for book in self.books:
            codes.append(nearest(rest, book))
            rest = rest - book[codes[-1]]
        return np.stack(codes).T  # in the same memory order as the published codec's

    def decode(self, codes: Any) -> Any:
        return sound(sum(book[codes[:, i]] for i, book in enumerate(self.books)))


CODEBOOKS = os.path.join("speech_tokenizer", "codebooks.npy")


def read_folder(folder: str) -> StandIn:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        hidden = json.load(file)["talker_config"]["hidden_size"]
    return StandIn(np.load(os.path.join(folder, CODEBOOKS)), hidden)


def main() -> None:
    folder = to_records.arguments(None).model
    record_files.run("stand_in.py", lambda: to_records.main(None, read_folder(folder)))


if __name__ == "__main__":
    main()
