"""A ViT is trained on scikit-learn's handwritten digits, as in the example, and evaluated on the fifth of them
that it has not seen."""
import json
import os
import sys

import numpy
import sklearn  # noqa: F401  the script in examples takes it: its lack is told at the start
import torch
from transformers import ViTForImageClassification

from .shared import ROOT, judge, run, tool, train

TARGET = 0.95
LOSS_TARGET = 1e-4


def read_idx(path, header):
    with open(path, "rb") as f:
        return numpy.frombuffer(f.read()[header:], dtype=numpy.uint8)


def peer_marks(exported, folder):
    """Returns the loss and accuracy that transformers finds for the exported model."""
    images = read_idx(os.path.join(folder, "t10k-images-idx3-ubyte"), 16).reshape(-1, 1, 8, 8)
    labels = torch.tensor(read_idx(os.path.join(folder, "t10k-labels-idx1-ubyte"), 8)).long()
    model = ViTForImageClassification.from_pretrained(exported).eval()
    with torch.no_grad():
        out = model(pixel_values=torch.tensor(images).float() / 255, labels=labels)
    return out.loss.item(), (out.logits.argmax(-1) == labels).float().mean().item(), len(labels)


def show(scratch):
    examples, folder = os.path.join(ROOT, "examples"), os.path.join(scratch, "digits")
    run(sys.executable, os.path.join(examples, "digits_to_idx.py"), folder)
    with open(os.path.join(examples, "configs/vit-digits.json")) as f:
        config = json.load(f)
    lines = train(scratch, "vit", config)
    last = lines[-1]
    tool("dcp-export", os.path.join(scratch, "vit"), os.path.join(scratch, "exported"))
    loss, accuracy, n = peer_marks(os.path.join(scratch, "exported"), folder)
    print(f"{len(lines)} steps, loss {lines[0]['loss']:.3f} to {last['loss']:.3f}; on {n} digits not trained on:")
    print(f"{'':24}{'loss':>10}{'accuracy':>10}")
    print(f"{'dcp-train':24}{last['eval_loss']:10.5f}{last['eval_accuracy']:10.4f}")
    print(f"{'transformers, of export':24}{loss:10.5f}{accuracy:10.4f}")
    off = abs(last["eval_loss"] / loss - 1)
    return all([judge(f"accuracy over {TARGET}", f"{last['eval_accuracy']:.4f}", last["eval_accuracy"] > TARGET),
                judge("the same marks by transformers", f"loss off by {off:.1e}",
                      off < LOSS_TARGET and abs(accuracy - last["eval_accuracy"]) < 1e-6)])
