# The extension classes, for other Cython modules: `from pyturbo._native cimport Kernel`.

from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, weak_ptr

from pyturbo._core cimport Arguments, Dispatch, DType, KernelInfo, MappedFile, NativeDevice, Storage


cdef enum:
    AXES = 32  # of a Buffer, at most


cdef class Device:
    cdef shared_ptr[NativeDevice] handle
    cdef dict kernels                # made so far, by name and constants
    cdef dict copies                 # of arrays that are constants, by address and bytes
    cdef object told                 # of progress

    cdef NativeDevice* native(self) except NULL


cdef class ArrayCopy:
    cdef object root                 # a weak reference to the array that owns the memory
    cdef weak_ptr[Storage] storage   # of the copy


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


cdef class Kernel:
    cdef shared_ptr[NativeDevice] device
    cdef const KernelInfo* info
    cdef Arguments defaults          # function constants bound, everything else empty
    cdef bytes constant_values       # what the constants of `defaults` point into

    # Runs one launch and waits for it. `arguments` starts as a copy of `defaults`; `dispatch` may be NULL when
    # the kernel states its own geometry. The caller keeps the memory alive.
    cdef int launch(self, const Arguments& arguments, const Dispatch* dispatch) except -1 nogil
