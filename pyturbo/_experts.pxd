# Declarations of pyturbo/expert_store.h, and the class over it.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from pyturbo._core cimport Storage, raise_python
from pyturbo._host_loop cimport NativeHostLoop


cdef extern from "pyturbo/expert_store.h" namespace "pyturbo" nogil:
    const uint64_t kDirectAlignment
    const uint32_t kExpertRows

    cdef cppclass ExpertFile:
        ExpertFile()
        string path
        uint32_t experts

    cdef cppclass MappedExperts:
        MappedExperts()
        shared_ptr[Storage] storage
        const uint8_t* records
        uint32_t experts

    cdef cppclass ExpertTables:
        shared_ptr[Storage] storage
        int32_t* rows
        uint32_t padded

    cdef cppclass ExpertSlab:
        shared_ptr[Storage] storage
        uint8_t* data
        uint32_t slots

    cdef cppclass ExpertStoreOptions:
        uint64_t stride, split
        uint32_t threads
        cbool direct
        double half_life
        uint32_t top_k, staging, pass_experts

    cdef cppclass ExpertCounters:
        uint64_t requests, hits, misses, guessed, bytes, reads
        double read_seconds, wait_seconds

    cdef cppclass ExpertRead:
        uint32_t layer, expert
        cbool ahead
        double begin, end

    cdef cppclass NativeExpertStore "pyturbo::ExpertStore":
        uint32_t layers()
        shared_ptr[NativeHostLoop] loop(uint32_t, int32_t) except +raise_python
        vector[ExpertCounters] counters() except +raise_python
        void reset_counters() except +raise_python
        vector[ExpertRead] trace(cbool) except +raise_python
        cbool direct() except +raise_python
        cbool closed()
        void resize(uint32_t, uint32_t) except +raise_python
        uint32_t slots() except +raise_python
        uint32_t filled() except +raise_python
        void require_unchanged() except +raise_python
        void close() except +raise_python

    shared_ptr[NativeExpertStore] open_expert_store(const vector[ExpertFile]&, const ExpertSlab&, const ExpertTables&,
                                                    const ExpertStoreOptions&) except +raise_python
    shared_ptr[NativeExpertStore] map_expert_store(const vector[MappedExperts]&, const ExpertTables&,
                                                   const ExpertStoreOptions&) except +raise_python

    cdef cppclass ExpertPlace:
        uint32_t layer, expert

    cdef cppclass ExpertBursts:
        vector[double] seconds
        cbool direct

    ExpertBursts time_expert_reads(const vector[ExpertFile]&, const ExpertSlab&, const vector[ExpertPlace]&,
                                   const ExpertStoreOptions&, double) except +raise_python


cdef class ExpertStore:
    cdef shared_ptr[NativeExpertStore] handle

    cdef NativeExpertStore* native(self) except NULL
