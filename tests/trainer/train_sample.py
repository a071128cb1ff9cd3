#!/usr/bin/env python3
"""--sample: a model that has learned a text by heart continues it, the same from any layout and number of ranks; a seed
determines a text; characters are whole; --ids reads and writes token ids; a checkpoint that cannot be sampled is
refused in one message."""
import glob, json, os, shutil, struct
from train_lib import cases, check, config, messages, MODEL, SOURCE, step_path, steps, tool, train

TEXT = "Zwölf Boxkämpfer jagen Viktor — quer über den Sylter Deich. "
SMALL = {**MODEL, "num_hidden_layers": 2, "head_dim": 16}


def learn(directory, ranks=1, model=SMALL, steps=100, batch=8, checkpoint={}, bf16=False, **data):
    config(model=model, max_steps=steps, bf16={"enabled": bf16}, optimizer={"params": {"lr": 3e-3}},
           train_batch_size=batch, train_micro_batch_size_per_gpu=2, metrics=None,
           data={"sequence_length": 64, **data}, checkpoint={"dir": directory, "every": 0, **checkpoint})
    train(ranks, "config.json")


def sample(text, *options, ranks=1):
    out, err = train(ranks, "--sample", text, *options)
    check(not messages(err), f"{text}, {options}: {err}")
    check(out.endswith("\n"), f"no line: {out!r}")
    return out[:-1]


@cases.shared
def inputs():
    with open("text", "w", encoding="utf-8") as f:
        f.write(TEXT * 200)


begun = TEXT[:20]
rest = (TEXT * 3)[len(begun):].encode()


@cases.shared
def one():
    cases.use(inputs)
    learn("one")


def test_a_text_that_was_learned_is_continued():
    cases.use(one)
    check(sample(begun, "one").encode() == rest[:100], f"{sample(begun, 'one')!r}")
    # Tokens are bytes here, and the last one may be half a character.
    for n in (1, 2, 28, 29, 30):
        check(sample(begun, "one", "--tokens", n) == rest[:n].decode(errors="ignore"), f"{n} tokens")
    check(sample(begun, step_path(100, "one"), "--temperature", "0") == sample(begun, "one"), "a step by name")
    check(sample(begun * 4, "one", "--tokens", 20), "a text of several pieces")


def test_layout_and_ranks_change_nothing():
    cases.use(one)
    # Under a launcher, only one rank prints.
    learn("three", ranks=3, checkpoint={"layout": "sharded"})
    check(sample(begun, "three") == sample(begun, "one"), "three ranks' checkpoint goes on otherwise")
    check(sample(begun, "one", ranks=2) == sample(begun, "one"), "two ranks say something else")


def test_a_seed_determines_the_text():
    cases.use(one)
    warm = [sample(begun, "one", "--temperature", "2", "--seed", seed) for seed in (0, 0, 1, 2**40)]
    check(warm[0] == warm[1] and len(set(warm)) == 3, f"{warm}")
    check(sample(begun, "one", "--temperature", "1e-9", "--seed", 5) == sample(begun, "one"), "almost greedy")


@cases.shared
def ends():
    cases.use(inputs)
    # The eos token is a byte here.
    learn("ends", model={**SMALL, "eos_token_id": [300, ord(".")], "bos_token_id": ord(".")})


def test_an_eos_token_ends_the_text():
    cases.use(ends)
    check(sample(begun, "ends") == TEXT[len(begun):-2], f"{sample(begun, 'ends')!r}")
    check(sample("", "ends") == " " + TEXT[:-2], f"{sample('', 'ends')!r}: not begun by the bos token")


GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128,
        "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}


def test_bf16():
    cases.use(inputs)
    learn("bf16", steps=120, bf16=True)
    check(sample(begun, "bf16").encode() == rest[:100], f"{sample(begun, 'bf16')!r}")


@cases.shared
def gpt2():
    cases.use(inputs)
    learn("gpt2", model=GPT2, steps=200)


def test_learned_positions():
    cases.use(gpt2)
    check(sample(begun, "gpt2", "--tokens", 40) == rest[:40].decode(errors="ignore"), f"{sample(begun, 'gpt2')!r}")


