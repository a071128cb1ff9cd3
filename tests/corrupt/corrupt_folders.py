#!/usr/bin/env python3
"""Damaged or hostile Hugging Face folders: dcp-import refuses each with its own message, in bounded memory, and
leaves nothing behind. The same holds for `init` of dcp-train, which uses the same reader."""
import json, os, resource, struct, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from hf_folder import BIN, CONFIG, cases, check, content, folder, run, values

LIMIT = 1 << 30  # of address space; the libraries of MPI and HDF5 use a quarter of it
SANITIZED = b"__asan_init" in content(f"{BIN}/dcp-import")
if SANITIZED:
    LIMIT = None  # sanitizers reserve all address space
GOOD = {"w": values("F32", (2, 3)), "x": values("BF16", (4,))}
ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def raw(name, text, data=b"", length=None, hole=0):
    """Makes a folder whose file has this header; `hole`: the number of additional bytes, which use no space."""
    folder(name, {})
    text = text if isinstance(text, bytes) else text.encode()
    with open(f"{name}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text + data)
        if hole:
            f.truncate(f.tell() + hole)
    return name


def one(name, tensor, data=b"1234", entry=ENTRY):
    return raw(name, f'{{"{tensor}":{entry}}}', data)


def index(name, text, parts=2):
    folder(name, {f"t{i}": values("U8", (5,)) for i in range(4)}, parts=parts)
    old = json.load(open(f"{name}/model.safetensors.index.json"))
    new = text(old)
    with open(f"{name}/model.safetensors.index.json", "wb") as f:
        f.write(new if isinstance(new, bytes) else json.dumps(new).encode())
    return name


def config(name, text):
    folder(name, GOOD, None)
    with open(f"{name}/config.json", "wb") as f:
        f.write(text)
    return name


def with_map(change):
    """Returns the index with its weight map changed."""
    def changed(old):
        change(old["weight_map"])
        return old
    return changed


def linked(name, file, target):
    folder(name, GOOD, config=CONFIG if file != "config.json" else None)
    if os.path.exists(f"{name}/{file}"):
        os.rename(f"{name}/{file}", f"{name}.outside")
        target = f"../{name}.outside"
    os.symlink(target, f"{name}/{file}")
    return name


F1 = "model-00001-of-00002.safetensors"
MANY = b'{"model_type":"sample","a":[' + b"[]," * ((2 << 20) // 3 - 12) + b"[]]}"  # 2 MiB or just less


def check_peak():
    """Checks how much memory the largest program used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    check(SANITIZED or used < 256 << 10, f"the largest took {used >> 10} MiB")


def check_refused(*rows):
    """Each folder is refused with the exit status and a message that contains the text; with status 0 it is
    accepted."""
    for name, status, said in rows:
        with cases.part(name):
            if status == 0:
                run("dcp-import", name, "fine", "--dry-run", limit=LIMIT)
            else:
                check_one(name, status, said)
    check_peak()


def check_one(name, status, said):
    err = run("dcp-import", name, "dst", expect=status, limit=LIMIT)
    lines = [line for line in err.splitlines() if "the tensors are not compared" not in line and "imports what the folder has" not in line]
    check(len(lines) == 1 and lines[0].startswith("dcp-import: ") and said in lines[0], f"{name}: not '{said}': {err}")
    check(not os.path.exists("dst"), f"{name}: left something")
    if "bomb" not in name and name != "sparse":
        planned = run("dcp-import", name, "dst", "--dry-run", expect=status, limit=LIMIT)
        check(planned == err, f"{name}: --dry-run says something else")


def test_wrong_lengths():
    check_refused(
        (raw("short", "", length=0), 1, "does not begin with '{'"),
        (raw("header-longer", "{}", length=1000), 1, "claims 1000 bytes, the file has only 10"),
        (raw("header-100M", "{}", length=100000001, hole=100000100), 1, "more than 100000000"),
        (raw("header-2-64", "{}", length=2**64 - 1), 1, "more than 100000000"),
        (raw("header-zeros", "", length=99999999, hole=10**12), 1, "does not begin with '{'"),
        (raw("header-spaces", b"{" + b" " * 20000000), 1, "a name is missing"),
        (raw("sparse", '{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (10**13, 10**13),
             hole=10**13), 3, "the import needs "),
        (raw("cut", ENTRY.join(['{"a":', "}"]), b"12"), 1, "which has only 2: truncated?"),
        (raw("surplus", ENTRY.join(['{"a":', "}"]), b"123456"), 1, "2 bytes after the last tensor"))


def test_wrong_places_and_shapes():
    check_refused(
        (raw("overlap", '{"a":%s,"b":%s}' % (ENTRY, ENTRY), b"1234"), 1, "'a' and 'b' overlap"),
        (raw("hole", '{"a":%s}' % ENTRY.replace("[0,4]", "[4,8]"), b"12345678"), 1, "a hole of 4 bytes"),
        (raw("beyond", '{"a":%s}' % ENTRY.replace("[0,4]", "[4,8]"), b"1234"), 1, "ends at byte 8"),
        (one("backwards", "a", entry=ENTRY.replace("[0,4]", "[4,0]")), 1, "not [begin, end]"),
        (one("shape-2-63", "a", entry=ENTRY.replace("[1]", "[9223372036854775808]")), 1, "too big integer"),
        (one("shape-overflow", "a", entry=ENTRY.replace("[1]", "[9223372036854775807,3]")), 1, "overflows"),
        (one("shape-product", "a", entry=ENTRY.replace("[1]", "[4294967296,4294967297]")), 1, "overflows"),
        (one("shape-negative", "a", entry=ENTRY.replace("[1]", "[-1]")), 1, "is not a size"),
        (one("shape-other", "a", entry=ENTRY.replace("[1]", "[2]")), 1, "8 bytes according to its shape, but 4 according to its"),
        (one("ndim", "a", entry=ENTRY.replace("[1]", "[1,1,1,1,1,1,1,1,1]")), 2, "9 dimensions"),
        (one("dtype", "a", entry=ENTRY.replace("F32", "F31")), 2, "unknown dtype 'F31'"),
        (one("entry", "a", entry="7"), 1, "is not {dtype, shape, data_offsets}"),
        (one("long-entry", "a", entry=ENTRY.replace("[1]", "[1]" + " " * 5000)), 1, "bytes of JSON, more than"))


def test_hostile_names():
    check_refused(
        (one("name-empty", ""), 1, "is empty"),
        (one("name-dots", ".."), 1, "stands for a folder"),
        (one("name-dot", "."), 1, "stands for a folder"),
        (one("name-up", "../../etc/passwd"), 1, "holds a '/'"),
        (one("name-slash", "a/b"), 1, "holds a '/'"),
        (one("name-escaped", "a\\u002fb"), 1, "holds a '/'"),
        (one("name-nul", "a\\u0000b"), 1, "\\u0000"),
        (one("name-1025", "n" * 1025), 1, "of 1025 bytes is too long"),
        (one("name-1020", "n" * 1020), 2, "longer than 1,024 bytes"),
        (one("name-utf8", b"\xff\xfe".decode("latin1")), 0, ""),
        (raw("name-bad-utf8", b'{"\xff\xfe":' + ENTRY.encode() + b"}", b"1234"), 1, "unable to decode byte 0xff"),
        (raw("name-surrogate", '{"\\ud800":%s}' % ENTRY, b"1234"), 1, "not JSON"),
        (raw("twice", '{"a":%s,"a":%s}' % (ENTRY, ENTRY.replace("[0,4]", "[4,8]")), b"12345678"), 1,
         "duplicate tensor 'a'"),
        (one("key-twice", "a", entry=ENTRY.replace("}", ',"dtype":"F32"}')), 1, "duplicate"))


def test_json_that_is_none_or_has_no_end():
    check_refused(
        (raw("array", "[]"), 1, "does not begin with '{'"),
        (raw("text-after", "{}{}"), 1, "more text after the object"),
        (raw("no-end", '{"a":{"dtype":"F32"'), 1, "without end"),
        (raw("deep", '{"a":' + "[" * 200000 + "]" * 200000 + "}"), 1, "nested too deep"),
        (raw("deep-metadata", '{"__metadata__":' + '{"a":' * 100000 + "1" + "}" * 100001), 1, "nested too deep"),
        (raw("metadata-twice", '{"__metadata__":{},"__metadata__":{}}'), 1, "duplicate __metadata__"),
        (raw("metadata-number", '{"__metadata__":{"a":1}}'), 1, "is not a string"),
        (raw("metadata-long", '{"__metadata__":{"a":"%s"}}' % ("x" * (5 << 20))), 1, "more than 4194304"))


def test_many_small_things_that_a_parser_would_make_large():
    check_refused(
        (raw("bomb-arrays", '{"a":[' + "[]," * 10000000 + "[]]}"), 1, "bytes of JSON, more than"),
        (raw("bomb-tensors", "{" + ",".join('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i
                                             for i in range((1 << 20) + 1)) + "}"), 2, "more than 1048576 tensors"))


def test_wrong_indexes():
    check_refused(
        (index("index-empty", lambda old: b""), 1, "not JSON"),
        (index("index-array", lambda old: []), 1, "no object"),
        (index("index-no-map", lambda old: {"metadata": {}}), 1, "no weight_map"),
        (index("index-deep", lambda old: b'{"weight_map":' + b"[" * 100000), 1, "nested too deep"),
        (index("index-missing", with_map(lambda m: m.pop("t1"))), 1, "omits tensor 't1', which " + F1),
        (index("index-surplus", with_map(lambda m: m.update(t9=F1))), 1, "its index names tensor 't9', which no file holds"),
        (index("index-wrong", with_map(lambda m: m.update(t3=F1))), 1, "places tensor 't3' in " + F1),
        (index("index-no-file", with_map(lambda m: m.update(t3="z.safetensors"))), 2, "z.safetensors"),
        (index("index-up", with_map(lambda m: m.update(t3="../good/model.safetensors"))), 1,
         "not in a file of this folder: '../good/model.safetensors'"),
        (index("index-absolute", with_map(lambda m: m.update(t3="/etc/passwd"))), 1, "not in a file of this folder"),
        (index("index-dots", with_map(lambda m: m.update(t3=".."))), 1, "not in a file of this folder"),
        (index("index-number", with_map(lambda m: m.update(t3=3))), 1, "not in a file of this folder"),
        (index("index-twice", lambda old: b'{"weight_map":{"t0":"%s","t0":"%s"}}' % (F1.encode(), F1.encode())),
         1, "duplicate tensor 't0'"),
        (index("index-bomb", lambda old: b'{"weight_map":{"a":[' + b"[]," * 10000000 + b"[]]}}"), 1,
         "bytes of JSON, more than"))


def test_links_out_of_the_folder():
    with open("secret.json", "w") as f:
        json.dump(CONFIG, f)
    check_refused(
        (linked("link-model", "model.safetensors", ""), 1, "a link out of its folder"),
        (linked("link-config", "config.json", "../secret.json"), 1, "a link out of its folder"),
        (linked("link-kept", "tokenizer.json", "/etc/passwd"), 1, "a link out of its folder"),
        (linked("link-circle", "vocab.json", "vocab.json"), 3, "vocab.json"))


def test_wrong_configurations():
    check_refused(
        (config("config-empty", b""), 1, "not JSON"),
        (config("config-array", b"[]"), 1, "not a JSON object"),
        (config("config-twice", b'{"a":1,"a":2}'), 1, "duplicate"),
        (config("config-deep", b'{"a":' * 100000 + b"1" + b"}" * 100000), 1, "maximum parsing depth"),
        (config("config-utf8", b'{"a":"\xff"}'), 1, "unable to decode byte 0xff"),
        (config("config-nul", b'{"a":"\\u0000"}'), 1, "\\u0000"),
        (config("config-big", b'{"a":18446744073709551616}'), 1, "is outside -2^63 to 2^64 - 1"),
        (config("config-long", MANY + b" " * 64), 1, "bytes, but may have at most 2097152"),
        (folder("config-none", GOOD, None), 2, "no config.json"))


def test_a_folder_without_a_model():
    os.mkdir("model-none")
    with open("model-none/config.json", "w") as f:
        json.dump(CONFIG, f)
    check_refused(("model-none", 2, "holds neither model.safetensors nor"))


def test_a_fifo():
    folder("fifo", GOOD)
    os.mkfifo("fifo/tokenizer.json")
    check_refused(("fifo", 3, "not a regular file"))


def test_a_file_too_large_to_keep():
    folder("kept-huge", GOOD)
    with open("kept-huge/tokenizer.json", "wb") as f:
        f.truncate(10**12)
    check_refused(("kept-huge", 2, "together"))


def test_the_longest_configuration_is_taken_in_bounded_memory():
    run("dcp-import", config("config-most", MANY), "dst", limit=LIMIT)
    check_peak()


def test_several_ranks_say_it_once():
    for make, status in (
            (lambda: raw("overlap", '{"a":%s,"b":%s}' % (ENTRY, ENTRY), b"1234"), 1),
            (lambda: config("config-deep", b'{"a":' * 100000 + b"1" + b"}" * 100000), 1),
            (lambda: index("index-missing", with_map(lambda m: m.pop("t1"))), 1),
            (lambda: one("name-up", "../../etc/passwd"), 1)):
        name = make()
        with cases.part(name):
            err = run("dcp-import", name, "dst3", expect=status, ranks=3)
            check(err.count("dcp-import: ") == 1 and not os.path.exists("dst3"), f"{name} on 3 ranks: {err}")


cases.main()
