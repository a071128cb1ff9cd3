#!/usr/bin/env python3
"""Makes data of dcp-train's type "speech" from recordings of a voice and their texts: text ids, codes of the audio and
the speaker's vector, with the tokenizer, the codec and the speaker encoder of a published folder (Qwen3-TTS-12Hz,
Base), which do not change. Needs numpy, transformers and the package qwen-tts (pip install qwen-tts).

    to_records.py OUT.safetensors ROWS... --model FOLDER [--held-out SHARE] [--max-frames N] [--device DEVICE]

ROWS are files of JSON lines:

    {"audio": "a.wav", "text": "what it says", "ref_audio": "voice.wav"}

The speaker's vector is computed from ref_audio, which should be the same in all rows. A row may already have
"audio_codes", a list of frames, as written by the model's own prepare_data.py: then its audio is not read.

A file contains, for all records, one after the other:

    text_ids      U32 [ids]                "<|im_start|>assistant\\n" and the text, without what follows it
    text_starts   I64 [records + 1]        where each begins in text_ids, and the end
    codes         U16 [frames, codebooks]  of the audio, 12.5 frames per second
    frame_starts  I64 [records + 1]        where each begins in codes, and the end
    speakers      F32 [voices, hidden]     the vectors, each once
    speaker_ids   U32 [records]            the index of each record's vector

A record of t text ids and T frames has t + T + 7 positions of the talker.
"""
from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import sys
from typing import Any, Iterator, Protocol

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import record_files  # noqa: E402
from record_files import fail  # noqa: E402

HEADER, TAIL = 3, 5  # ids before the text, and after it
AROUND = 7           # positions of a record that are neither text ids nor frames
BATCH = 16           # recordings that the codec processes at a time


class Voice(Protocol):
    """Makes records from recordings. Codes are [frames, codebooks], a vector has the talker's hidden size."""

    codebooks: int
    codes_each: int  # per codebook
    hidden: int

    def ids(self, text: str) -> list[int]:
        """The ids of "<|im_start|>assistant\\n{text}<|im_end|>\\n<|im_start|>assistant\\n"."""

    def codes(self, paths: list[str]) -> list[Any]: ...

    def vector(self, path: str) -> Any: ...


