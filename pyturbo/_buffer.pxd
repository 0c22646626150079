from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, weak_ptr

from pyturbo._core cimport DType, MappedFile, NativeDevice, Storage


cdef enum:
    AXES = 32  # of a Buffer, at most


cdef class Buffer:
    cdef shared_ptr[Storage] storage
    cdef shared_ptr[NativeDevice] home  # whose memory it is, if the host cannot touch it; else NULL
    cdef weak_ptr[NativeDevice] user    # the device that has allocated it, if the host can touch it
    cdef unsigned char* address      # of the first byte shown
    cdef readonly uint64_t nbytes
    cdef DType code
    cdef cbool writable
    cdef readonly tuple shape
    cdef Py_ssize_t[AXES] extents    # shape and strides for the buffer protocol
    cdef Py_ssize_t[AXES] strides
    cdef object __weakref__

    # Notes that launches of the device will touch it.
    cdef int use_on(self, NativeDevice* device) except -1


cdef class FileWatch:
    cdef weak_ptr[MappedFile] file


cdef Buffer show(const shared_ptr[Storage]& storage, uint64_t offset, tuple shape, int code)
cdef Buffer at_home(Buffer buffer, const shared_ptr[NativeDevice]& device)
cdef Buffer wrap(source)
