"""The Objective-C++ cases of this folder, one by one, and what tests in Python ask of soft Metal."""

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


cdef extern from "soft_metal/soft_metal.h" namespace "soft_metal":
    cdef cppclass Violation:
        bool warning
        string text
    cdef struct Counters:
        uint64_t command_buffers
        uint64_t made
        uint64_t dropped
        uint64_t encoders
        uint64_t dispatches
        uint64_t empty_dispatches
        uint64_t round_trips
        uint64_t barriers
        uint64_t needless_barriers
        uint64_t pipelines_compiled
        uint64_t pipelines_from_archive
        uint64_t libraries_from_source
        uint64_t residency_requests
        uint64_t resident
    cdef struct Options:
        uint64_t max_buffer_length
        uint64_t recommended_working_set
        uint32_t max_threadgroup_bytes
        uint32_t max_threads
        uint32_t gpu_cores
        bool present
        bool counter_sampling
        bool residency_sets
        bool checked
        bool does_nothing
    cpdef enum class Fault:
        allocation
        library
        pipeline
        command_buffer
        slow_pipeline
        slow_residency
        slow
        device_lost
    cdef cppclass Injection:
        Fault fault
        uint32_t after
        uint32_t times
        string text
        uint32_t milliseconds
    vector[Violation] native_violations "soft_metal::violations"()
    Counters native_counters "soft_metal::counters"()
    map[string, int] native_live_objects "soft_metal::live_objects"()
    Options native_options "soft_metal::options"()
    void native_set_options "soft_metal::set_options"(const Options& options)
    void native_inject "soft_metal::inject"(const Injection& injection)
    void native_reset "soft_metal::reset"()

NAME = "soft Metal"

include "../soft/control.pxi"
