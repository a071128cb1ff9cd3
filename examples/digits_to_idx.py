#!/usr/bin/env python3
"""Makes idx files for dcp-train's data.type "idx" from the 1,797 handwritten digits that come with scikit-learn: 8 x 8
pixels, ten classes; every fifth for evaluation. Needs scikit-learn (Debian: python3-sklearn; pip: scikit-learn).

    digits_to_idx.py OUT_FOLDER
"""
import os
import struct
import sys



def fail(status, why):
    print(f"digits_to_idx.py: {why}", file=sys.stderr)
    sys.exit(status)


def write(path, dims, elements):
    with open(path, "wb") as f:
        f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims))
        f.write(bytes(elements))


def write_parts(folder, images, labels):
    """Writes images, each of which is a list of rows of bytes, and their labels. Every fifth image is for
    evaluation."""
    os.makedirs(folder, exist_ok=True)
    for name, chosen in (("train", [i for i in range(len(images)) if i % 5]),
                         ("t10k", range(0, len(images), 5))):
        dims = len(chosen), len(images[0]), len(images[0][0])
        pixels = [pixel for i in chosen for row in images[i] for pixel in row]
        write(f"{folder}/{name}-images-idx3-ubyte", dims, pixels)
        write(f"{folder}/{name}-labels-idx1-ubyte", dims[:1], [labels[i] for i in chosen])
        print(f"{folder}/{name}-images-idx3-ubyte: {dims[0]} images, their labels beside")


def main():
    if len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        fail(2, __doc__)
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        fail(3, "needs scikit-learn: apt-get install python3-sklearn, or pip install scikit-learn")
    digits = load_digits()
    images = (digits.images * 255 / 16).round().astype("uint8")
    try:
        write_parts(sys.argv[1], images.tolist(), digits.target.tolist())
    except (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError) as e:
        fail(2, e)
    except OSError as e:
        fail(3, e)


if __name__ == "__main__":
    main()
