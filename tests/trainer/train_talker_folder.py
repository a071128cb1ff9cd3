#!/usr/bin/env python3
"""A talker's folder: an import takes the codec and preprocessors along and leaves out the speaker encoder; an export
after training has the former, lacks the latter, and has the voice in a row of its own."""
import glob, json, os, shutil, struct, subprocess
from recordings import make_recordings, write_tensors
from train_lib import BIN, cases, check, config, make_text, SOURCE, tool, train

GOLDEN = f"{SOURCE}/tests/data/golden/talker"
CODEC = {"speech_tokenizer/config.json": b"{}\n", "speech_tokenizer/model.safetensors": bytes(range(256)) * 8,
         "speech_tokenizer/preprocessor_config.json": b'{"a": 1}\n', "preprocessor_config.json": b"{}\n",
         "vocab.json": b"{}\n"}
TABLE = "talker.model.codec_embedding.weight"


def read_tensors(path):
    """Returns dtype, shape and bytes by name."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def read(path):
    with open(path, "rb") as f:
        return f.read()


@cases.shared
def base():
    shutil.copytree(GOLDEN, "base", ignore=shutil.ignore_patterns("golden*", "records*"))
    start = read_tensors("base/model.safetensors")
    encoder = {"speaker_encoder.fc.weight": ["F32", [2], [0.5, 1.5]]}
    write_tensors("base/model.safetensors",
                  [(name, dtype, shape, struct.unpack(f"<{len(data) // 4}f", data))
                   for name, (dtype, shape, data) in start.items()] + [(name, *t) for name, t in encoder.items()])
    for name, text in CODEC.items():
        os.makedirs(os.path.dirname(f"base/{name}"), exist_ok=True)
        with open(f"base/{name}", "wb") as f:
            f.write(text)
    os.makedirs("base/speech_tokenizer/.cache")
    return start


@cases.shared
def imported():
    start = cases.use(base)
    tool("dcp-import", "base", "imported")
    return start


def test_an_export_has_the_tensors_and_files_of_the_import():
    cases.use(imported)
    tool("dcp-export", "imported", "same")
    check(read_tensors("same/model.safetensors") == read_tensors("base/model.safetensors"), "other tensors come back")
    for name, text in CODEC.items():
        check(read(f"same/{name}") == text, f"{name} does not come back")


@cases.shared
def trained():
    start = cases.use(imported)
    make_recordings("voice.safetensors", 8, speakers=1)
    make_recordings("two.safetensors", 8, speakers=2)
    make_recordings("small.safetensors", 8, speakers=1, hidden=12)
    config(model="base/config.json", max_steps=2, train_batch_size=4, frozen=["talker.model.text_embedding.*"],
           data={"type": "speech", "path": "voice.safetensors", "sequence_length": 32, "frames": 9})
    for ranks in 1, 3:
        shutil.copytree("imported", f"on-{ranks}")
        train(ranks, "config.json", f"checkpoint.dir=on-{ranks}")
        tool("dcp-export", f"on-{ranks}", f"tuned-{ranks}")
        for name, text in CODEC.items():
            check(read(f"tuned-{ranks}/{name}") == text, f"{name} does not come with what is trained")
    tuned = read_tensors("tuned-1/model.safetensors")
    return start, tuned


def test_training_changes_the_tensors_of_the_talker():
    start, tuned = cases.use(trained)
    check(tuned == read_tensors("tuned-3/model.safetensors") and set(tuned) == set(start), "other tensors are trained")
    check(tuned[TABLE] != start[TABLE], "the table is as it was")


def refused(why, *options, ckpt="on-1"):
    done = subprocess.run([f"{BIN}/dcp-export", ckpt, "refused", *options], capture_output=True, text=True)
    check(done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, f"{options}: {done.stderr}")
    check(not os.path.exists("refused"), f"{options}: wrote something")


def test_an_exported_voice_is_the_last_row_of_the_table():
    start, tuned = cases.use(trained)
    # It is the last row since the table is so small, in every dtype and form of export.
    vector = read_tensors("voice.safetensors")["speakers"][2]
    for out, *options in ("named",), ("cut", "--max-shard-size", "2KB"), ("narrow", "--dtype", "bf16"):
        with cases.part(f"{out}"):
            tool("dcp-export", "on-1", out, "--voice", "Anna", "--voice-from", "voice.safetensors", *options)
            found = {}
            for path in glob.glob(f"{out}/model*.safetensors"):
                found |= read_tensors(path)
            dtype, shape, data = found.pop(TABLE)
            row = len(data) // shape[0]
            check(set(found) == set(start) - {TABLE}, f"{out}: other tensors")
            if dtype == "F32":
                check(data[-row:] == vector and data[:-row] == tuned[TABLE][2][:-row], f"{out}: another row")
                check(all(t == tuned[name] for name, t in found.items()), f"{out}: other tensors' bytes")
            else:
                wide = b"".join(b"\0\0" + data[i:i + 2] for i in range(len(data) - row, len(data), 2))
                check(all(abs(a - b) <= abs(b) / 256 for a, b in zip(struct.unpack("<16f", wide),
                                                                     struct.unpack("<16f", vector))),
                      f"{out}: another row")
            with open(f"{out}/config.json") as f:
                written = json.load(f)
            check(written["tts_model_type"] == "custom_voice" and written["talker_config"]["spk_id"] == {"anna": 19} and
                  written["talker_config"]["spk_is_dialect"] == {"anna": False}, f"{out}: {written}")
            check(written["architectures"] == ["Qwen3TTSForConditionalGeneration"], f"{out}: {written}")


def test_a_talker_cannot_be_sampled():
    cases.use(trained)
    _, err = train(1, "--sample", "hello", "on-1", expect=2)
    check(err.count("\n") == 1 and "qwen3_tts speaks a text but does not continue it; export it with dcp-export --voice"
          in err, err)


def test_a_wrong_voice_is_refused():
    cases.use(trained)
    refused("give --voice and --voice-from together", "--voice", "anna")
    refused("give --voice and --voice-from together", "--voice-from", "voice.safetensors")
    refused("letters, digits", "--voice", "an na", "--voice-from", "voice.safetensors")
    refused("speakers is not an F32 tensor of shape [1,16]", "--voice", "anna", "--voice-from", "two.safetensors")
    refused("speakers is not an F32 tensor of shape [1,16]", "--voice", "anna", "--voice-from", "small.safetensors")
    refused("--voice-from: cannot open nowhere", "--voice", "anna", "--voice-from", "nowhere")
    refused("not a safetensors file?; give it the records", "--voice", "anna", "--voice-from", "config.json")


def test_a_model_without_a_table_of_voices_is_refused():
    cases.use(trained)
    make_text()
    config()
    train(1, "config.json", "checkpoint.dir=text.ckpt", "max_steps=1")
    refused(f"has no {TABLE}", "--voice", "anna", "--voice-from", "voice.safetensors", ckpt="text.ckpt")


cases.main()