class Published:
    """The parts of a published folder, each loaded when it is first needed."""

    def __init__(self, folder: str, device: str) -> None:
        self.folder, self.device = folder, device
        try:
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                self.config = json.load(file)
            talker = self.config["talker_config"]
            self.codebooks, self.hidden = talker["num_code_groups"], talker["hidden_size"]
            self.codes_each = talker["code_predictor_config"]["vocab_size"]
        except (ValueError, KeyError, TypeError) as e:
            fail(f"--model {folder}: config.json is not that of a talker: {type(e).__name__} {e}")
        self.tokenizer: Any = None
        self.codec: Any = None
        self.encoder: Any = None

    def ids(self, text: str) -> list[int]:
        if self.tokenizer is None:
            transformers = needed("transformers")
            try:
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
            except Exception as e:  # of any type: it depends on what is wrong with the folder
                why = " ".join(str(e).split()).partition(". ")[0]
                fail(f"--model {self.folder}: no tokenizer, or not all of its files: copy tokenizer_config.json and "
                     f"those beside it from where the model is published; transformers says: {why}")
        around = "<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>assistant\n"
        return list(self.tokenizer(around[0] + text + around[1])["input_ids"])

    def codes(self, paths: list[str]) -> list[Any]:
        if self.codec is None:
            kind = needed("qwen_tts").Qwen3TTSTokenizer
            self.codec = kind.from_pretrained(os.path.join(self.folder, "speech_tokenizer"), device_map=self.device)
        return [codes.cpu().numpy() for codes in self.codec.encode(paths).audio_codes]

    def vector(self, path: str) -> Any:
        torch, librosa = needed("torch"), needed("librosa")
        parts = needed("qwen_tts.core.models.modeling_qwen3_tts")
        if self.encoder is None:
            self.encoder = self.speaker_encoder(parts)
        rate = self.encoder.rate
        audio, _ = librosa.load(path, sr=rate, mono=True)
        mels = parts.mel_spectrogram(torch.from_numpy(audio)[None], n_fft=1024, num_mels=128, sampling_rate=rate,
                                     hop_size=256, win_size=1024, fmin=0, fmax=rate // 2)
        with torch.inference_mode():
            return self.encoder(mels.transpose(1, 2).to(self.device))[0].cpu().numpy()

    def speaker_encoder(self, parts: Any) -> Any:
        """In fp32; without the rest of the model."""
        from safetensors.torch import load_file
        config = parts.Qwen3TTSSpeakerEncoderConfig(**self.config.get("speaker_encoder_config", {}))
        encoder, begin = parts.Qwen3TTSSpeakerEncoder(config), "speaker_encoder."
        found: dict[str, Any] = {}
        for path in glob.glob(os.path.join(glob.escape(self.folder), "*.safetensors")):
            found |= {name[len(begin):]: t for name, t in load_file(path).items() if name.startswith(begin)}
        if not found:
            fail(f"--model {self.folder}: has no weights of a speaker encoder: take the folder of a Base model")
        encoder.load_state_dict(found)
        encoder.rate = config.sample_rate
        return encoder.float().eval().to(self.device)


def needed(package: str) -> Any:
    import importlib
    try:
        return importlib.import_module(package)
    except ImportError as e:
        fail(f"needs numpy, transformers and qwen-tts ({e}): pip install qwen-tts", 3)


def files_of(row: dict[str, Any]) -> tuple[str, ...]:
    """The keys of the files that the row needs."""
    return ("ref_audio",) if "audio_codes" in row else ("ref_audio", "audio")


# Rows, each with the text that identifies it in error messages.

WANTED = "an object with text, ref_audio, and audio or audio_codes is wanted"


def rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                row = json.loads(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as e:
                fail(f"{where}: no line of JSON: {e}")
            if not isinstance(row, dict):
                fail(f"{where}: {json.dumps(row)[:60]}: {WANTED}")
            for key in "text", *files_of(row):
                if not isinstance(row.get(key), str):
                    fail(f"{where}: {key} is {'no string' if key in row else 'missing'}: {WANTED}")
            record_files.check_characters(f"{where}: text", row["text"])
            yield where, row


class Records:
    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.texts: list[Any] = []
        self.frames: list[Any] = []
        self.speakers: list[Any] = []
        self.speaker_ids: list[int] = []
        self.by_path: dict[str, int] = {}
        self.around = voice.ids("")
        if len(self.around) != HEADER + TAIL:
            fail(f"the tokenizer has {len(self.around)} ids for what stands around a text, not {HEADER + TAIL}: is it "
                 "another model's?")

    def text_of(self, where: str, text: str) -> Any:
        import numpy as np
        ids = self.voice.ids(text.strip())
        if ids[:HEADER] != self.around[:HEADER] or ids[-TAIL:] != self.around[HEADER:] or len(ids) <= HEADER + TAIL:
            fail(f"{where}: the text is empty, or its ids run together with those around it")
        return np.array(ids[:-TAIL], "<u4")

    def codes_of(self, where: str, found: Any) -> Any:
        import numpy as np
        try:
            codes = np.asarray(found)
            whole = codes.ndim == 2 and codes.dtype.kind in "iu" and len(codes) > 0
        except ValueError:  # frames of different lengths
            whole = False
        if not whole or codes.shape[1] != self.voice.codebooks:
            fail(f"{where}: audio_codes is not a list of frames of {self.voice.codebooks} codes each")
        if codes.min() < 0 or codes.max() >= self.voice.codes_each:
            fail(f"{where}: a code is outside 0..{self.voice.codes_each - 1}")
        return codes.astype("<u2")

    def speaker_of(self, path: str) -> int:
        """The number of the speaker's vector, which is made once per path, and stored once if two are equal."""
        import numpy as np
        if path not in self.by_path:
            vector = np.asarray(self.voice.vector(path), "<f4")
            if vector.shape != (self.voice.hidden,) or not np.isfinite(vector).all():
                fail(f"{path}: its speaker's vector has shape {list(vector.shape)}, not [{self.voice.hidden}], or what "
                     "is no number")
            same = (i for i, known in enumerate(self.speakers) if np.array_equal(known, vector))
            number = next(same, len(self.speakers))
            if number == len(self.speakers):
                self.speakers.append(vector)
            self.by_path[path] = number
        return self.by_path[path]

    def add(self, where: str, row: dict[str, Any], codes: Any) -> None:
        self.texts.append(self.text_of(where, row["text"]))
        self.frames.append(self.codes_of(where, codes))
        self.speaker_ids.append(self.speaker_of(row["ref_audio"]))

    def add_all(self, batch: list[tuple[str, dict[str, Any]]]) -> None:
        unread = [row["audio"] for _, row in batch if "audio_codes" not in row]
        made = iter(self.voice.codes(unread) if unread else [])
        for where, row in batch:
            self.add(where, row, row["audio_codes"] if "audio_codes" in row else next(made))

    def leave_out(self, max_frames: int) -> int:
        """Omits records with more frames; returns how many."""
        keep = [i for i, codes in enumerate(self.frames) if len(codes) <= max_frames]
        gone = len(self.frames) - len(keep)
        self.texts, self.frames, self.speaker_ids = ([of[i] for i in keep] for of in
                                                     (self.texts, self.frames, self.speaker_ids))
        return gone

    def held_out(self, amount: float) -> Any:
        """Which records are held out, by hashes of text and codes."""
        import numpy as np
        digests = (hashlib.sha256(text.tobytes() + codes.tobytes()).digest()
                   for text, codes in zip(self.texts, self.frames))
        hashes = np.array([int.from_bytes(digest[:8], "big") for digest in digests], np.uint64)
        return record_files.lowest(hashes, amount)

    def write(self, path: str, chosen: Any, about: dict[str, str]) -> tuple[int, int]:
        """Writes the chosen records; returns the most positions and frames of any of them."""
        import numpy as np
        places = np.flatnonzero(chosen)
        texts, frames = [self.texts[i] for i in places], [self.frames[i] for i in places]
        own = sorted({self.speaker_ids[i] for i in places})
        starts = [np.concatenate([[0], np.cumsum([len(x) for x in of])]).astype("<i8") for of in (texts, frames)]
        tensors = (("text_starts", "I64", starts[0]), ("frame_starts", "I64", starts[1]),
                   ("speakers", "F32", np.stack([self.speakers[i] for i in own])),
                   ("speaker_ids", "U32", np.array([own.index(self.speaker_ids[i]) for i in places], "<u4")),
                   ("text_ids", "U32", np.concatenate(texts)), ("codes", "U16", np.concatenate(frames)))
        record_files.write_safetensors(path, tensors, {**about, "records": str(len(places))})
        most = max(len(frame) for frame in frames)
        longest = max(len(text) + len(frame) + AROUND for text, frame in zip(texts, frames))
        print(f"{path}: {counted(len(places), 'record')}, {counted(len(own), 'speaker')}, "
              f"{counted(starts[1][-1], 'frame')}; the longest record has {longest} positions, the most frames of one "
              f"are {most}")
        return longest, most


def counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: 1 at least")
    return int(text)


def arguments(words: list[str] | None) -> argparse.Namespace:
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=rest.partition("\n\n")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="file to write")
    parser.add_argument("rows", nargs="+", help="files of JSON lines")
    parser.add_argument("--model", metavar="FOLDER", required=True, help="published folder of a Base model")
    parser.add_argument("--held-out", metavar="SHARE", type=record_files.share, default=0,
                        help="a fraction, or a number of records, that goes into OUT-held-out.safetensors: chosen by a "
                        "hash of text and codes, whatever their order")
    parser.add_argument("--max-frames", metavar="N", type=count, help="leave out records with more")
    parser.add_argument("--device", default="cpu", help="where codec and speaker encoder compute (cpu), e.g. cuda:0")
    return parser.parse_args(words)


def up_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def make(args: argparse.Namespace, voice: Voice) -> None:
    held_path = record_files.held_out_path(args.out)
    record_files.check_outputs([args.out, held_path] if args.held_out else [args.out], args.rows)
    found = [row for path in args.rows for row in rows(path)]
    for where, row in found:
        for key in files_of(row):
            if not os.path.isfile(row[key]):
                fail(f"{where}: {key} {row[key]}: there is no such file; a path counts from the current folder, "
                     f"{os.getcwd()}")
    records = Records(voice)
    for i in range(0, len(found), BATCH):
        records.add_all(found[i:i + BATCH])
    if args.max_frames:
        print(f"left out: {records.leave_out(args.max_frames)} with more than --max-frames {args.max_frames}")
    if not records.frames:
        fail("no record is left")
    held = records.held_out(args.held_out)
    about = {"model": os.path.basename(os.path.abspath(args.model)),
             "sources": json.dumps([os.path.basename(path) for path in args.rows])}
    sizes = [records.write(args.out, ~held, about)]
    if args.held_out:
        sizes.append(records.write(held_path, held, about))
    longest, most = map(max, zip(*sizes))
    data = {"type": "speech", "path": args.out, "sequence_length": up_to(longest, 64), "frames": up_to(most, 8)}
    if args.held_out:
        data["eval_path"] = held_path
    print("For dcp-train's configuration:")
    print(f'"data": {json.dumps(data)}')


def main(words: list[str] | None = None, voice: Voice | None = None) -> None:
    args = arguments(words)
    record_files.run("to_records.py", lambda: make(args, voice or Published(args.model, args.device)))


if __name__ == "__main__":
    main()
