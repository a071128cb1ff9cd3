"""Arrays in a device's memory, on the device that stands in for a GPU (tests/mpi/device/stand_in.h): if the CPU
accesses its memory, the process is killed. DCP_STAND_IN is that device as a library."""

import ctypes as c
import os
import pathlib
import tempfile
import unittest

import numpy as np

import libdcp
from libdcp import _devices

STAND_IN = os.environ.get("DCP_STAND_IN")
ROOM = 16 << 20


class Array:
    """An array on the device, described as CuPy and torch describe theirs."""

    def __init__(self, device, content, odd=0, **described):
        self._device, self._content, self.shape = device, content, content.shape
        self.address = device.stand_in_alloc(device.made, max(content.nbytes, 1), odd)
        self.__cuda_array_interface__ = {"shape": content.shape, "typestr": content.dtype.str,
                                         "data": (self.address, False), "version": 3, **described}
        device.stand_in_launch(device.made, self.address, content.ctypes.data, content.nbytes)

    def content(self):
        behind = self._device.stand_in_see(self._device.made, self.address)
        flat = np.ctypeslib.as_array((c.c_uint8 * self._content.nbytes).from_address(behind))
        return flat.view(self._content.dtype).reshape(self._content.shape)


@unittest.skipUnless(STAND_IN, "DCP_STAND_IN names no library")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = c.CDLL(STAND_IN)
        cls.device.stand_in_make.argtypes = [c.c_void_p, c.c_uint64]
        cls.device.stand_in_alloc.argtypes = [c.c_void_p, c.c_uint64, c.c_uint]
        cls.device.stand_in_alloc.restype = c.c_void_p
        cls.device.stand_in_see.argtypes = [c.c_void_p, c.c_void_p]
        cls.device.stand_in_see.restype = c.c_void_p
        cls.device.stand_in_launch.argtypes = [c.c_void_p, c.c_void_p, c.c_void_p, c.c_uint64]
        cls.device.made = c.create_string_buffer(4096)  # more than fits into its struct
        cls.device.stand_in_make(cls.device.made, ROOM)
        _devices.stand_in(0, c.cast(cls.device.made, c.c_void_p))

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-python-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.content = np.random.default_rng(3).standard_normal((1000, 700)).astype(np.float32)

    def test_save_and_load(self):
        saved = {"model": {"w": Array(self.device, self.content), "on_host": np.arange(5)},
                 "half": {"w": libdcp.Shard(Array(self.device, self.content[:400].astype(np.float16), odd=2), (400, 700),
                                            (0, 0))}}
        with libdcp.Store(self.dir) as store:
            saving = store.save_async(1, saved)
            saving.fence()
            # values of a new step, which the save must not see
            late = np.zeros_like(self.content)
            self.device.stand_in_launch(self.device.made, saved["model"]["w"].address, late.ctypes.data, late.nbytes)
            saving.wait()
        with libdcp.Checkpoint(self.dir) as checkpoint:
            np.testing.assert_array_equal(checkpoint["/model/w"], self.content)
            np.testing.assert_array_equal(checkpoint["/half/w"], self.content[:400].astype(np.float16))
        into = Array(self.device, np.zeros_like(self.content))
        libdcp.load(self.dir, {"model": {"w": into}}, strict=False)
        np.testing.assert_array_equal(into.content(), self.content)
        self.assertEqual(libdcp.prove({"model": {"w": into}}).crc["/model/w"],
                         libdcp.prove({"model": {"w": self.content}}).crc["/model/w"])

    def test_refused(self):
        for described, message in [({"strides": (4, 4000)}, r'state\["model"\]|not dense'),
                                   ({"mask": np.zeros(3)}, "mask"), ({"typestr": "<M8[s]"}, "no type")]:
            with self.subTest(described), self.assertRaisesRegex(TypeError, message):
                libdcp.save(self.dir, 1, {"model": {"w": Array(self.device, self.content, **described)}})


if __name__ == "__main__":
    unittest.main()