@cases.shared
def twice():
    cases.use(inputs)
    learn("twice", steps=2, checkpoint={"every": 1})
    before = sample("a", step_path(1, "twice"))
    with open(step_path(2, "twice") + "/state.h5", "r+b") as f:
        f.seek(100000)
        f.write(b"damage")
    return before


def refused(why, *args, expect=2):
    out, err = train(1, *args, expect=expect)
    check(len(messages(err)) == 1 and why in err and not out.strip(), f"{args}: {why} is not in: {err}{out}")


def test_the_step_before_a_damaged_one_is_used():
    before = cases.use(twice)
    out, err = train(1, "--sample", "a", "twice")
    check(out == before + "\n" and len(messages(err)) == 1 and "using the previous step" in err, err)


def test_wrong_usage_is_refused():
    cases.use(one)
    refused("takes the text and one CKPT", "--sample", "a")
    refused("takes the text and one CKPT", "--sample", "a", "one", "max_steps=3")
    refused("go with --sample", "config.json", "--tokens", "5")
    refused("go with --sample", "config.json", "--seed", "5")
    refused("one at a time", "--sample", "a", "one", "--dry-run")
    refused("--trace goes with training", "--sample", "a", "one", "--trace", "trace.json")
    for option, words in (("--tokens", ("0", "-1", "many", "1e3")), ("--seed", ("-1", "x", "1.5")),
                          ("--temperature", ("-0.1", "hot", "nan", "inf", "1x", ""))):
        for word in words:
            refused(option, "--sample", "a", "one", f"{option}={word}")


def test_what_cannot_be_sampled_is_refused():
    cases.use(one)
    refused("nowhere", "--sample", "a", "nowhere")
    os.mkdir("empty")
    refused("empty", "--sample", "a", "empty")
    refused("text", "--sample", "a", "text")
    refused("step-00000101", "--sample", "a", step_path(101, "one"))
    refused("no bos_token_id to begin with; give it a text", "--sample", "", "one")
    refused("max_position_embeddings is 128: nothing can follow", "--sample", "a" * 128, "one")
    refused("--tokens: 126 tokens after a text of 3 are more than the model's max_position_embeddings 128; at most 125 "
            "fit",
            "--sample", "abc", "one", "--tokens=126")
    check(len(sample("a" * 100, "one").encode()) <= 28, "more tokens than the model has positions")


def numbers(ids):
    return " ".join(map(str, ids))


ids = numbers(begun.encode())


def test_damaged_steps_are_refused():
    cases.use(twice)
    refused("differs from what was saved", "--sample", "a", step_path(2, "twice"), expect=1)
    with open(step_path(1, "twice") + "/state.h5", "r+b") as f:
        f.truncate(5000)
    refused("twice/step-00000001", "--sample", "a", step_path(1, "twice"), expect=1)


def test_ids_give_the_same_tokens():
    cases.use(one)
    cases.use(ends)
    check(sample(ids, "one", "--ids") == numbers(rest[:100]), f"{sample(ids, 'one', '--ids')!r}")
    check(sample(f"\n {ids.replace(' ', chr(9))}\r\n", "one", "--ids", "--tokens", 7) == numbers(rest[:7]),
          "other spaces")
    check(sample("00090 119", "one", "--ids", "--tokens", 1) == sample("90 119", "one", "--ids", "--tokens", 1),
          "zeros")
    check(sample(ids, "ends", "--ids") == numbers(TEXT[len(begun):-2].encode()), "its end is written, or not its end")
    check(sample(" ", "ends", "--ids", "--tokens", 3) == numbers((" " + TEXT).encode()[:3]),
          "not begun by the bos token")
    by_chance = "--temperature", "2", "--seed", "1", "--tokens", "100"
    check(bytes(int(i) for i in sample(ids, "one", "--ids", *by_chance).split() if int(i) < 256).decode(errors="replace")
          .rstrip("\ufffd") == sample(begun, "one", *by_chance).rstrip("\ufffd"), "other tokens by chance")


