# Declarations of the native headers.

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, weak_ptr
from libcpp.optional cimport optional
from libcpp.string cimport string
from libcpp.utility cimport pair
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector


cdef extern from "python/error_gate.h" namespace "pyturbo::python" nogil:
    void raise_python()


cdef extern from "pyturbo/kernel.h" namespace "pyturbo" nogil:
    cdef cppclass Extent:
        uint32_t x, y, z

    cdef cppclass Dispatch:
        Extent groups, threads

    enum class DType(uint8_t):
        f32, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, boolean, raw

    enum class ArgumentKind(uint8_t):
        buffer, value, threadgroup

    cdef cppclass ArgumentInfo:
        const char* name
        const char* type
        ArgumentKind kind
        cbool writable
        DType dtype
        uint32_t index, size, alignment, components
        int32_t condition

    cdef cppclass ConstantInfo:
        const char* name
        DType dtype
        uint32_t index, slot, size
        cbool required

    cdef cppclass Arguments:
        void** buffers
        uint64_t* bytes
        uint32_t* threadgroup_bytes
        const void** constants

    cdef cppclass KernelInfo:
        const char* name
        uint32_t argument_count
        const ArgumentInfo* arguments
        uint32_t constant_count
        const ConstantInfo* constants


cdef extern from "pyturbo/storage.h" namespace "pyturbo" nogil:
    const uint64_t kBufferAlignment

    cdef cppclass Storage:
        Storage(void*, uint64_t, cbool, shared_ptr[void])
        uint8_t* data()
        uint64_t bytes()
        cbool writable()
        cbool on_host()

    shared_ptr[Storage] allocate_storage(uint64_t) except +raise_python
    shared_ptr[Storage] map_file(int, const string&, uint64_t, int64_t) except +raise_python
    shared_ptr[Storage] map_file(const string&, uint64_t, int64_t) except +raise_python


cdef extern from "pyturbo/device.h" namespace "pyturbo" nogil:
    enum class HostMemory(uint8_t):
        any, pages, none

    cdef cppclass NativeTraits "pyturbo::Traits":
        uint32_t chunk, single, attention_blocks, attention_groups, product_groups, chunkwise_tokens
        uint32_t pass_experts, bucket_tokens, few_tokens, top_logits
        cbool fused
        HostMemory host_memory

    cdef cppclass DeviceKind "const pyturbo::DeviceKind":
        NativeTraits traits

    cdef cppclass NativeDeviceMemory "pyturbo::DeviceMemory":
        uint64_t total, free

    cdef cppclass Progress:
        pass

    cdef cppclass NativeDevice "pyturbo::Device":
        const string& name()
        const NativeTraits& traits()
        cbool closed()
        void require_open() except +raise_python
        void close() except +raise_python
        uint64_t longest_argument() except +raise_python
        uint64_t working_set() except +raise_python
        vector[pair[string, string]] properties() except +raise_python
        cbool use(Storage&, uint64_t, uint64_t) except +raise_python
        shared_ptr[Storage] constant(const shared_ptr[Storage]&, uint64_t, uint64_t) except +raise_python
        void synchronize() except +raise_python
        uint64_t mark() except +raise_python
        void wait(uint64_t) except +raise_python
        void set_progress(Progress)
        const KernelInfo& kernel(string_view) except +raise_python
        shared_ptr[Storage] allocate(uint64_t) except +raise_python
        shared_ptr[Storage] allocate_shared(uint64_t) except +raise_python
        void read(void*, const void*, uint64_t) except +raise_python
        void write(void*, const void*, uint64_t) except +raise_python
        void copy(void*, const void*, uint64_t) except +raise_python
        void clear(void*, uint64_t) except +raise_python
        pair[int32_t, int32_t] dlpack_device()
        optional[NativeDeviceMemory] own_memory() except +raise_python
        void launch(const KernelInfo&, const Arguments&, const Dispatch*) except +raise_python

    enum class Precision(uint8_t):
        standard, fast

    cdef cppclass DeviceOptions:
        unsigned threads
        cbool checked
        Precision precision

    vector[string] device_names() except +raise_python

    cdef cppclass MissingDevice:
        string name, reason
    vector[MissingDevice] missing_devices() except +raise_python
    shared_ptr[DeviceKind] find_device(string_view) except +raise_python
    shared_ptr[NativeDevice] open_device(string_view, const DeviceOptions&) except +raise_python


cdef extern from "pyturbo/mapped_file.h" namespace "pyturbo" nogil:
    cdef cppclass MappedFile:
        void require_unchanged() except +raise_python

    weak_ptr[MappedFile] mapped_file_at(const void*)
    void require_readable(const void*, uint64_t) except +raise_python


cdef extern from "pyturbo/process.h" namespace "pyturbo" nogil:
    void end_process() except +raise_python


cdef extern from "python/progress.h" namespace "pyturbo::python":
    Progress progress_to(object) except +raise_python


cdef extern from "python/owner.h" namespace "pyturbo::python":
    shared_ptr[void] hold(object) except +raise_python


cdef extern from "python/dlpack.h" namespace "pyturbo::python":
    const int kDlpackCpu
    object dlpack_capsule(object, void*, DType, const vector[int64_t]&, pair[int32_t, int32_t], cbool readonly,
                          cbool versioned) except +raise_python
