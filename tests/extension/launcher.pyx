# A user's extension: it launches a kernel of the installed package from Cython, without the GIL.

from pyturbo._core cimport Arguments
from pyturbo._kernel cimport Kernel

cdef extern from "Python.h":
    int PyGILState_Check() nogil


def add_many(Kernel kernel, const float[::1] a, const float[::1] b, float[::1] out, int times):
    """out = a + b through the kernel `add`, `times` times; returns whether the GIL was held while launching."""
    cdef Arguments arguments = kernel.defaults
    cdef unsigned count = a.shape[0]
    cdef int held = 0, i
    arguments.buffers[0] = <void*>&a[0]
    arguments.buffers[1] = <void*>&b[0]
    arguments.buffers[2] = &out[0]
    arguments.buffers[3] = &count
    for i in range(3):
        arguments.bytes[i] = count * sizeof(float)
    arguments.bytes[3] = sizeof(count)
    with nogil:
        for i in range(times):
            held |= PyGILState_Check()
            kernel.launch(arguments, NULL)
    return held != 0
