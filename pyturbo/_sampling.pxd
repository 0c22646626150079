# Declarations of pyturbo/sampler.h, and the class over it.

from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.optional cimport optional
from libcpp.vector cimport vector

from pyturbo._core cimport raise_python


cdef extern from "pyturbo/sampler.h" namespace "pyturbo" nogil:
    cdef cppclass TokenBias:
        uint32_t token
        double bias

    cdef cppclass SamplerOptions:
        SamplerOptions()
        double temperature, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold
        double repetition_penalty, presence_penalty, frequency_penalty, dry_multiplier, dry_base
        uint64_t top_k, repetition_window, dry_allowed_length, dry_window, seed
        vector[vector[uint32_t]] dry_breakers
        vector[TokenBias] logit_bias

    cdef cppclass TokenLogprob:
        uint32_t token
        double logprob

    cdef cppclass TokenLogit:
        uint32_t token
        float logit

    cdef cppclass NativeTopLogits "pyturbo::TopLogits":
        vector[TokenLogit] first
        uint32_t vocab
        float total

    cdef cppclass TokenMask:
        TokenMask()
        TokenMask(const uint32_t*, size_t)

    cdef cppclass Draw "pyturbo::Sampler::Draw":
        uint64_t top_k
        double top_p, min_p, temperature, number

    cdef cppclass NativeSampler "pyturbo::Sampler":
        NativeSampler(const SamplerOptions&) except +raise_python
        TokenLogprob sample(const float*, uint32_t, TokenMask) except +raise_python
        optional[TokenLogprob] sample(const NativeTopLogits&, TokenMask) except +raise_python
        void accept(const uint32_t*, uint64_t) except +raise_python
        optional[Draw] upcoming(uint64_t) except +raise_python
        const SamplerOptions options

    vector[TokenLogprob] native_top_logprobs "pyturbo::top_logprobs"(const float*, uint32_t, uint32_t) \
        except +raise_python
    optional[vector[TokenLogprob]] native_top_logprobs "pyturbo::top_logprobs"(const NativeTopLogits&, uint32_t) \
        except +raise_python


cdef class TopLogits:
    cdef NativeTopLogits native


cdef class Sampler:
    cdef unique_ptr[NativeSampler] handle

    cdef NativeSampler* native(self) except NULL
