#!/usr/bin/env python3
"""Makes data of dcp-train's type "records" from chats, with the tokenizer and the chat template of a Hugging Face
folder. A record has token ids, and a mask that says which of them the model learns. Needs transformers, jinja2 and
numpy, and pyarrow for parquet (pip install transformers jinja2 numpy pyarrow).

    chat_to_records.py OUT.safetensors CHATS... --tokenizer FOLDER [--held-out SHARE] [--max-tokens N] [--all-tokens]

CHATS are files of JSON lines, or parquet. All rows of a file have the same form, one of these:

    messages                        a list of {"role": ..., "content": ...}
    conversations                   a list of {"from": "human|gpt|system", "value": ...}
    prompt, completion or response  a question and its answer
    instruction, output             the same; an input, if there is one, follows the instruction

The model learns what the assistant says, and the token that ends its turn, but not the turn's header.
"""
from __future__ import annotations

import argparse
import array
import hashlib
import json
import os
import re
from typing import Any, Iterator

import record_files
from record_files import fail

FORMS = (("messages",), ("conversations",), ("prompt", "completion"), ("prompt", "response"), ("instruction", "output"))
ROLES = ("system", "developer", "user", "assistant", "tool")
SHAREGPT = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")

# Rows, each with the text that identifies it in error messages.


def json_rows(path: str, lines: Any) -> Iterator[tuple[str, Any]]:
    first = True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        if first and line.lstrip().startswith(b"["):
            fail(f"{where}: a JSON array, where each row is to be a line of its own: "
                 f"jq -c '.[]' {path} > {path}l makes them")
        first = False
        try:
            yield where, json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError) as e:
            fail(f"{where}: no line of JSON: {e}")


def parquet_rows(path: str) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        fail(f"{path}: parquet needs pyarrow: pip install pyarrow; or make JSON lines of it", 3)
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}:{number}", row
    except (OSError, pyarrow.ArrowException) as e:
        fail(f"{path}: after row {number}: no whole parquet file: {e}")


def rows(path: str) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as file:
        if file.peek(4)[:4] == b"PAR1":
            yield from parquet_rows(path)
        else:
            yield from json_rows(path, file)


# Chats: lists of messages with role and content.


def form_of(where: str, row: dict[str, Any]) -> tuple[str, ...]:
    for form in FORMS:
        if all(row.get(key) is not None for key in form):
            return form
    fail(f"{where}: a row with {', '.join(row) or 'nothing'}; it needs {'; '.join(' and '.join(f) for f in FORMS)}")


def checked_text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        fail(f"{where} is {json.dumps(value, default=str)[:60]}; a text is wanted")
    record_files.check_characters(where, value)
    return value


def message(where: str, turn: Any) -> dict[str, str]:
    role_key, text_key = ("from", "value") if isinstance(turn, dict) and "from" in turn else ("role", "content")
    if not isinstance(turn, dict) or role_key not in turn or text_key not in turn:
        fail(f"{where} is {json.dumps(turn, default=str)[:60]}; an object with role and content, or from and value, "
             "is wanted")
    if turn.get("tool_calls") or turn.get("function_call"):
        fail(f"{where}: calls of tools are not known here: leave such chats out, or put the call into the content")
    role = turn[role_key]
    known = SHAREGPT if role_key == "from" else {name: name for name in ROLES}
    if not isinstance(role, str) or role not in known:
        fail(f"{where}.{role_key} is {json.dumps(role, default=str)[:60]}; known are {', '.join(known)}")
    return {"role": known[role], "content": checked_text(f"{where}.{text_key}", turn[text_key])}


