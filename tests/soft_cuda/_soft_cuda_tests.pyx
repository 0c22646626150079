"""The C++ cases of this folder, one by one, and what tests in Python ask of soft CUDA (soft_cuda.h)."""

from libc.stdint cimport uint32_t, uint64_t
from libcpp cimport bool
from libcpp.map cimport map
from libcpp.string cimport string
from libcpp.vector cimport vector


cdef extern from "native_test.h":
    cdef cppclass NativeCase:
        const char* name
        void (*run)() except + nogil
    vector[NativeCase]& native_cases()


cdef extern from "soft_cuda/soft_cuda.h" namespace "soft_cuda":
    cdef cppclass Violation:
        bool warning
        string text
    cdef struct Counters:
        uint64_t launches
        uint64_t groups
        uint64_t graph_launches
        uint64_t graphs
        uint64_t nodes
        uint64_t disabled_nodes
        uint64_t edges
        uint64_t needless_edges
        uint64_t early_edges
        uint64_t node_updates
        uint64_t compiled
        uint64_t loaded
        uint64_t copies_in
        uint64_t copies_out
        uint64_t registered
        uint64_t waits
        uint64_t allocations
    cdef struct Options:
        int capability
        int devices
        int multiprocessors
        int driver
        uint64_t memory
        uint32_t max_threads
        uint32_t max_shared_bytes
        uint32_t form_span
        uint32_t form_parts
        uint32_t form_bytes
        uint32_t form_threads
        uint32_t form_size
        bool read_only_register
        vector[int] archs
        uint64_t seed
    cpdef enum class Fault:
        allocation
        compile
        load
        load_memory
        refused
        instantiate
        launch
        slow
        slow_compile
        slow_instantiate
        slow_copy
        device_lost
    cdef cppclass Injection:
        Fault fault
        uint32_t after
        uint32_t times
        string text
        uint32_t milliseconds
    vector[Violation] native_violations "soft_cuda::violations"()
    Counters native_counters "soft_cuda::counters"()
    map[string, int] native_live_objects "soft_cuda::live_objects"()
    Options native_options "soft_cuda::options"()
    void native_set_options "soft_cuda::set_options"(const Options& options)
    void native_inject "soft_cuda::inject"(const Injection& injection)
    void native_reset "soft_cuda::reset"()

NAME = "soft CUDA"

include "../soft/control.pxi"
