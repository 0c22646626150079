// NVRTC, the compiler library of CUDA, opened when a kernel must be compiled. Its types and symbols follow
// NVIDIA's documented ABI. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace pyturbo::cuda {

using ProgramHandle = struct _nvrtcProgram*;

// nvrtcResult: 0 is success.
#define PYTURBO_NVRTC_FUNCTIONS(X)                                                                       \
  X(const char*, error_string, nvrtcGetErrorString, (int result))                                        \
  X(int, version, nvrtcVersion, (int* major, int* minor))                                                \
  X(int, arch_count, nvrtcGetNumSupportedArchs, (int* count))                                            \
  X(int, archs, nvrtcGetSupportedArchs, (int* archs))                                                    \
  X(int, create, nvrtcCreateProgram,                                                                     \
    (ProgramHandle * program, const char* text, const char* name, int headers, const char* const* texts, \
     const char* const* names))                                                                          \
  X(int, destroy, nvrtcDestroyProgram, (ProgramHandle * program))                                        \
  X(int, compile, nvrtcCompileProgram, (ProgramHandle program, int count, const char* const* options))   \
  X(int, log_size, nvrtcGetProgramLogSize, (ProgramHandle program, size_t* bytes))                       \
  X(int, log, nvrtcGetProgramLog, (ProgramHandle program, char* log))                                    \
  X(int, ptx_size, nvrtcGetPTXSize, (ProgramHandle program, size_t* bytes))                              \
  X(int, ptx, nvrtcGetPTX, (ProgramHandle program, char* ptx))                                           \
  X(int, cubin_size, nvrtcGetCUBINSize, (ProgramHandle program, size_t* bytes))                          \
  X(int, cubin, nvrtcGetCUBIN, (ProgramHandle program, char* cubin))

struct Nvrtc {
#define PYTURBO_NVRTC_MEMBER(result, name, symbol, parameters) result(*name) parameters;
  PYTURBO_NVRTC_FUNCTIONS(PYTURBO_NVRTC_MEMBER)
#undef PYTURBO_NVRTC_MEMBER
};

// What came of opening the library, which is done once: the one that PYTURBO_NVRTC names if that is set, else
// the newest whose major version the driver supports, from a package beside this one or from the system. The
// driver must be open.
struct OpenedNvrtc {
  const Nvrtc* nvrtc;   // null: there is none
  std::string missing;  // says why
  std::string path;     // as it was opened
};
const OpenedNvrtc& opened_nvrtc();

}  // namespace pyturbo::cuda
