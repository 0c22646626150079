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
    cdef cppclass Counters:
        uint64_t command_buffers
        uint64_t encoders
        uint64_t dispatches
        uint64_t empty_dispatches
        uint64_t round_trips
        uint64_t barriers
        uint64_t needless_barriers
        uint64_t pipelines_compiled
        uint64_t pipelines_from_archive
        uint64_t libraries_from_source
        uint64_t resident
    cdef cppclass Options:
        uint64_t max_buffer_length
        uint32_t max_threadgroup_bytes
        uint32_t max_threads
        bool present
        bool counter_sampling
        bool residency_sets
        bool checked
    cdef enum class Fault:
        allocation
        library
        pipeline
        command_buffer
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


def cases():
    return [case.name.decode() for case in native_cases()]


def run(str name):
    for case in native_cases():
        if case.name.decode() == name:
            with nogil:
                case.run()
            return
    raise KeyError(name)


def violations():
    """The texts of what was done wrong since the last reset, without mere warnings."""
    return [violation.text.decode() for violation in native_violations() if not violation.warning]


def warnings():
    return [violation.text.decode() for violation in native_violations() if violation.warning]


def counters():
    """What happened since the last reset (soft_metal.h)."""
    cdef Counters now = native_counters()
    return {
        "command_buffers": now.command_buffers,
        "encoders": now.encoders,
        "dispatches": now.dispatches,
        "empty_dispatches": now.empty_dispatches,
        "round_trips": now.round_trips,
        "barriers": now.barriers,
        "needless_barriers": now.needless_barriers,
        "pipelines_compiled": now.pipelines_compiled,
        "pipelines_from_archive": now.pipelines_from_archive,
        "libraries_from_source": now.libraries_from_source,
        "resident": now.resident,
    }


def live_objects():
    return {name.decode(): count for name, count in native_live_objects()}


def set_options(**changes):
    """Changes the named options: max_buffer_length, checked and so on (soft_metal.h)."""
    cdef Options options = native_options()
    for name, value in changes.items():
        if name == "max_buffer_length":
            options.max_buffer_length = value
        elif name == "max_threadgroup_bytes":
            options.max_threadgroup_bytes = value
        elif name == "max_threads":
            options.max_threads = value
        elif name == "present":
            options.present = value
        elif name == "counter_sampling":
            options.counter_sampling = value
        elif name == "residency_sets":
            options.residency_sets = value
        elif name == "checked":
            options.checked = value
        else:
            raise TypeError(f"soft Metal has no option {name}")
    native_set_options(options)


_FAULTS = {
    "allocation": <int>Fault.allocation,
    "library": <int>Fault.library,
    "pipeline": <int>Fault.pipeline,
    "command_buffer": <int>Fault.command_buffer,
    "slow": <int>Fault.slow,
    "device_lost": <int>Fault.device_lost,
}


def inject(str fault, int after=0, int times=1, str text="", int milliseconds=0):
    cdef Injection injection
    injection.fault = <Fault><int>_FAULTS[fault]
    injection.after = after
    injection.times = times
    injection.text = text.encode()
    injection.milliseconds = milliseconds
    native_inject(injection)


def reset():
    native_reset()