def chat(where: str, row: Any, form: tuple[str, ...]) -> list[dict[str, str]]:
    for key in form:
        if row.get(key) is None:
            fail(f"{where}: {key} is missing, which this file's first row has")
    if row.get("tools") or row.get("functions"):
        fail(f"{where}: tools are not known here: leave such chats out, or put their description into a message")
    if len(form) == 1:
        turns = row[form[0]]
        if not isinstance(turns, list) or not turns:
            fail(f"{where}: {form[0]} is {json.dumps(turns, default=str)[:60]}; a list of messages is wanted")
        return [message(f"{where}: {form[0]}[{i}]", turn) for i, turn in enumerate(turns)]
    question, answer = (checked_text(f"{where}: {key}", row[key]) for key in form)
    if form[0] == "instruction" and row.get("input"):
        question += "\n\n" + checked_text(f"{where}: input", row["input"])
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def chats(path: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    form = None
    for where, row in rows(path):
        if not isinstance(row, dict):
            fail(f"{where}: {json.dumps(row, default=str)[:60]}; an object is wanted")
        form = form or form_of(where, row)
        yield where, chat(where, row, form)
    if form is None:
        fail(f"{path}: holds no chats")


class LeftOut(Exception):
    """A record is omitted; the text says why."""


CHANGED = "whose ids up to an answer, or to its end, change with what follows"
REMEDY = ("put {% generation %} and {% endgeneration %} around what the assistant writes in the template, or give "
          "--all-tokens")


class Tokenizer:
    """The ids and mask of a chat, according to a folder's tokenizer and chat template."""

    def __init__(self, folder: str, all_tokens: bool) -> None:
        if not os.path.isdir(folder):
            fail(f"--tokenizer {folder}: there is no such folder")
        try:
            import jinja2  # noqa: F401  transformers needs it for templates
            import transformers
        except ImportError as e:
            fail(f"needs transformers, jinja2 and numpy ({e}): pip install transformers jinja2 numpy", 3)
        transformers.logging.set_verbosity_error()
        self.folder = folder
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as e:  # of any type: it depends on what is wrong with the folder
            fail(f"--tokenizer {folder}: {' '.join(str(e).split())}")
        if not self.tokenizer.chat_template:
            fail(f"--tokenizer {folder}: has no chat template: take the folder of a model that chats, or put a "
                 "chat_template.jinja into it")
        self.template = self.tokenizer.get_chat_template()
        added = self.tokenizer.added_tokens_decoder.items()
        self.special = {*self.tokenizer.all_special_ids, *(id for id, token in added if token.special)}
        self.how = (self.all_tokens if all_tokens else
                    self.by_generation if GENERATION.search(self.template) else self.by_prefixes)

    def __call__(self, where: str, messages: list[dict[str, str]]) -> tuple[list[int], bytearray]:
        ids, mask = self.how(where, messages)
        mask[:1] = bytes(len(mask[:1]))  # nothing predicts the first token
        if not any(mask):
            raise LeftOut("with nothing to be learned")
        return ids, mask

    def apply(self, where: str, messages: list[dict[str, str]], **options: Any) -> Any:
        try:
            return self.tokenizer.apply_chat_template(messages, **options)
        except Exception as e:  # a template may raise any exception
            fail(f"{where}: the chat template of {self.folder} does not take it: {' '.join(str(e).split())}")

    def question(self) -> str | None:
        """The text of a chat that begins with QUESTION, up to where the assistant answers; None if the template does
        not support that."""
        try:
            return str(self.tokenizer.apply_chat_template([{"role": "user", "content": "QUESTION"}], tokenize=False,
                                                          add_generation_prompt=True))
        except Exception:  # a template may raise any exception
            return None

    def all_tokens(self, where: str, messages: list[dict[str, str]]) -> tuple[list[int], bytearray]:
        ids = self.apply(where, messages, return_dict=True)["input_ids"]
        return ids, bytearray(b"\1" * len(ids))

    def by_generation(self, where: str, messages: list[dict[str, str]]) -> tuple[list[int], bytearray]:
        """For a template that marks what the assistant generates."""
        found = self.apply(where, messages, return_dict=True, return_assistant_tokens_mask=True)
        return found["input_ids"], bytearray(found["assistant_masks"])

    def by_prefixes(self, where: str, messages: list[dict[str, str]]) -> tuple[list[int], bytearray]:
        """Applies the template to the chat up to each answer's header, and up to that answer's end. The tokens that
        the second result has after the first are the answer. Each result must be the beginning of the next one."""
        answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
        if answers[:1] == [0]:
            raise LeftOut("that begin with the assistant, so that no prefix ends at its header")
        texts = []
        for i in answers:
            texts.append(self.apply(where, messages[:i], tokenize=False, add_generation_prompt=True))
            texts.append(self.apply(where, messages[:i + 1], tokenize=False))
            self.check_header(where, texts[-1][len(texts[-2]):], messages[i]["content"])
        if messages[-1]["role"] != "assistant":
            texts.append(self.apply(where, messages, tokenize=False))
        if not all(longer.startswith(shorter) for shorter, longer in zip(texts, texts[1:])):
            fail(f"{where}: the chat template of {self.folder} writes the beginning of a chat differently when the "
                 f"chat goes on, so the assistant's part cannot be told: {REMEDY}")
        ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        if not all(longer[:len(shorter)] == shorter for shorter, longer in zip(ids, ids[1:])):
            raise LeftOut(CHANGED)
        mask = bytearray(len(ids[-1]))
        for header, whole in zip(ids[::2], ids[1::2]):
            end = self.end_of_turn(whole, len(header))
            mask[len(header):end] = b"\1" * (end - len(header))
        return ids[-1], mask

    def check_header(self, where: str, answer: str, content: str) -> None:
        """Checks a template that does not know add_generation_prompt: it must not write a header before the answer, or
        the model would learn the header, too."""
        if "add_generation_prompt" not in self.template and not answer.strip().startswith(content.strip()):
            fail(f"{where}: the chat template of {self.folder} writes a header before the assistant's content, but "
                 f"not for add_generation_prompt, so the two cannot be told apart: {REMEDY}")

    def end_of_turn(self, ids: list[int], start: int) -> int:
        """Returns the end of the turn. A newline after the special token that ends the turn is left out, because no
        model generates it."""
        end = len(ids)
        while end > start and ids[end - 1] not in self.special:
            if str(self.tokenizer.decode(ids[end - 1:end])).strip():
                return len(ids)
            end -= 1
        return end if end > start else len(ids)


class Records:
    """The ids of all records, one after the other, the mask, the beginning of each record, and a hash of its
    messages."""

    def __init__(self) -> None:
        self.ids, self.mask = array.array("I"), bytearray()
        self.starts, self.hashes = array.array("q", [0]), array.array("Q")

    def add(self, ids: list[int], mask: bytearray, messages: list[dict[str, str]]) -> None:
        self.ids.extend(ids)
        self.mask += mask
        self.starts.append(len(self.ids))
        digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).digest()
        self.hashes.append(int.from_bytes(digest[:8], "big"))

    def held_out(self, amount: float) -> Any:
        """Which records are held out, by hashes of the messages."""
        import numpy as np
        return record_files.lowest(np.frombuffer(self.hashes, np.uint64), amount)

    def write(self, path: str, chosen: Any, about: dict[str, str]) -> int:
        """Writes the chosen records, and returns the longest one's length."""
        import numpy as np
        lengths = np.diff(np.frombuffer(self.starts, np.int64)).astype(np.int64)
        tokens = np.repeat(chosen, lengths)
        lengths = lengths[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype("<i8")
        ids = np.frombuffer(self.ids, np.uint32)[tokens].astype("<u4", copy=False)
        mask = np.frombuffer(self.mask, np.uint8)[tokens]
        tensors = (("starts", "I64", starts), ("input_ids", "U32", ids), ("loss_mask", "U8", mask))
        record_files.write_safetensors(path, tensors, {**about, "records": str(len(lengths))})
        print(f"{path}: {len(lengths)} records, {len(ids)} tokens, {int(mask.sum())} of them to be learned; the "
              f"longest record has {int(lengths.max())}")
        return int(lengths.max())


def quoted(text: str) -> str:
    """Quotes a text for bash, on one line."""
    for written, meant in ("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"):
        text = text.replace(written, meant)
    return f"$'{text}'"


def length(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text}: a record has two tokens at least")
    return int(text)


def arguments(words: list[str] | None) -> argparse.Namespace:
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=rest.partition("\n\n")[2],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="file to write")
    parser.add_argument("chats", nargs="+", help="files of JSON lines or parquet")
    parser.add_argument("--tokenizer", metavar="FOLDER", required=True, help="Hugging Face folder with a chat template")
    parser.add_argument("--held-out", metavar="SHARE", type=record_files.share, default=0,
                        help="a fraction, or a number of records, that goes into OUT-held-out.safetensors: chosen by a "
                        "hash of the messages, whatever their order. data.path is to be OUT, not their folder")
    parser.add_argument("--max-tokens", metavar="N", type=length, help="leave out longer records")
    parser.add_argument("--all-tokens", action="store_true", help="all is learned, not the assistant's part alone")
    return parser.parse_args(words)


