"""The mark of exports in the headers of their safetensors files."""
import struct

MARK = b',"dcp-export":"format 1"'


def unmarked(path):
    """Returns the bytes that an export's file would have without its mark."""
    with open(path, "rb") as f:
        data = f.read()
    if data.count(MARK) != 1:
        raise AssertionError(f"{path}: not one mark")
    (length,) = struct.unpack("<Q", data[:8])
    return struct.pack("<Q", length - len(MARK)) + data[8:].replace(MARK, b"")
