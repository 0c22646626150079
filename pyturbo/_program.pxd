# Declarations of pyturbo/program.h, and the class over it.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from pyturbo._core cimport ArgumentInfo, KernelInfo, NativeDevice, Storage, raise_python
from pyturbo._host_loop cimport NativeHostLoop


cdef extern from "pyturbo/program.h" namespace "pyturbo" nogil:
    cdef cppclass Term "pyturbo::Linear::Term":
        uint32_t symbol
        int64_t factor

    cdef cppclass NativeLinear "pyturbo::Linear":
        int64_t constant
        vector[Term] terms

    cdef cppclass MemoryRef:
        shared_ptr[Storage] storage
        uint64_t start, size
        uint32_t block
        NativeLinear offset
        uint64_t bytes
        int64_t end

    cdef cppclass RecordedArgument:
        RecordedArgument()
        uint32_t argument
        MemoryRef memory
        NativeLinear integer
        string bytes

    cdef cppclass Block:
        uint8_t* data
        uint64_t bytes

    cdef cppclass LaunchText:
        string label
        const char* kernel
        string arguments
        cbool waits, repeats

    cdef cppclass NativePart "pyturbo::Part":
        size_t begin, end
        double seconds

    cdef cppclass LoopText:
        uint64_t ask, begin, end

    cdef cppclass NativeLaunchRun "pyturbo::LaunchRun":
        uint64_t launch
        double begin, end

    cdef cppclass NativeHostCall "pyturbo::HostCall":
        uint64_t loop, number "pass"
        double begin, end

    cdef cppclass NativeTimeline "pyturbo::Timeline":
        double begin, end
        vector[NativeLaunchRun] runs
        vector[NativeHostCall] calls

    const uint64_t kOpen "pyturbo::LoopText::kOpen"

    cdef cppclass NativeStrand "pyturbo::Strand":
        NativeStrand()
        uint32_t when, group

    cdef cppclass NativeProgram "pyturbo::Program":
        NativeProgram(shared_ptr[NativeDevice], uint32_t symbols, uint32_t blocks)
        void add(const KernelInfo&, const void* const*, const vector[RecordedArgument]&, string label,
                 string text, NativeStrand strand) except +raise_python
        void run(const int64_t*, const Block*, cbool, NativeTimeline*, const int64_t* next) except +raise_python
        void prepare() except +raise_python
        void prepare(const int64_t*, const Block*) except +raise_python
        void ask(shared_ptr[NativeHostLoop]) except +raise_python
        void begin_passes() except +raise_python
        void end_passes() except +raise_python
        uint64_t size()
        vector[LaunchText] listing() except +raise_python
        vector[LoopText] loops() except +raise_python
        vector[NativePart] parts(const int64_t*, const Block*) except +raise_python


cdef class Cursor:
    cdef public int64_t position


cdef class Program:
    cdef unique_ptr[NativeProgram] handle
    cdef shared_ptr[NativeDevice] device
    cdef readonly tuple symbols
    cdef readonly tuple blocks
    cdef list kernels                # of all launches: they own the function constants

    cdef NativeProgram* native(self) except NULL
    cdef object _timed(self, str method, blocks, advance, dict symbols)
    cdef int _replay(self, str method, blocks, bint wait, advance, dict ahead, dict symbols,
                     NativeTimeline* timeline) except -1
    cdef NativeStrand _strand(self, when, group) except *
    cdef tuple _given(self, str method, blocks, dict symbols, vector[Block]* memory, vector[int64_t]* values)
    cdef int _bind_memory(self, str what, const ArgumentInfo* info, arg, MemoryRef* memory) except -1
    cdef int _read_linear(self, str what, linear, NativeLinear* out) except -1
