#include "cuda/modules.h"

#include <algorithm>
#include <vector>

#include "pyturbo/error.h"

namespace pyturbo::cuda {
namespace {

// Whether an image has a symbol: its table of names does. To ask the driver for one that is missing is an
// error.
bool has(const std::vector<char>& image, const std::string& symbol) {
  return std::search(image.begin(), image.end(), symbol.begin(), symbol.end()) != image.end();
}

}  // namespace

std::string Form::wrong(uint32_t max_threads) const {
  if (span == 0) return "expected a span of at least 1, got 0";
  if (parts == 0) return "expected parts of at least 1, got 0";
  if (threads > max_threads)
    return "expected at most " + std::to_string(max_threads) + " threads, got " + std::to_string(threads);
  return "";
}

Dispatch Form::of(Dispatch contract) const {
  contract.groups.x = (contract.groups.x / span + (contract.groups.x % span > 0)) * parts;
  if (threads > 0) contract.threads = {threads, 1, 1};
  return contract;
}

Modules::Modules(std::shared_ptr<Stream> stream, Precision precision)
    : stream_(std::move(stream)), compiler_(stream_->context()->capability(), precision) {}

Modules::~Modules() {
  if (!stream_->context()->opened_here()) return;
  try {
    const Current current(*stream_->context());
    for (const auto& [key, module] : modules_) stream_->driver().module_unload(module.handle);
  } catch (const Error&) {  // the context is broken, and its modules gone with it
  }
}

void Modules::prepare(std::span<const ReadyLaunch> launches,
                      const std::function<void(uint64_t done, uint64_t total)>& progress) {
  Function function;
  const auto known = [&](const InstanceKey& key) { return find(key, function); };
  if (unknown_instances(launches, known).empty()) return;
  const std::lock_guard lock(compiling_);
  const std::vector<Instance> wanted = unknown_instances(launches, known);
  std::vector<std::vector<char>> images(wanted.size());
  make_instances(wanted, progress, [&](size_t i, const Instance& instance) {
    images[i] = compiler_.image(*instance.key.first, instance.constants);
  });
  for (size_t i = 0; i < wanted.size(); ++i) load(wanted[i].key, images[i]);
}

Function Modules::get(const KernelInfo& kernel, const void* const* constants) {
  Function function;
  find(instance_key(kernel, constants), function);
  return function;
}

bool Modules::find(const InstanceKey& key, Function& function) {
  const std::lock_guard lock(mutex_);
  const auto known = modules_.find(key);
  if (known != modules_.end()) function = known->second.function;
  return known != modules_.end();
}

void Modules::load(const InstanceKey& key, const std::vector<char>& image) {
  const Driver& driver = stream_->driver();
  const std::string what = std::string(key.first->name) + ": the GPU cannot load it";
  Module module{};
  stream_->require(what, driver.module_load(&module.handle, image.data()));
  int threads = 0;
  Result result = driver.module_function(&module.function.handle, module.handle, key.first->name);
  if (result == Result::success)
    result =
        driver.function_attribute(&threads, FunctionAttribute::max_threads_per_block, module.function.handle);
  const std::string form = std::string(key.first->name) + "_form";
  module.function.max_threads = uint32_t(threads);
  std::string wrong;
  if (result == Result::success && has(image, form))
    result = take_form(module.handle, form, module.function, wrong);
  if (result != Result::success || !wrong.empty()) driver.module_unload(module.handle);
  stream_->require(what, result);
  if (!wrong.empty()) throw Error(ErrorKind::device, form + ": " + wrong);
  const std::lock_guard lock(mutex_);
  modules_.emplace(key, module);
}

Result Modules::take_form(ModuleHandle module, const std::string& symbol, Function& function,
                          std::string& wrong) {
  const Driver& driver = stream_->driver();
  Address place = 0;
  size_t bytes = 0;
  Result result = driver.module_global(&place, &bytes, module, symbol.c_str());
  if (result != Result::success) return result;
  if (bytes != sizeof(Form)) {
    wrong = "expected " + std::to_string(sizeof(Form)) + " bytes, got " + std::to_string(bytes);
    return result;
  }
  result = driver.copy_out(&function.form, place, sizeof(Form), stream_->handle());
  if (result == Result::success) result = driver.stream_wait(stream_->handle());
  if (result != Result::success) return result;
  wrong = function.form.wrong(function.max_threads);
  if (!wrong.empty() || function.form.shared_bytes == 0) return result;
  return driver.set_function_attribute(function.handle, FunctionAttribute::max_dynamic_shared_size_bytes,
                                       int(function.form.shared_bytes));
}

}  // namespace pyturbo::cuda