def test_wrong_ids_are_refused():
    cases.use(one)
    refused("go with --sample", "config.json", "--ids")
    refused("the text is empty", "--sample", "", "one", "--ids")
    refused("the text has 128 tokens", "--sample", numbers([1] * 128), "one", "--ids")
    for word in "259", "-1", "+5", "0x10", "1.0", "1e2", "12a", "1,2", "4294967296", "18446744073709551617", "\u0662":
        refused(f"--ids: '{word}' is not a token of the model, whose vocab_size is 259; give ids from 0 to 258",
                "--sample", f"1 {word} 2", "one", "--ids")
    refused(f"--ids: '{'9' * 40}' is not a token", "--sample", "9" * 5000, "one", "--ids")


def tokens(out, *texts):
    tool(f"{SOURCE}/examples/tokenize_text.py", "hf/tokenizer.json", out, *texts, "--end", "<|end|>")
    with open(out, "rb") as f:
        return [i for i, in struct.iter_unpack("<H", f.read())]


BPE = {**SMALL, "vocab_size": 416}


@cases.shared
def tokenized():
    cases.use(inputs)
    os.mkdir("hf")
    shutil.copy(f"{SOURCE}/tests/data/tokenizers/llama3.json", "hf/tokenizer.json")
    for i in range(200):
        with open(f"hf/{i}.txt", "w", encoding="utf-8") as f:
            f.write(TEXT[:-1])

    with open("begun", "w", encoding="utf-8") as f:
        f.write("Zwölf Boxkämpfer jagen")
    learned, asked = tokens("bpe.bin", *glob.glob("hf/*.txt")), tokens("begun.bin", "begun")[:-1]
    check(learned[:len(asked)] == asked and learned.count(0) == 200, "the text's ids do not begin as its begin's do")
    one, asked = learned[len(asked):learned.index(0)], numbers(asked)
    return one, asked, learned


@cases.shared
def bpe():
    one, asked, learned = cases.use(tokenized)
    learn("bpe", model=BPE, type="tokens", path="bpe.bin", tokenizer="hf")
    return one, asked, learned


def test_ids_of_a_tokenizer_are_continued():
    one, asked, learned = cases.use(bpe)
    said = sample(asked, "bpe", "--ids")
    check(said == numbers([*one, *learned[learned.index(0):]][:100]), f"{said!r}")


@cases.shared
def bpe_ends():
    one, asked, learned = cases.use(tokenized)
    learn("bpe-ends", model={**BPE, "eos_token_id": 0}, type="tokens", path="bpe.bin", tokenizer="hf")
    return one, asked


def test_ids_end_with_an_eos_token():
    one, asked = cases.use(bpe_ends)
    check(sample(asked, "bpe-ends", "--ids") == numbers(one), "not ended by eos_token_id")


def test_text_for_a_model_with_a_tokenizer_is_refused():
    cases.use(bpe)
    refused("bpe/step-00000100: its tokens are those of a tokenizer (tokenizer.json), which --sample does not apply; run "
            "examples/sample.py CKPT TEXT, which does, or give token ids with --ids", "--sample", "Zwölf", "bpe")


def test_generation_config_goes_before_config():
    one, asked = cases.use(bpe_ends)
    tool("dcp-export", "bpe-ends", "generated")
    for name, eos, wants in ("other", 9999, False), ("list", [9999, 0], True), ("null", None, True):
        with open("generated/generation_config.json", "w") as f:
            json.dump({"eos_token_id": eos, "do_sample": False}, f)
        tool("dcp-import", "generated", f"generated-{name}")
        said = sample(asked, f"generated-{name}", "--ids")
        check(said.startswith(numbers(one)) and (said == numbers(one)) == wants, f"{name}: {said!r}")


