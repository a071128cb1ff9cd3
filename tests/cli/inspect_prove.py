#!/usr/bin/env -S python3 -B
"""dcp-inspect prove: checksums are CRC-64/XZ of the tensors' bytes. They and the state id are equal for both
layouts, for any cut and any number of ranks that compute them; a flipped bit changes the id."""
import functools
import os

import numpy as np

from states import cases, flip, inspect, run, save

POLYNOMIAL = 0xc96c5795d7870f42  # reflected


@functools.cache
def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def crc64(data):
    crc, table = 2**64 - 1, crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return f"{crc ^ 2**64 - 1:016x}"


@functools.cache
def state():
    rng = np.random.default_rng(7)
    return {"/model/w": rng.standard_normal((37, 41), dtype=np.float32),
            "/model/b": rng.standard_normal(5).astype(np.float16),
            "/model/none": np.zeros((0, 3), np.float32),
            "/model/three": rng.integers(0, 255, (5, 7, 9)).astype(np.uint8),
            "/optimizer/step": np.int64(3)}


@functools.cache
def expected():
    return {path: crc64(np.asarray(array).tobytes()) for path, array in state().items()}


@cases.shared
def steps():
    """Makes the step in three layouts."""
    return [os.path.abspath(save(f"{i}", 3, state(), {"lr": 0.1}, layout))
            for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))]


def test_crc64_here_is_that_of_xz():
    assert crc64(b"123456789") == "995dc9bbdf1939fa"


def test_checksums_are_those_of_the_bytes_and_the_state_id_is_one():
    proofs = [inspect("prove", step, ranks=ranks) for step in steps() for ranks in (0, 3)]
    for proof in proofs:
        assert proof["state_id"] == proofs[0]["state_id"], proofs
        assert {t["path"]: t["crc64"] for t in proof["tensors"]} == expected(), (proof, expected())


def test_the_text_has_the_named_tensors_and_the_state_id():
    state_id = inspect("prove", steps()[0])["state_id"]
    for step in steps():
        text = run("prove", step, "model/w", "b").splitlines()
        assert text == [f"{expected()['/model/b']}  /model/b", f"{expected()['/model/w']}  /model/w",
                        f"step 3: state id {state_id}"], text


def test_nothing_to_prove_is_refused():
    run("prove", steps()[0], "nothing*", status=2)
    run("prove", "nowhere", status=2)


def test_another_bit_is_another_id():
    first = inspect("prove", steps()[0])
    changed = {**state(), "/model/w": state()["/model/w"].copy()}
    changed["/model/w"][36, 40] *= -1
    other = inspect("prove", save("other", 3, changed, {"lr": 0.1}))
    assert other["state_id"] != first["state_id"]
    differs = {a["path"] for a, b in zip(other["tensors"], first["tensors"]) if a != b}
    assert differs == {"/model/w"}, differs


def test_damage_is_found_by_the_checksums_of_blocks():
    cases.use(steps)
    shard = "2/step-00000003/shard-00001-of-00002.h5"
    with open(shard, "rb") as f:
        data = f.read()
    flip(shard, data.index(np.ascontiguousarray(state()["/model/w"][:, 21:]).tobytes()[:64]))
    run("prove", "2/step-00000003", status=1)
    assert "/model/w" in run.said, run.said


cases.main()
