from libcpp.memory cimport shared_ptr, weak_ptr

from pyturbo._core cimport NativeDevice, Storage


cdef class Device:
    cdef shared_ptr[NativeDevice] handle
    cdef dict kernels                # made so far, by name and constants
    cdef dict copies                 # of arrays that are constants, by address and bytes
    cdef object told                 # of progress

    cdef NativeDevice* native(self) except NULL


cdef class ArrayCopy:
    cdef object root                 # a weak reference to the array that owns the memory
    cdef weak_ptr[Storage] storage   # of the copy
