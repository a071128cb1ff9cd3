"""Records of recordings for tests, as examples/talker/to_records.py makes them."""
import json, random, struct

FORMATS = {"I64": "q", "U32": "I", "U16": "H", "F32": "f", "U8": "B", "F64": "d"}


def write_tensors(path, tensors):
    """Writes a safetensors file. tensors: name, dtype, shape and values of each."""
    header, data = {}, b""
    for name, dtype, shape, values in tensors:
        begin = len(data)
        data += struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def recordings(n, groups=4, hidden=16, speakers=2, seed=1, ids=(4, 12), frames=(1, 9)):
    """Tensors of n records, with text ids below 32 and frames of codes below 12; the numbers of both are within the bounds
    `ids` and `frames`."""
    generator = random.Random(seed)
    texts, frames = ([generator.randint(*bounds) for _ in range(n)] for bounds in (ids, frames))
    starts = [[sum(of[:i]) for i in range(n + 1)] for of in (texts, frames)]
    return {"text_starts": ["I64", [n + 1], starts[0]], "frame_starts": ["I64", [n + 1], starts[1]],
            "speakers": ["F32", [speakers, hidden], [generator.gauss(0, 0.02) for _ in range(speakers * hidden)]],
            "speaker_ids": ["U32", [n], [generator.randrange(speakers) for _ in range(n)]],
            "text_ids": ["U32", [starts[0][n]], [generator.randrange(32) for _ in range(starts[0][n])]],
            "codes": ["U16", [starts[1][n], groups], [generator.randrange(12) for _ in range(starts[1][n] * groups)]]}


def make_recordings(path, n, **over):
    write_tensors(path, [(name, *rest) for name, rest in recordings(n, **over).items()])
    return path
