#!/usr/bin/env python3
"""data.type speech: an error in a file of recordings, or in the keys, is refused in one line that names it."""
import os
from recordings import make_recordings, recordings, write_tensors
from train_lib import cases, check, config, SOURCE, train

GOLDEN = f"{SOURCE}/tests/data/golden/talker"
NAN, INFINITE = float("nan"), float("inf")


def refused(*words, status=2, **data):
    with cases.part(f"{words}"):
        config(model=f"{GOLDEN}/config.json", max_steps=1, frozen=[], scheduler={"type": "constant", "params": {}},
               data={"type": "speech", "path": "file.safetensors", "sequence_length": 32, "frames": 9, **data})
        _, err = train(1, "config.json", expect=status)
        check(err.count("\n") == 1 and all(word in err for word in words), f"{words}: {err}")
        check(not os.path.exists("ckpt"), f"{words}: wrote something")


def wrong(name, change, *words):
    """Refuses a file in which one tensor is changed (its dtype, shape or values) or missing."""
    tensors = recordings(7)
    tensors[name] = change(*tensors[name])
    write_tensors("file.safetensors", [(key, *rest) for key, rest in tensors.items() if rest])
    refused("file.safetensors", *words)


def value(at, new):
    return lambda dtype, shape, values: [dtype, shape, values[:at] + [new] + values[at + 1:]]


def cast(to):
    return lambda dtype, shape, values: [to, shape, values]


def cut(n):
    return lambda dtype, shape, values: [dtype, [n, *shape[1:]], values[:n * len(values) // shape[0]]]


ANEW = "to_records.py"


def test_wrong_tensors_are_named():
    for name, other in (("text_starts", "U32"), ("frame_starts", "F64"), ("text_ids", "I64"), ("codes", "U32"),
                        ("speakers", "F64"), ("speaker_ids", "U16")):
        wrong(name, cast(other), f"{name} is ", ANEW)
        wrong(name, lambda *_: None, f"{name} is missing", ANEW)
    wrong("speakers", lambda dtype, shape, values: [dtype, [len(values)], values], "speakers is F32 with 1 dimension, ",
          "but must be F32 with 2 dimensions;", ANEW)
    wrong("text_starts", cast("F32"), "but must be I64 with 1 dimension;", ANEW)
    wrong("text_starts", value(0, 1), "text_starts begins with 1", ANEW)
    wrong("text_starts", value(7, 10**15), "text_starts begins with 0 and ends with 1000000000000000", ANEW)
    wrong("text_starts", value(3, -5), "text_starts of record 2", ANEW)
    wrong("text_starts", value(3, 2**62), "text_starts of record 2", ANEW)
    wrong("frame_starts", value(7, -1), "frame_starts begins with 0 and ends with -1", ANEW)
    wrong("frame_starts", value(1, 0), "frame_starts of record 0", "by at least 1,", ANEW)
    wrong("frame_starts", cut(5), "5 frame_starts", ANEW)
    wrong("speaker_ids", cut(3), "3 speaker_ids", ANEW)
    wrong("speaker_ids", value(2, 2), "record 2 has speaker 2, but the file has only 2", ANEW)
    wrong("speakers", value(0, NAN), "number 0 of speaker 0", ANEW)
    wrong("speakers", value(31, INFINITE), "number 15 of speaker 1", ANEW)
    wrong("text_ids", value(5, 35), "is 35, but the model's text_vocab_size is 35")
    wrong("text_ids", value(5, 2**32 - 1), "is 4294967295")
    wrong("codes", value(5, 12), "code 1 of frame 1 of record 0 is 12", "below 12")
    wrong("codes", value(4, 65535), "is 65535")
    wrong("codes", value(4, 12), "code 0 of frame 1 of record 0 is 12", "below 12")
    wrong("speaker_ids", value(2, 2**32 - 1), "record 2 has speaker 4294967295, but the file has only 2", ANEW)


def test_recordings_for_another_model_are_refused():
    for over, words in (({"groups": 3}, ("codes has 3 codes per frame", "num_code_groups is 4")),
                        ({"hidden": 12}, ("12 numbers, but the model takes vectors of 16", "a model of another size"))):
        with cases.part(f"{words}"):
            make_recordings("file.safetensors", 7, **over)
            refused(*words)


def test_the_longest_record_is_named():
    make_recordings("file.safetensors", 7)
    starts = [recordings(7)[f"{of}_starts"][2] for of in ("text", "frame")]
    texts, frames = [[b - a for a, b in zip(of, of[1:])] for of in starts]
    positions = [t + n + 7 for t, n in zip(texts, frames)]
    for key, room, lengths, what in ("frames", 2, frames, "frames"), ("sequence_length", 19, positions, "positions"):
        most = max(lengths)  # not the first one that is too long, which would not be the last message
        check(any(room < n < most for n in lengths), "one record alone is too long")
        refused(f"record {lengths.index(most)} has {most} {what}, but data.{key} is {room}: set that key to {most}, ",
                "--max-frames", **{key: room})


def test_wrong_keys_are_refused():
    make_recordings("file.safetensors", 7)
    refused("data.frames: 33 is more than data.sequence_length 32", "to_records.py", frames=33)
    refused("data.frames: 2147483647 is more", frames=2147483647)
    train(1, "config.json", "data.frames=32", "--dry-run")  # the next multiple, as to_records.py says
    refused("data.frames", "needs it", frames=None)
    refused("data.sequence_length", "needs a number", sequence_length=None)
    refused("data.sequence_length", "65", "max_position_embeddings 64", sequence_length=65)
    refused("data.frames", "has no frames", type="records")
    refused("data.type: records gives no recordings; set it to speech", type="records", frames=None)
    refused("data.eval_path", "nowhere", eval_path="nowhere")


def test_a_truncated_file_is_refused():
    make_recordings("file.safetensors", 7)
    with open("file.safetensors", "rb") as file:
        whole = file.read()
    with open("file.safetensors", "wb") as file:
        file.write(whole[:-8])
    refused("file.safetensors", ANEW)


def test_an_error_in_the_last_of_many_records_is_found():
    # The error is found before the first step.
    many = recordings(4200)
    last = many["frame_starts"][2][-2:]
    for name, at, new, *words in (("codes", -1, 99, f"code 3 of frame {last[1] - last[0] - 1} of record 4199 is 99"),
                                  ("text_ids", -1, 35, "of record 4199 is 35"),
                                  ("speaker_ids", -1, 2, "record 4199 has")):
        dtype, shape, values = many[name]
        write_tensors("file.safetensors", [(key, *rest) for key, rest in
                                           {**many, name: [dtype, shape, values[:at] + [new]]}.items()])
        refused("data.path: file.safetensors", *words)
    make_recordings("right.safetensors", 7)
    for over in {"eval_path": "file.safetensors"}, {"sources": [{"path": "file.safetensors", "weight": 1}]}:
        key = "data.sources[0].path" if "sources" in over else "data.eval_path"
        refused(f"{key}: file.safetensors", "record 4199", path="right.safetensors", **over)


def test_several_ranks_give_one_message():
    wrong("speakers", value(0, NAN), "number 0 of speaker 0")
    _, err = train(3, "config.json", expect=2)
    check(err.count("dcp-train: ") == 1 and "number 0 of speaker 0" in err, err)


def test_a_model_of_tokens_is_refused():
    make_recordings("file.safetensors", 7)
    config(data={"type": "speech", "path": "file.safetensors", "frames": 9})
    _, err = train(1, "config.json", expect=2)
    check("data.type: speech gives recordings, but the model takes tokens" in err, err)


cases.main()
