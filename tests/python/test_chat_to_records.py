"""examples/chat_to_records.py: ids, masks, which records are held out and left out, and its messages about wrong
input, with a small tokenizer and chat templates of several kinds."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

SCRIPT = pathlib.Path(__file__).parents[2] / "examples" / "chat_to_records.py"
NEEDED = ("numpy", "transformers", "tokenizers", "safetensors", "jinja2")

CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
GENERATION = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}{% generation %}"
              "{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>{% endif %}"
              "{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
LLAMA3 = ("<|begin|>{% for m in messages %}<|start_header|>{{ m['role'] }}<|end_header|>\n\n{{ m['content'] | trim }}"
          "<|eot|>{% endfor %}{% if add_generation_prompt %}<|start_header|>assistant<|end_header|>\n\n{% endif %}")
MISTRAL = ("<|begin|>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
           "{% elif m['role'] == 'assistant' %} {{ m['content'] }}<|eot|>{% else %}"
           "{{ raise_exception('no ' + m['role']) }}{% endif %}{% endfor %}")
# Only the last answer keeps its thoughts, as with Qwen 3.
FORGETS = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' and loop.last %}"
           "<think>\n</think>\n{% endif %}{{ m['content'] }}<|im_end|>\n{% endfor %}"
           "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
MARKED = FORGETS.replace("{{ m['content'] }}<|im_end|>\n", "{% if m['role'] == 'assistant' %}{% generation %}"
                         "{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>"
                         "{% endif %}{{ '\n' }}")
QUOTES = r"{{ 'it\'s \\n' }}" + CHATML
SYSTEM_FIRST = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('?') }}{% endif %}" + CHATML
NO_PROMPT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
PLAIN = ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
         "{% if add_generation_prompt %}assistant: {% endif %}")
LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|begin|>", "<|start_header|>", "<|end_header|>", "<|eot|>"]

WORDS = "the a cat sat on mat, hello world! what is 2 + 2? it 4. naïve 漢字 😀 \n and  spaces".split(" ")


def some_text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 12))).strip() or "hm"


def some_chat(rng: random.Random) -> list[dict[str, str]]:
    system = [{"role": "system", "content": some_text(rng)}] if rng.random() < 0.5 else []
    roles = ["user", "assistant"] * rng.randint(1, 3)
    turns = [{"role": role, "content": some_text(rng)} for role in roles]
    return system + turns + [{"role": "user", "content": some_text(rng)}] * (rng.random() < 0.2)


def chat(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    dir: pathlib.Path
    script: Any

    @classmethod
    def setUpClass(cls) -> None:
        import tokenizers
        import transformers
        scratch = tempfile.TemporaryDirectory(prefix="dcp-chats-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        sys.path.append(str(SCRIPT.parent))
        spec = importlib.util.spec_from_file_location("chat_to_records", SCRIPT)
        assert spec and spec.loader
        cls.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.script)
        own = tokenizers.Tokenizer(tokenizers.models.BPE())
        own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3_WORDS), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        own.decoder = tokenizers.decoders.ByteLevel()
        rng = random.Random(1)
        own.train_from_iterator([*(some_text(rng) for _ in range(300)), "\n\n\n user assistant system\n\n"],
                                tokenizers.trainers.BpeTrainer(
                                    vocab_size=500, special_tokens=SPECIAL, show_progress=False,
                                    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
        templates = {"chatml": CHATML, "generation": GENERATION, "llama3": LLAMA3, "mistral": MISTRAL, "plain": PLAIN,
                     "forgets": FORGETS, "marked": MARKED, "no_prompt": NO_PROMPT, "none": None,
                     "quotes": QUOTES, "system_first": SYSTEM_FIRST}
        for name, template in templates.items():
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|im_end|>")
            tokenizer.chat_template = template
            tokenizer.save_pretrained(cls.dir / name)

    def tokenizer(self, name: str) -> Any:
        import transformers
        return transformers.AutoTokenizer.from_pretrained(self.dir / name)

    def file(self, name: str, *rows: Any) -> str:
        """Writes a file of rows; a row that is text or bytes becomes a line unchanged."""
        path = self.dir / name
        lines = [row if isinstance(row, (bytes, str)) else json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
        return str(path)

    def run_script(self, *words: str, expect: int = 0) -> str:
        """Returns what was printed, on stderr if it fails."""
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.script.main(list(words))
            except SystemExit as e:
                status = int(e.code or 0)
        self.assertEqual(status, expect, out.getvalue() + err.getvalue())
        return err.getvalue() if expect else out.getvalue()

    def records(self, path: str) -> list[tuple[list[int], list[int]]]:
        """Returns ids and mask of each record, from a file whose format is checked."""
        import numpy as np
        from safetensors.numpy import load_file
        tensors = load_file(path)
        ids, mask, starts = (tensors.pop(name) for name in ("input_ids", "loss_mask", "starts"))
        self.assertEqual((ids.dtype, mask.dtype, starts.dtype, tensors), (np.uint32, np.uint8, np.int64, {}))
        self.assertEqual((starts[0], starts[-1], len(mask)), (0, len(ids), len(ids)))
        self.assertLessEqual(set(mask.tolist()), {0, 1})
        found = [(ids[a:b].tolist(), mask[a:b].tolist()) for a, b in zip(starts, starts[1:])]
        for one, learned in found:
            self.assertGreaterEqual(len(one), 2)
            self.assertTrue(any(learned[1:]))
        return found

    def made(self, name: str, source: str, *options: str) -> list[tuple[list[int], list[int]]]:
        out = str(self.dir / "made.safetensors")
        self.run_script(out, source, "--tokenizer", str(self.dir / name), *options)
        return self.records(out)

    def learned(self, name: str, record: tuple[list[int], list[int]]) -> list[str]:
        """Returns the texts of the parts of a record that are to be learned."""
        runs: list[list[int]] = []
        before = 0
        for token, mask in zip(*record):
            if mask and not before:
                runs.append([])
            if mask:
                runs[-1].append(token)
            before = mask
        return [self.tokenizer(name).decode(run) for run in runs]

    def test_the_mask_is_what_the_assistant_says(self) -> None:
        rng = random.Random(2)
        chats = [some_chat(rng) for _ in range(40)]
        source = self.file("chats.jsonl", *({"messages": one} for one in chats))
        for name, end in (("chatml", "<|im_end|>"), ("generation", "<|im_end|>"), ("llama3", "<|eot|>")):
            found = self.made(name, source)
            self.assertEqual(len(found), len(chats))
            tokenizer = self.tokenizer(name)
            for one, record in zip(chats, found):
                self.assertEqual(record[0], tokenizer.apply_chat_template(one, return_dict=True)["input_ids"])
                self.assertEqual(tokenizer.decode(record[0]), tokenizer.apply_chat_template(one, tokenize=False))
                self.assertEqual(self.learned(name, record),
                                 [m["content"] + end for m in one if m["role"] == "assistant"])

    def test_the_two_ways_to_a_mask_agree(self) -> None:
        rng = random.Random(3)
        source = self.file("both.jsonl", *({"messages": some_chat(rng)} for _ in range(40)))
        self.assertEqual(self.made("chatml", source), self.made("generation", source))

    def test_marks_tell_what_prefixes_cannot(self) -> None:
        one = chat("what", "the cat")["messages"]
        (first, second) = self.made("marked", self.file("marked.jsonl", {"messages": one * 2}, {"messages": one[1:]}))
        self.assertEqual(self.learned("marked", first), ["the cat<|im_end|>"] * 2)
        self.assertEqual(self.learned("marked", second), ["the cat<|im_end|>"])

    def test_templates_without_header_or_end(self) -> None:
        source = self.file("few.jsonl", chat("what", "4. the cat"))
        self.assertEqual(self.learned("mistral", self.made("mistral", source)[0]), [" 4. the cat<|eot|>"])
        self.assertEqual(self.learned("plain", self.made("plain", source)[0]), ["4. the cat\n"])

    def test_ids_that_change(self) -> None:
        """A space at the header's end joins the word that follows."""
        source = self.file("joined.jsonl", chat("what", "the cat"))
        said = self.refused(source, name="plain")
        self.assertIn("no record is left: put {% generation %} and {% endgeneration %} around", said)

    def test_all_tokens(self) -> None:
        source = self.file("forgotten.jsonl", {"messages": chat("a", "b")["messages"] * 2})
        (ids, mask), = self.made("forgets", source, "--all-tokens")
        self.assertEqual(mask, [0] + [1] * (len(ids) - 1))

    def test_forms_of_rows(self) -> None:
        question, answer, system = "what is 2 + 2?", "it is 4.", "hello"
        want = self.made("chatml", self.file("m.jsonl", chat(question, answer)))
        for row in ({"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]},
                    {"prompt": question, "completion": answer}, {"prompt": question, "response": answer},
                    {"instruction": question, "output": answer},
                    {"instruction": question, "output": answer, "input": ""}):
            self.assertEqual(self.made("chatml", self.file("other.jsonl", row)), want, row)
        self.assertEqual(
            self.made("chatml", self.file("i.jsonl", {"instruction": "what", "input": "is it", "output": answer})),
            self.made("chatml", self.file("m.jsonl", chat("what\n\nis it", answer))))
        both = [{"role": "system", "content": system}, *chat(question, answer)["messages"]]
        names = {"system": "system", "user": "human", "assistant": "gpt"}
        turns = [{"from": names[m["role"]], "value": m["content"]} for m in both]
        self.assertEqual(self.made("chatml", self.file("s.jsonl", {"conversations": turns})),
                         self.made("chatml", self.file("m.jsonl", {"messages": both})))

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "there is no pyarrow to make parquet with")
    def test_parquet(self) -> None:
        import pyarrow
        import pyarrow.parquet
        rng = random.Random(4)
        rows = [{"messages": some_chat(rng)} for _ in range(600)]
        path = str(self.dir / "rows.parquet")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        self.assertEqual(self.made("chatml", path), self.made("chatml", self.file("rows.jsonl", *rows)))
        bad = str(self.dir / "bad.parquet")
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "a", "response": "b"}, {"prompt": "c"}]), bad)
        self.assertIn("bad.parquet:2: response is missing", self.refused(bad))
        data = pathlib.Path(path).read_bytes()
        pathlib.Path(bad).write_bytes(data[:len(data) // 2])
        self.assertIn("bad.parquet: after row 0: no whole parquet file", self.refused(bad))

    def test_parquet_without_pyarrow(self) -> None:
        path = self.file("p.parquet", b"PAR1")
        with mock.patch.dict(sys.modules, {"pyarrow": None}):
            self.assertIn("p.parquet: parquet needs pyarrow: pip install", self.refused(path, status=3))

    def test_held_out_does_not_depend_on_the_order(self) -> None:
        rng = random.Random(5)
        rows = [chat(f"what is {i}", some_text(rng)) for i in range(200)]
        rows += rows[:20]  # equal ones stay together
        for amount in ("0.2", "30"):
            kept, held = [], []
            for order in range(2):
                rng.shuffle(rows)
                kept.append(self.made("chatml", self.file(f"order{order}.jsonl", *rows), "--held-out", amount))
                held.append(self.records(str(self.dir / "made-held-out.safetensors")))
                self.assertEqual(len(kept[-1]) + len(held[-1]), len(rows))
                self.assertFalse([one for one in held[-1] if one in kept[-1]])
            self.assertEqual(sorted(held[0]), sorted(held[1]))
            self.assertNotEqual(held[0], held[1])
            low, high = (20, 70) if amount == "0.2" else (30, 31)  # comes with a copy of the last one
            self.assertTrue(low <= len(held[0]) <= high, len(held[0]))

    def test_a_fraction_stays_when_rows_are_added(self) -> None:
        rows = [chat(f"what is {i}", "a cat") for i in range(200)]
        before = self.made("chatml", self.file("less.jsonl", *rows[:100]), "--held-out", "0.3")
        held = self.records(str(self.dir / "made-held-out.safetensors"))
        after = self.made("chatml", self.file("more.jsonl", *rows), "--held-out", "0.3")
        self.assertEqual(before, after[:len(before)])
        self.assertEqual(held, self.records(str(self.dir / "made-held-out.safetensors"))[:len(held)])

    def test_what_is_left_out(self) -> None:
        source = self.file("some.jsonl", chat("what", "it is 4."), chat("hello", "the cat sat on the mat " * 50),
                           {"messages": [{"role": "user", "content": "nobody answers"}]},
                           {"messages": [{"role": "assistant", "content": "first"}]},
                           chat("hello", "\nhello"), "", chat("what", "it is 2"))
        out = str(self.dir / "some.safetensors")
        printed = self.run_script(out, source, "--tokenizer", str(self.dir / "chatml"), "--max-tokens", "100")
        self.assertEqual([self.learned("chatml", record) for record in self.records(out)],
                         [["it is 4.<|im_end|>"], ["it is 2<|im_end|>"]])
        for says in ("left out: 1 longer than --max-tokens 100, first {}:2\n",
                     "left out: 1 with nothing to be learned, first {}:3\n",
                     "left out: 1 that begin with the assistant, so that no prefix ends at its header, first {}:4\n",
                     "left out: 1 whose ids up to an answer, or to its end, change with what follows, first {}:5\n"):
            self.assertIn(says.format(source), printed)

    def test_the_summary(self) -> None:
        from safetensors import safe_open
        first, second = (self.file(f"{i}.jsonl", chat("what", "it is 4. " * i)) for i in (1, 9))
        out, folder = str(self.dir / "sum.safetensors"), str(self.dir / "chatml")
        printed = self.run_script(out, first, second, "--tokenizer", folder)
        found = self.records(out)
        longest, tokens = max(len(ids) for ids, _ in found), sum(len(ids) for ids, _ in found)
        learned = sum(sum(mask) for _, mask in found)
        self.assertIn(f"{out}: 2 records, {tokens} tokens, {learned} of them to be learned; the longest record has "
                      f"{longest}\n", printed)
        self.assertIn(f"at least {len(self.tokenizer('chatml'))}.", printed)
        data = json.loads("{" + printed.splitlines()[-1] + "}")["data"]
        self.assertEqual(data.pop("sequence_length") - longest, -longest % 64)
        self.assertEqual(data, {"type": "records", "path": out, "tokenizer": folder})
        with safe_open(out, "np") as file:
            self.assertEqual(file.metadata(),
                             {"tokenizer": "chatml", "sources": '["1.jsonl", "9.jsonl"]', "records": "2"})
        printed = self.run_script(out, first, second, "--tokenizer", folder, "--held-out", "1")
        self.assertEqual(json.loads("{" + printed.splitlines()[-1] + "}")["data"]["eval_path"],
                         str(self.dir / "sum-held-out.safetensors"))

    def test_how_to_ask(self) -> None:
        """The printed command line, as bash parses it, is the template's text; if a template accepts no such chat,
        no line is printed."""
        system = {"role": "system", "content": "be kind"}
        source = self.file("ask.jsonl", {"messages": [system, *chat("what", "it is 4.")["messages"]]})
        said = {name: self.run_script(str(self.dir / "ask.safetensors"), source, "--tokenizer", str(self.dir / name))
                for name in ("quotes", "system_first")}
        self.assertNotIn("sample.py", said["system_first"])
        line = next(line for line in said["quotes"].splitlines() if "sample.py" in line)
        words = line.partition("sample.py CKPT ")[2]
        done = subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "it's \\n<|im_start|>user\nQUESTION<|im_end|>\n<|im_start|>assistant\n")

    def test_as_a_program(self) -> None:
        """Another process gives the same bytes."""
        source, out = self.file("same.jsonl", chat("what", "it is 4.")), str(self.dir / "same.safetensors")
        written = []
        for _ in range(2):
            done = subprocess.run([sys.executable, SCRIPT, out, source, "--tokenizer", self.dir / "chatml"],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            written.append(pathlib.Path(out).read_bytes())
        self.assertEqual(*written)

    def refused(self, source: str, *options: str, name: str = "chatml", status: int = 2) -> str:
        """Returns the only message; nothing is written."""
        out = self.dir / "refused.safetensors"
        said = self.run_script(str(out), source, "--tokenizer", str(self.dir / name), *options, expect=status)
        self.assertFalse(out.exists())
        self.assertEqual(said.count("chat_to_records.py: "), 1, said)
        return said

    def test_wrong_rows(self) -> None:
        good = chat("a", "b")
        turn = good["messages"][0]
        for row, says in (
                ('{"messages": ', "no line of JSON: Expecting value"),
                (b'{"messages": "\xff"}', "no line of JSON: 'utf-8' codec"),
                ("[" * 100000, "no line of JSON"),
                ("[]", "[]; an object is wanted"),
                ("3", "3; an object is wanted"),
                ({"text": "a"}, "messages is missing, which this file's first row has"),
                ({"messages": None}, "messages is missing"),
                ({"messages": []}, "messages is []; a list of messages is wanted"),
                ({"messages": "hello"}, 'messages is "hello"; a list of messages is wanted'),
                ({"messages": [turn, "b"]}, 'messages[1] is "b"; an object with role and content'),
                ({"messages": [{"role": "user"}]}, "an object with role and content"),
                ({"messages": [{"content": "a"}]}, "an object with role and content"),
                ({"messages": [{"role": "user", "content": None}]}, "messages[0].content is null; a text is wanted"),
                ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "a text is wanted"),
                ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "content has half of a surrogate pair"),
                ({"messages": [{"role": "bot", "content": "a"}]}, 'messages[0].role is "bot"; known are system, '),
                ({"messages": [{"role": ["user"], "content": "a"}]}, "known are system, "),
                ({"messages": [{"from": "bing", "value": "a"}]}, 'messages[0].from is "bing"; known are human, '),
                ({"messages": [turn, {"role": "assistant", "content": "", "tool_calls": [{}]}]}, "calls of tools"),
                ({**good, "tools": [{}]}, "tools are not known here")):
            said = self.refused(self.file("wrong.jsonl", good, row))
            self.assertIn(f"{self.dir}/wrong.jsonl:2: ", said)
            self.assertIn(says, said)
        for row, says in (({"text": "a"}, "wrong.jsonl:1: a row with text; it needs messages; conversations; prompt"),
                          ({}, "wrong.jsonl:1: a row with nothing; it needs messages"),
                          ('[{"messages": []}]', "wrong.jsonl:1: a JSON array, where each row is to be a line"),
                          ({"prompt": 1, "response": "a"}, "wrong.jsonl:1: prompt is 1; a text is wanted"),
                          ({"instruction": "a", "output": "b", "input": 5}, "wrong.jsonl:1: input is 5; a text"),
                          ("", "wrong.jsonl: holds no chats")):
            self.assertIn(says, self.refused(self.file("wrong.jsonl", row)))

    def test_templates_that_cannot_tell(self) -> None:
        two = self.file("two.jsonl", chat("a", "b"), {"messages": chat("a", "b")["messages"] * 2})
        said = self.refused(two, name="forgets")
        self.assertIn(f"{two}:2: the chat template of {self.dir}/forgets writes the beginning of a chat diff", said)
        self.assertIn("put {% generation %} and {% endgeneration %} around what the assistant writes", said)
        self.assertIn(f"{two}:1: the chat template of {self.dir}/no_prompt writes a header",
                      self.refused(two, name="no_prompt"))
        system = self.file("system.jsonl", {"messages": [{"role": "system", "content": "a"}]})
        self.assertIn(f"{system}:1: the chat template of {self.dir}/mistral does not take it: no system",
                      self.refused(system, name="mistral"))

    def test_wrong_arguments(self) -> None:
        source = self.file("good.jsonl", chat("a", "b"))
        self.assertIn("No such file or directory: 'nowhere.jsonl'", self.refused("nowhere.jsonl"))
        self.assertIn("Is a directory", self.refused(str(self.dir)))
        self.assertIn("has no chat template: take the folder of a model that chats", self.refused(source, name="none"))
        self.assertIn("nowhere: there is no such folder", self.refused(source, name="nowhere"))
        (self.dir / "empty").mkdir()
        self.assertIn(f"--tokenizer {self.dir}/empty: ", self.refused(source, name="empty"))
        self.assertIn("no record is left", self.refused(source, "--max-tokens", "2"))
        self.assertIn("--held-out 0.5 of 1 records leaves none", self.refused(source, "--held-out", "0.5"))
        self.assertIn("--held-out 5 of 1 records leaves none", self.refused(source, "--held-out", "5"))
        folder = ["--tokenizer", str(self.dir / "chatml")]
        for out, says in ((source, "would overwrite what is read"), (str(self.dir), "is a folder"),
                          (str(self.dir / "nowhere" / "out"), "there is no folder")):
            self.assertIn(says, self.run_script(out, source, *folder, expect=2))
        for option, value in (("--held-out", "0"), ("--held-out", "-1"), ("--held-out", "1.5"), ("--held-out", "nan"),
                              ("--held-out", "x"), ("--held-out", "inf"), ("--max-tokens", "1"), ("--max-tokens", "x")):
            self.assertIn(f"argument {option}", self.run_script("out", source, *folder, f"{option}={value}", expect=2))


if __name__ == "__main__":
    unittest.main()
