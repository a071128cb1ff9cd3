#!/usr/bin/env python3
"""Makes an exported voice say the texts that it learned, in PyTorch (talker_model.py). Reports whether PyTorch computes
the same losses as dcp-train, and whether the voice says exactly the codes of the recordings; exits with 1 if not. The
stand-in codec makes sound from the codes.

    speak.py EXPORT RECORDS METRICS SOUNDS

EXPORT is the folder of a voice, RECORDS its training data, METRICS the metrics file of that training, whose last line
has losses of the same records, SOUNDS a folder for the output. Needs torch, safetensors and numpy."""
import json
import math
import os
import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends the program without a traceback
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import stand_in  # noqa: E402
import talker_model  # noqa: E402
import torch  # noqa: E402


def same_losses(model, records, metrics):
    with torch.no_grad():
        found = model.losses(records)[:2]
    with open(metrics, encoding="utf-8") as file:
        told = json.loads(file.readlines()[-1])["eval_losses"]
    same = True
    for name, loss in zip(("talker", "predictor"), map(float, found)):
        same &= math.isclose(loss, told[name], rel_tol=1e-4, abs_tol=1e-7)  # dcp-train sums in fp32
        print(f"  loss of the {name:9}  PyTorch {loss:.7g}  dcp-train {told[name]:.7g}")
    return same


def same_codes(model, codec, records, sounds):
    """Speaks all texts, and writes the sounds."""
    same = True
    for number, (text, codes, speaker) in enumerate(records, 1):
        said = talker_model.speak(model, text, speaker, 2 * len(codes))
        equal = said.shape == codes.shape and torch.equal(said, codes)
        same &= equal
        words = stand_in.text_of(text[talker_model.HEADER:].tolist())
        print(f"  {words[:40]:16} {len(said)} frames" + (f" and the end; all {codes.numel()} codes are the recording's"
                                                         if equal else ": not the recording's codes"))
        name = "".join(c if c.isalnum() else "_" for c in words[:40])
        stand_in.write_sound(os.path.join(sounds, f"{number}_{name}.wav"), codec.decode(said.numpy()))
    return same


def main():
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    folder, path, metrics, sounds = sys.argv[1:]
    os.makedirs(sounds, exist_ok=True)
    torch.set_num_threads(1)
    model = talker_model.read_folder(folder, torch.float64)
    (row,) = model.config["talker_config"]["spk_id"].values()
    voice = model.talker.model.codec_embedding.weight[row].detach()
    records = [(text, codes, voice) for text, codes, _ in talker_model.read_records(path)]
    losses = same_losses(model, records, metrics)
    codes = same_codes(model, stand_in.read_folder(folder), records, sounds)
    if not (losses and codes):
        sys.exit("speak.py: " + ("the codes differ" if losses else "the losses differ"))


if __name__ == "__main__":
    main()
