# Declarations of pyturbo/sampler.h, and the class over it.

from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from pyturbo._core cimport raise_python


cdef extern from "pyturbo/sampler.h" namespace "pyturbo" nogil:
    cdef cppclass SamplerOptions:
        SamplerOptions()
        double temperature, top_p, min_p, repetition_penalty
        uint64_t top_k, repetition_window, seed

    cdef cppclass TokenLogprob:
        uint32_t token
        double logprob

    cdef cppclass NativeSampler "pyturbo::Sampler":
        NativeSampler(const SamplerOptions&) except +raise_python
        TokenLogprob sample(const float*, uint32_t) except +raise_python
        void accept(const uint32_t*, uint64_t) except +raise_python
        const SamplerOptions options

    vector[TokenLogprob] native_top_logprobs "pyturbo::top_logprobs"(const float*, uint32_t, uint32_t) \
        except +raise_python


cdef class Sampler:
    cdef unique_ptr[NativeSampler] handle

    cdef NativeSampler* native(self) except NULL
