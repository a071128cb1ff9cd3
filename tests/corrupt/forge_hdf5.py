#!/usr/bin/env python3
"""forge_hdf5.py KIND STATE.H5 OUTSIDE: changes the HDF5 metadata of a state.h5 so that HDF5 would find circular links,
other files or filters, and corrects the user block's checksums. Tensor data, index, blocks and meta do not change.
OUTSIDE contains canary.h5 and canary.bin."""
import struct
import sys

import h5py
import numpy

PAGE = 4096
POLYNOMIAL = 0xC96C5795D7870F42  # reflected


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def crc64(data):
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFFFFFFFFFF


def aside(f, path):
    """Frees the name; the dataset remains, so its bytes are not used again."""
    f["/aside"] = f[path]
    del f[path]


def soft_cycle(f, _):
    f["/model/round"] = h5py.SoftLink("/model/about")
    f["/model/about"] = h5py.SoftLink("/model/round")
    aside(f, "/model/norm")
    f["/model/norm"] = h5py.SoftLink("/model/norm")


def hard_cycle(f, _):
    f["/model/self"] = f["/model"]
    f["/model/root"] = f["/"]
    aside(f, "/model/norm")
    f["/model/norm"] = f["/model"]


def external_link(f, outside):
    f["/model/linked"] = h5py.ExternalLink(outside + "/canary.h5", "/secret")
    aside(f, "/model/norm")
    f["/model/norm"] = h5py.ExternalLink(outside + "/canary.h5", "/secret")


def create(f, path, plist):
    space = h5py.h5s.create_simple((3,))
    return h5py.h5d.create(f.id, path, h5py.h5t.IEEE_F32LE, space, plist)


def external_storage(f, outside):
    aside(f, "/model/norm")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_external((outside + "/canary.bin").encode(), 0, 12)
    create(f, b"/model/norm", plist)


def virtual(f, outside):
    aside(f, "/model/norm")
    layout = h5py.VirtualLayout(shape=(3,), dtype="<f4")
    layout[:] = h5py.VirtualSource(outside + "/canary.h5", "secret", shape=(3,))
    f.create_virtual_dataset("/model/norm", layout)


def chunked(f, _):
    aside(f, "/model/norm")
    data = numpy.zeros(3, "<f4")
    f.create_dataset("/model/norm", data=data, chunks=(3,), compression="gzip")


def unknown_filter(f, _):
    aside(f, "/model/norm")
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((3,))
    plist.set_filter(40000, h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))
    create(f, b"/model/norm", plist)


def no_hdf5(_, __):
    """Handled below: the file has not even a superblock."""


def seal(path, kind):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        data += bytes(-len(data) % PAGE)
        rows, row_bytes, index = struct.unpack_from("<3Q", data, 24)
        if kind == "no_hdf5":
            data[PAGE:PAGE + 2048] = b"\xff" * 2048
        path_bytes = row_bytes - 100
        taken = sorted(
            struct.unpack_from("<2Q", data, index + i * row_bytes + path_bytes + 76) for i in range(rows))
        outside, at = bytearray(), PAGE
        for offset, length in taken + [(len(data), 0)]:
            if offset:
                outside += data[at:offset]
                at = offset + length
        struct.pack_into("<Q", data, 16, len(data))
        struct.pack_into("<Q", data, 112, crc64(outside))
        struct.pack_into("<Q", data, PAGE - 8, crc64(data[:PAGE - 8]))
        file.seek(0)
        file.write(data)


def main():
    kind, path, outside = sys.argv[1:]
    if kind != "no_hdf5":
        with h5py.File(path, "r+") as f:
            globals()[kind](f, outside)
    seal(path, kind)


main()
