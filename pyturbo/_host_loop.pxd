# Declarations of pyturbo/host_loop.h, and the class over it.

from libc.stdint cimport uint32_t
from libcpp.memory cimport shared_ptr


cdef extern from "pyturbo/host_loop.h" namespace "pyturbo" nogil:
    cdef cppclass NativeHostLoop "pyturbo::HostLoop":
        const uint32_t* missing()


cdef class HostLoop:
    cdef shared_ptr[NativeHostLoop] handle

    cdef NativeHostLoop* native(self) except NULL
