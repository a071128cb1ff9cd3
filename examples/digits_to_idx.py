#!/usr/bin/env python3
"""Makes idx files for dcp-train's data.type "idx" from the 1,797 handwritten digits that come with
scikit-learn: 8 x 8 pixels, ten classes; every fifth for evaluation. Needs scikit-learn (Debian:
python3-sklearn; pip: scikit-learn).

    digits_to_idx.py OUT_FOLDER
"""
import os
import struct
import sys

if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("digits_to_idx.py: needs scikit-learn: apt-get install python3-sklearn, or pip install scikit-learn")


def write(path, dims, elements):
    with open(path, "wb") as f:
        f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims))
        f.write(bytes(elements))


digits = load_digits()
images = (digits.images * 255 / 16).round().astype("uint8")
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
for name, chosen in (("train", [i for i in range(len(images)) if i % 5]),
                     ("t10k", range(0, len(images), 5))):
    part = images[list(chosen)]
    write(f"{folder}/{name}-images-idx3-ubyte", part.shape, part.tobytes())
    write(f"{folder}/{name}-labels-idx1-ubyte", part.shape[:1], digits.target[list(chosen)].tolist())
    print(f"{folder}/{name}-images-idx3-ubyte: {len(part)} images, their labels beside")
