"""Runs torch's own tests of distributed checkpoints with torch's storage and with libdcp's, and prints a table of both;
see docs/torch-suite.md.

    python torch_suite.py CHECKOUT [WORD]       # all files, or those that have WORD in their path

Exit status: 0; 1 if a test has another result than REASONS says; 77 if torch is not of the checkout's version."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import torch

CHILD = pathlib.Path(__file__).with_name("torch_suite_child.py")
FILE_S = 400  # seconds at most, with either storage
FILES = {  # below test/distributed; with the tests that are examined
    "checkpoint/test_compatibility.py": "",
    "checkpoint/test_dtensor_checkpoint.py": "",
    "checkpoint/test_dtensor_resharding.py": "",
    "checkpoint/test_file_system_checkpoint.py": "",
    "checkpoint/test_file_system_checkpoint_cpu.py": "",
    "checkpoint/test_format_utils.py": "",
    "checkpoint/test_fsdp_model_state.py": "",
    "checkpoint/test_fsdp_optim_state.py": "",
    "checkpoint/test_fsdp_tp_checkpoint_conversion.py": "",
    "checkpoint/test_fsspec.py": "",
    "checkpoint/test_hsdp_checkpoint.py": "",
    "checkpoint/test_planner.py": "TestLoadPlanner",
    "checkpoint/test_save_load_api.py": "",
    "checkpoint/test_state_dict_stager.py": "test_async_save",
    "checkpoint/test_tp_checkpoint.py": "",
    "checkpoint/e2e/test_e2e_save_and_load.py": "",
    "checkpoint/e2e/test_fine_tuning.py": "",
    "checkpoint/fsdp/test_fsdp_dsd.py": "_save_",
    "_composable/test_composability/test_2d_composability.py": "checkpoint_resume|set_full_state_dict",
    "_composable/test_composability/test_pp_composability.py": "dcp",
}
TOO = "fails with torch's storage, too"
REASONS = [  # for tests that do not pass with libdcp: a pattern for "Class.test ranks", and the reason
    (r"test_storage_meta", "requires ids of the save and the load, which only torch's class has"),
    (r"test_version_key_in_planner_data", "requires the version of torch's file format"),
    (r"test_overwrite", "each save is a separate step, so a save never overwrites another one"),
    (r"(CheckpointableReshard.*|with_uneven_shards|test_e2e_compile.*type1) 2$", "made for 4 ranks; " + TOO),
    (r"SharedTensor.*_shard_tensor.* 4$|WithCaching.* 4$", "made for 2 ranks; " + TOO),
    (r"HSDPCheckpoint.* 2$", "made for 4 ranks: on 2 torch has no DTensors; " + TOO),
    (r"zoc_True|no_memory_leak|test_no_cpu", "needs a GPU"),
    (r"fsdp1_and_load_with_fsdp2 |set_full_state_dict", "torch's FSDP gives no full state dict on the CPU; " + TOO),
    (r"2d_transformer_checkpoint_resume", "DTensor has no attention on the CPU; " + TOO),
]


def run_file(checkout, file, storage):
    """Returns the results of its tests, by test and ranks."""
    with tempfile.TemporaryDirectory(prefix="dcp-torch-") as scratch:
        environment = {**os.environ, "TMPDIR": scratch, "SUITE_MARK": f"{scratch}/mark", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, CHILD, f"{checkout}/test/distributed/{file}", FILES[file], storage],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            said, log = process.communicate(timeout=FILE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, log = process.communicate()
            log += f"\nended after {FILE_S} s"
        found = {(line["test"], line["ranks"]): line for line in map(json.loads, said.splitlines())}
        if process.returncode or not found:
            found["(the whole file)", 1] = {"result": "fail", "used": True, "why": log[-3000:]}
        return found


def reason_of(test, ranks):
    return next((why for pattern, why in REASONS if re.search(pattern, f"{test} {ranks}")), "")


def table(results):
    """Returns rows by file and test, and the results that differ from REASONS."""
    rows, wrong = {}, []
    for file in FILES:
        by_torch, by_libdcp = (results.get((file, storage), {}) for storage in ("torch", "libdcp"))
        nothing = {"result": "not run", "used": False, "why": ""}
        for test, ranks in sorted({**by_torch, **by_libdcp}):
            torchs, ours = by_torch.get((test, ranks), nothing), by_libdcp.get((test, ranks), nothing)
            if ours["result"] == "pass" and not ours["used"]:
                if not torchs["used"]:
                    continue  # it uses no storage
                ours = {**ours, "result": "another storage"}
            reason = reason_of(test, ranks)
            if (ours["result"] == "pass") == bool(reason):
                wrong.append(f"{file} {test} on {ranks}: {ours['result']}, {reason or 'without a reason'}\n"
                             + ours["why"])
            rows.setdefault((file, test, torchs["result"], ours["result"], reason), []).append(str(ranks))
    return rows, wrong


def main(checkout, word=""):
    version = re.match(r"[0-9.]+", pathlib.Path(checkout, "version.txt").read_text())[0].rstrip(".")
    here = torch.__version__.split("+")[0]
    if here != re.match(r"\d+\.\d+\.\d+", version)[0]:
        print(f"skipped: the checkout is of PyTorch {version}, and torch here is {here}")
        return 77
    runs = [(file, storage) for file in FILES if word in file for storage in ("torch", "libdcp")]
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(runs, pool.map(lambda run: run_file(checkout, *run), runs)))
    rows, wrong = table(results)
    passed = sum(len(ranks) for (_, _, _, ours, _), ranks in rows.items() if ours == "pass")
    print(f"With torch {here}: {passed} of {sum(map(len, rows.values()))} pass.\n\n"
          "| file | test | ranks | torch's storage | libdcp | reason |\n| --- | --- | --- | --- | --- | --- |")
    for (file, test, torchs, ours, reason), ranks in rows.items():
        print(f"| {file} | {test} | {', '.join(ranks)} | {torchs} | {ours} | {reason} |")
    for each in wrong:
        print(f"NOT AS EXPECTED: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
