// NVRTC, as native/cuda/nvrtc.h declares it.
#include "cuda/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>

#include "control.h"
#include "handles.h"
#include "image.h"

using namespace pyturbo::cuda;
namespace soft = soft_cuda;

namespace {

constexpr int kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5, kCompilation = 6;

struct Program {
  std::string text;
  std::string log;
  std::string image;
};

auto& programs() {
  static auto& instance = *new soft::Handles<Program>("program");
  return instance;
}

bool starts_with(const std::string& text, const char* head, std::string& rest) {
  if (text.rfind(head, 0) != 0) return false;
  rest = text.substr(std::strlen(head));
  return true;
}

// Reads one option; false for one that the device has no reason to pass.
bool take(const std::string& option, soft::Image& image) {
  std::string rest;
  if (starts_with(option, "-DPT_INSTANCE_", rest)) {
    image.kernel = rest;
  } else if (starts_with(option, "-arch=", rest)) {
    image.architecture = rest;
  } else if (option == "-DPT_FAST") {
    image.fast = true;
  } else if (starts_with(option, "-DPT_C", rest)) {
    const size_t equals = rest.find('=');
    image.constants[uint32_t(std::stoul(rest))] = std::stoull(rest.substr(equals + 1));
  } else {
    for (const char* known : {"-std=c++20", "-default-device", "-fmad=false", "-fmad=true", "-DPT_PORTABLE"})
      if (option == known) return true;
    return false;
  }
  return true;
}

}  // namespace

#define SOFT_NVRTC_DECLARE(result, name, symbol, parameters) extern "C" result symbol parameters;
PYTURBO_NVRTC_FUNCTIONS(SOFT_NVRTC_DECLARE)
#undef SOFT_NVRTC_DECLARE

const char* nvrtcGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "NVRTC_SUCCESS";
    case kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    default:
      return "NVRTC_ERROR_INVALID_INPUT";
  }
}

// A copy of this library under the name libnvrtc.so.<major> is of that version.
int nvrtcVersion(int* major, int* minor) {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&nvrtcVersion), &info);
  std::string suffix;
  const std::string name = info.dli_fname ? std::filesystem::path(info.dli_fname).filename().string() : "";
  *major = starts_with(name, "libnvrtc.so.", suffix) ? std::stoi(suffix) : 13;
  *minor = 0;
  return kSuccess;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = int(soft::options().archs.size());
  return kSuccess;
}

int nvrtcGetSupportedArchs(int* archs) {
  const auto known = soft::options().archs;
  std::copy(known.begin(), known.end(), archs);
  return kSuccess;
}

int nvrtcCreateProgram(ProgramHandle* program, const char* text, const char*, int headers,
                       const char* const* texts, const char* const* names) {
  if (!text || headers < 0 || (headers > 0 && (!texts || !names))) return kInvalidInput;
  auto made = std::make_shared<Program>();
  made->text = text;
  *program = static_cast<ProgramHandle>(programs().add(made));
  return kSuccess;
}

int nvrtcDestroyProgram(ProgramHandle* program) {
  const bool known = programs().remove(*program) != nullptr;
  *program = nullptr;
  return known ? kSuccess : kInvalidProgram;
}

int nvrtcCompileProgram(ProgramHandle handle, int count, const char* const* options) {
  const auto program = programs().get(handle);
  if (!program) return kInvalidProgram;
  soft::Image image;
  int minor;
  nvrtcVersion(&image.major, &minor);
  for (int i = 0; i < count; ++i)
    if (!take(options[i], image)) {
      soft::violate(soft::Rule::compile_options, std::string("expected a known option, got ") + options[i]);
      return kInvalidOption;
    }
  soft::slow_down(soft::Fault::slow_compile);
  if (const auto fault = soft::take_fault(soft::Fault::compile)) {
    program->log = fault->text;
    return kCompilation;
  }
  if (const std::string wrong = soft::wrong_constants(image); !wrong.empty()) {
    soft::violate(soft::Rule::compile_options, wrong);
    program->log = wrong;
    return kCompilation;
  }
  if (!std::regex_search(program->text, std::regex("\\b" + image.kernel + "\\b"))) {
    program->log = "error: the text has no " + image.kernel;
    return kCompilation;
  }
  soft::count(&soft::Counters::compiled);
  image.has_form = soft::options().form_bytes > 0;
  program->image = soft::image_text(image);
  return kSuccess;
}

int nvrtcGetProgramLogSize(ProgramHandle handle, size_t* bytes) {
  const auto program = programs().get(handle);
  if (!program) return kInvalidProgram;
  *bytes = program->log.size() + 1;
  return kSuccess;
}

int nvrtcGetProgramLog(ProgramHandle handle, char* log) {
  const auto program = programs().get(handle);
  if (!program) return kInvalidProgram;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

int nvrtcGetPTXSize(ProgramHandle handle, size_t* bytes) { return nvrtcGetCUBINSize(handle, bytes); }

int nvrtcGetPTX(ProgramHandle handle, char* ptx) { return nvrtcGetCUBIN(handle, ptx); }

int nvrtcGetCUBINSize(ProgramHandle handle, size_t* bytes) {
  const auto program = programs().get(handle);
  if (!program) return kInvalidProgram;
  *bytes = program->image.size() + 1;
  return kSuccess;
}

int nvrtcGetCUBIN(ProgramHandle handle, char* cubin) {
  const auto program = programs().get(handle);
  if (!program) return kInvalidProgram;
  std::memcpy(cubin, program->image.c_str(), program->image.size() + 1);
  return kSuccess;
}
