#include "soft_case.h"

namespace soft_case {

Soft::Soft() {
  ContextHandle context;
  CHECK(cuInit(0) == Result::success);
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == Result::success);
  CHECK(cuCtxPushCurrent_v2(context) == Result::success);
  CHECK(cuStreamCreate(&stream_, kStreamNonBlocking) == Result::success);
}

Soft::~Soft() {
  ContextHandle context;
  cuStreamSynchronize(stream_);
  for (const ModuleHandle module : modules_) cuModuleUnload(module);
  for (const Address address : memory_) cuMemFree_v2(address);
  cuStreamDestroy_v2(stream_);
  cuCtxPopCurrent_v2(&context);
  cuDevicePrimaryCtxRelease_v2(0);
}

Address Soft::floats(uint32_t count, float value) {
  Address address = 0;
  CHECK(cuMemAlloc_v2(&address, count * sizeof(float)) == Result::success);
  memory_.push_back(address);
  const std::vector<float> values(count, value);
  CHECK(cuMemcpyHtoDAsync_v2(address, values.data(), count * sizeof(float), stream_) == Result::success);
  return address;
}

std::vector<float> Soft::read(Address address, uint32_t count) {
  std::vector<float> values(count);
  CHECK(cuMemcpyDtoHAsync_v2(values.data(), address, count * sizeof(float), stream_) == Result::success);
  CHECK(wait() == Result::success);
  return values;
}

int compile(const std::string& name, std::vector<std::string> options, std::string& out) {
  ProgramHandle program;
  const std::string text = "extern \"C\" __global__ void " + name + "();";
  CHECK_EQ(nvrtcCreateProgram(&program, text.c_str(), "case.cu", 0, nullptr, nullptr), 0);
  options.push_back("-DPT_INSTANCE_" + name);
  options.push_back("-arch=sm_90");
  std::vector<const char*> flags;
  for (const std::string& option : options) flags.push_back(option.c_str());
  const int result = nvrtcCompileProgram(program, int(flags.size()), flags.data());
  size_t bytes = 0;
  (result == 0 ? nvrtcGetCUBINSize : nvrtcGetProgramLogSize)(program, &bytes);
  out.resize(bytes);
  (result == 0 ? nvrtcGetCUBIN : nvrtcGetProgramLog)(program, out.data());
  CHECK_EQ(nvrtcDestroyProgram(&program), 0);
  return result;
}

FunctionHandle Soft::function(const char* name, const std::vector<std::string>& options) {
  std::string image;
  CHECK_EQ(compile(name, options, image), 0);
  ModuleHandle module;
  FunctionHandle function;
  CHECK(cuModuleLoadData(&module, image.data()) == Result::success);
  modules_.push_back(module);
  CHECK(cuModuleGetFunction(&function, module, name) == Result::success);
  return function;
}

Result Soft::launch(const KernelNode& node) {
  return cuLaunchKernel(node.function, node.groups_x, node.groups_y, node.groups_z, node.threads_x,
                        node.threads_y, node.threads_z, node.shared_bytes, stream_, node.parameters,
                        node.extra);
}

namespace {

std::vector<soft_cuda::Violation> run(const std::function<void(Soft&)>& body) {
  soft_cuda::reset();
  {
    Soft soft;
    body(soft);
  }
  const auto found = soft_cuda::violations();
  soft_cuda::reset();
  for (const auto& [name, count] : soft_cuda::live_objects())
    native_test::fail(__FILE__, __LINE__, std::to_string(count) + " of " + name + " are left");
  return found;
}

}  // namespace

void breaks(Rule rule, const std::function<void(Soft&)>& body) {
  const auto found = run(body);
  CHECK(!found.empty());
  for (const auto& violation : found)
    if (violation.rule != rule) native_test::fail(__FILE__, __LINE__, violation.text);
}

void keeps(const std::function<void(Soft&)>& body) {
  for (const auto& violation : run(body)) native_test::fail(__FILE__, __LINE__, violation.text);
}

}  // namespace soft_case
