"""The C++ cases of this folder, one by one; once imported, the kernels of tests/shaders are known to every device.

A process that imports this and aborts shows its native stack.
"""

from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from pyturbo._core cimport raise_python
from pyturbo._host_loop cimport HostLoop, NativeHostLoop
from pyturbo._buffer cimport Buffer


cdef extern from "native_test.h":
    cdef cppclass NativeCase:
        const char* name
    vector[NativeCase]& native_cases()
    void run_native_case(const string& name) except + nogil
    void register_test_kernels() except +
    void show_stack_on_abort()


cdef extern from "body_names.h":
    vector[string] level_names() except +
    vector[string] body_names(const string& level) except +
    vector[string] body_instances(const string& level) except +


cdef extern from "callback_loop.h":
    shared_ptr[NativeHostLoop] callback_loop(object, object, const void*) except +


cdef extern from "read_faults.h" nogil:
    void set_read_faults(const string&, int64_t, uint64_t, uint64_t) except +
    void clear_read_faults()
    uint64_t faulty_reads()
    void loop_begin(NativeHostLoop*) except +raise_python
    cbool loop_next(NativeHostLoop*) except +raise_python
    void loop_finish(NativeHostLoop*) except +raise_python
    void loop_cancel(NativeHostLoop*) except +raise_python


cdef class CallbackLoop(HostLoop):
    """A host loop that calls begin, next, finish and cancel of a Python object. `missing` is the memory of the count."""

    def __cinit__(self, work, Buffer missing not None):
        self.handle = callback_loop(work, missing, missing.address)


def cases():
    return [case.name.decode() for case in native_cases()]


def run(str name):
    cdef string native_name = name.encode()
    with nogil:
        run_native_case(native_name)


def bodies(str level):
    """The shader functions that a processor level has a CPU body for."""
    return [name.decode() for name in body_names(level.encode())]


def instances(str level):
    """The kernels, by host name, that a device at a processor level runs by a CPU body."""
    return [name.decode() for name in body_instances(level.encode())]


def levels():
    """The processor levels of this machine, best first."""
    return [name.decode() for name in level_names()]


def fail_reads(str kind, int64_t value=0, uint64_t first=0, uint64_t count=2**63):
    """Make reads of record files go wrong; read_faults.h lists the kinds."""
    set_read_faults(kind.encode(), value, first, count)


def plain_reads():
    """Undo fail_reads(). Return the number of reads since then."""
    clear_read_faults()
    return faulty_reads()


def begin(HostLoop loop not None):
    """Call the loop's begin(), as a device does in a replay."""
    with nogil:
        loop_begin(loop.handle.get())


def next_pass(HostLoop loop not None):
    cdef cbool more
    with nogil:
        more = loop_next(loop.handle.get())
    return more


def finish(HostLoop loop not None):
    with nogil:
        loop_finish(loop.handle.get())


def cancel(HostLoop loop not None):
    with nogil:
        loop_cancel(loop.handle.get())


register_test_kernels()
show_stack_on_abort()
