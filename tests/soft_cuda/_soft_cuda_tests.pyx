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
        string text
    cdef cppclass Counters:
        uint64_t launches
        uint64_t graph_launches
        uint64_t graphs
        uint64_t nodes
        uint64_t disabled_nodes
        uint64_t edges
        uint64_t needless_edges
        uint64_t node_updates
        uint64_t compiled
        uint64_t loaded
        uint64_t copies_in
        uint64_t copies_out
        uint64_t registered
        uint64_t waits
        uint64_t allocations
    cdef cppclass Options:
        int capability
        int devices
        int driver
        uint64_t memory
        uint32_t max_threads
        uint32_t max_shared_bytes
        bool read_only_register
        vector[int] archs
        uint64_t seed
    cdef enum class Fault:
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
    """Return the texts of what was done wrong since the last reset."""
    return [violation.text.decode() for violation in native_violations()]


def warnings():
    """Return nothing: soft CUDA only knows violations."""
    return []


def counters():
    """Return what happened since the last reset."""
    cdef Counters now = native_counters()
    return {
        "launches": now.launches,
        "graph_launches": now.graph_launches,
        "graphs": now.graphs,
        "nodes": now.nodes,
        "disabled_nodes": now.disabled_nodes,
        "edges": now.edges,
        "needless_edges": now.needless_edges,
        "node_updates": now.node_updates,
        "compiled": now.compiled,
        "loaded": now.loaded,
        "copies_in": now.copies_in,
        "copies_out": now.copies_out,
        "registered": now.registered,
        "waits": now.waits,
        "allocations": now.allocations,
    }


def live_objects():
    return {name.decode(): count for name, count in native_live_objects()}


def set_options(**changes):
    """Change the named options: memory, capability and so on."""
    cdef Options options = native_options()
    for name, value in changes.items():
        if name == "capability":
            options.capability = value
        elif name == "devices":
            options.devices = value
        elif name == "driver":
            options.driver = value
        elif name == "memory":
            options.memory = value
        elif name == "max_threads":
            options.max_threads = value
        elif name == "max_shared_bytes":
            options.max_shared_bytes = value
        elif name == "read_only_register":
            options.read_only_register = value
        elif name == "archs":
            options.archs = value
        elif name == "seed":
            options.seed = value
        else:
            raise TypeError(f"soft CUDA has no option {name}")
    native_set_options(options)


_FAULTS = {
    "allocation": <int>Fault.allocation,
    "compile": <int>Fault.compile,
    "load": <int>Fault.load,
    "load_memory": <int>Fault.load_memory,
    "refused": <int>Fault.refused,
    "instantiate": <int>Fault.instantiate,
    "launch": <int>Fault.launch,
    "slow": <int>Fault.slow,
    "slow_compile": <int>Fault.slow_compile,
    "slow_instantiate": <int>Fault.slow_instantiate,
    "slow_copy": <int>Fault.slow_copy,
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