def make(args: argparse.Namespace) -> None:
    held_path = record_files.held_out_path(args.out)
    record_files.check_outputs([args.out, held_path] if args.held_out else [args.out], args.chats)
    tokenizer, records = Tokenizer(args.tokenizer, args.all_tokens), Records()
    left_out: dict[str, tuple[int, str]] = {}
    for path in args.chats:
        for where, messages in chats(path):
            try:
                ids, mask = tokenizer(where, messages)
                if args.max_tokens and len(ids) > args.max_tokens:
                    raise LeftOut(f"longer than --max-tokens {args.max_tokens}")
                records.add(ids, mask, messages)
            except LeftOut as e:
                count, first = left_out.get(str(e), (0, where))
                left_out[str(e)] = count + 1, first
    for reason, (count, first) in left_out.items():
        print(f"left out: {count} {reason}, first {first}")
    if not records.hashes:
        fail("no record is left" + (f": {REMEDY}" if CHANGED in left_out else ""))
    held = records.held_out(args.held_out)
    about = {"tokenizer": os.path.basename(os.path.abspath(args.tokenizer)),
             "sources": json.dumps([os.path.basename(path) for path in args.chats])}
    longest = records.write(args.out, ~held, about)
    if args.held_out:
        longest = max(longest, records.write(held_path, held, about))
    data = {"type": "records", "path": args.out, "sequence_length": -(-longest // 64) * 64, "tokenizer": args.tokenizer}
    if args.held_out:
        data["eval_path"] = held_path
    question = tokenizer.question()
    if question is not None:
        print(f"To ask the model afterwards: examples/sample.py CKPT {quoted(question)}")
    print(f"The model's vocab_size is to be at least {len(tokenizer.tokenizer)}. For dcp-train's configuration, where "
          '"pack": true puts as many records into a sample as fit:')
    print(f'"data": {json.dumps(data)}')


def main(words: list[str] | None = None) -> None:
    args = arguments(words)
    record_files.run("chat_to_records.py", lambda: make(args))


if __name__ == "__main__":
    main()
