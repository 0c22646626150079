# For extensions that launch kernels themselves: `from pyturbo._kernel cimport Kernel`.

from libcpp.memory cimport shared_ptr

from pyturbo._core cimport Arguments, Dispatch, KernelInfo, NativeDevice


cdef class Kernel:
    cdef shared_ptr[NativeDevice] device
    cdef const KernelInfo* info
    cdef Arguments defaults          # function constants bound, everything else empty
    cdef bytes constant_values       # what the constants of `defaults` point into

    # Runs one launch and waits for it. `arguments` starts as a copy of `defaults`; `dispatch` may be NULL when
    # the kernel states its own geometry. The caller keeps the memory alive.
    cdef int launch(self, const Arguments& arguments, const Dispatch* dispatch) except -1 nogil


cdef Kernel find_kernel(const shared_ptr[NativeDevice]& device, str name, dict constants)
