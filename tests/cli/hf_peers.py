"""Reads folders with transformers and with safetensors' own reader. Importing this continues in the Python
environment PEERS_VENV (made by tests/bench/peers.sh), if it exists; exits with 77 without transformers."""
import os, sys

venv = os.environ.get("PEERS_VENV") or os.path.expanduser(
    os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/libdcp-peers")
if os.path.exists(f"{venv}/bin/python") and sys.prefix != os.path.realpath(venv) and "HF_CHILD" not in os.environ:
    os.environ["HF_CHILD"] = "1"
    os.execv(f"{venv}/bin/python", [f"{venv}/bin/python", *sys.argv])
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="warning")
try:
    import torch, transformers, safetensors
except ImportError as e:
    print(f"skipped: {e}; PEERS_VENV names a Python environment that has it")
    sys.exit(77)
import glob, logging, warnings
from hf_folder import check


class Heard(logging.Handler):
    """Warnings of transformers and Python."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []
        transformers.logging.get_logger("transformers").addHandler(self)
        warnings.showwarning = lambda message, *rest: self.lines.append(str(message))
        warnings.simplefilter("always")

    def emit(self, record):
        self.lines.append(record.getMessage())


def tensors(path):
    """Reads tensors with safetensors' own reader. Returns name to dtype, shape and bytes."""
    found = {}
    for file in sorted(glob.glob(f"{path}/model*.safetensors")):
        with safetensors.safe_open(file, "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name)
                check(name not in found, f"{name} twice")
                found[name] = t.dtype, t.shape, t.contiguous().view(torch.uint8).numpy().tobytes() if t.ndim else t
    return found


def load(cls, path, heard):
    heard.lines.clear()
    model, info = cls.from_pretrained(path, output_loading_info=True)
    check(not heard.lines, f"{path}: {heard.lines}")
    check(not any(info.values()), f"{path}: {info}")
    return model