def test_tokens_that_a_tokenizer_adds_are_not_added_to_ids():
    cases.use(tokenized)
    # This tokenizer puts a token before a text and one after it.
    os.mkdir("begins")
    tokenizer = json.load(open("hf/tokenizer.json"))
    end = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "pair": [], "single": [end, {"Sequence": {"id": "A", "type_id": 0}}, end],
        "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}}
    with open("begins/tokenizer.json", "w") as f:
        json.dump(tokenizer, f)
    learn("begins", model=BPE, steps=1, type="tokens", path="bpe.bin", tokenizer="begins")
    for text, n in ("5", 1), ("0 5", 2), ("0 0 5", 3), ("5 0", 2), ("0", 1):
        refused(f"after a text of {n} are", "--sample", text, "begins", "--ids", "--tokens",
                BPE["max_position_embeddings"])


def test_a_model_of_token_ids_without_a_tokenizer():
    cases.use(inputs)
    with open("ids", "wb") as f:
        f.write(struct.pack("<2560H", *list(range(256)) * 10))
    learn("of-ids", steps=1, type="tokens", path="ids")
    refused("carries no tokenizer, and its tokens are not bytes; give token ids with --ids, or run "
            "examples/sample.py CKPT TEXT --tokenizer FOLDER", "--sample", "a", "of-ids")
    check(len(sample("97", "of-ids", "--ids", "--tokens", 5).split()) == 5, "no ids of a model without a tokenizer")


def test_a_tokenizer_that_cannot_be_read():
    cases.use(tokenized)
    learn("small", steps=1, tokenizer="hf")
    refused("those of a tokenizer (tokenizer.json), which", "--sample", "a", "small")
    for name, text in ("tokenizer.json", "{"), ("vocab.json", "{}"), ("tokenizer.model", "\x0a\x0b"):
        shutil.rmtree("hf")
        os.mkdir("hf")
        with open(f"hf/{name}", "w") as f:
            f.write(text)
        learn(f"no-{name}", steps=1, tokenizer="hf")
        refused(f"those of a tokenizer ({name}), which", "--sample", "a", f"no-{name}")
        check(len(sample("97", f"no-{name}", "--ids", "--tokens", 5).split()) == 5, f"no ids beside {name}")


def test_an_import_of_a_byte_model_is_one_again_after_training():
    cases.use(gpt2)
    # The export carries a tokenizer of bytes. Once the import is trained on text, its tokens are bytes.
    tool("dcp-export", "gpt2", "bytes")
    tool("dcp-import", "bytes", "came-back")
    refused("those of a tokenizer (tokenizer.json), which", "--sample", begun, "came-back")
    check(sample(ids, "came-back", "--ids", "--tokens", 40) == numbers(rest[:40]), "the import goes on otherwise")
    learn("came-back", model=GPT2, steps=1, checkpoint={"resume": "auto"})
    check(sample(begun, "came-back", "--tokens", 40) == rest[:40].decode(errors="ignore"),
          "no bytes of an import's run")


def test_a_checkpoint_without_a_model_is_refused():
    cases.use(inputs)
    tool("dcp-bench", "save", "bench", "--layers", 1, "--hidden", 8, "--vocab", 256)
    refused("has no configuration of a model; --sample requires a checkpoint of dcp-train", "--sample", "a", "bench")


def test_an_image_model_is_refused():
    cases.use(inputs)
    golden = f"{SOURCE}/tests/data/golden/vit"
    learn("vit", model=golden, steps=1, batch=4, type="safetensors", path=f"{golden}/golden.safetensors",
          sequence_length=None)
    refused("model_type vit takes no text; --sample is for language models", "--sample", "a", "vit")


def test_a_classifier_of_vectors_is_refused():
    cases.use(inputs)
    pixels = struct.pack(">4I", 0x803, 4, 2, 2) + bytes(range(16)), struct.pack(">2I", 0x801, 4) + bytes([0, 1, 2, 0])
    os.mkdir("images")
    for name, content in zip(("train-images-idx3-ubyte", "train-labels-idx1-ubyte"), pixels):
        with open(f"images/{name}", "wb") as f:
            f.write(content)
    learn("mlp", model={"model_type": "mlp", "sizes": [4, 5, 3]}, steps=1, type="idx", path="images")
    refused("model_type mlp takes no text", "--sample", "a", "mlp")


cases.main()
