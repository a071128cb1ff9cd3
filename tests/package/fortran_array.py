"""Checks what examples/fortran saved, as h5py reads it: u(i, j) is u[i - 1, j - 1], reversed u[j - 1, i - 1]."""
import sys

import h5py
import numpy

with h5py.File(sys.argv[1]) as f:
    u = numpy.fromfunction(lambda i, j: 1000 * (i + 1) + j + 1, (40, 101))
    assert numpy.array_equal(f["heat/u"], u)
    assert numpy.array_equal(f["heat/transposed"], u.T)
    assert list(f["heat/counts"]) == [1, 2, 3]
