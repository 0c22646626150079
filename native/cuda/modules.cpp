#include "cuda/modules.h"

#include <thread>
#include <vector>

#include "core/at_once.h"
#include "core/kernels.h"
#include "pyturbo/error.h"

namespace pyturbo::cuda {
Modules::Modules(std::shared_ptr<Stream> stream)
    : stream_(std::move(stream)), compiler_(stream_->context()->capability()) {}

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
  std::map<Key, const void* const*> wanted;
  Function function;
  for (const ReadyLaunch& launch : launches) {
    Key key{launch.kernel, constants_key(*launch.kernel, launch.arguments->constants)};
    if (!find(key, function)) wanted.emplace(std::move(key), launch.arguments->constants);
  }
  if (wanted.empty()) return;
  const std::lock_guard lock(compiling_);
  std::erase_if(wanted, [&](const auto& entry) { return find(entry.first, function); });
  const std::vector<std::pair<Key, const void* const*>> list(wanted.begin(), wanted.end());
  std::vector<std::vector<char>> images(list.size());
  std::mutex counting;  // guards `done`
  uint64_t done = 0;
  at_once(std::thread::hardware_concurrency(), list.size(), [&](size_t i) {
    images[i] = compiler_.image(*list[i].first.first, list[i].second);
    const std::lock_guard lock(counting);
    progress(++done, list.size());
  });
  for (size_t i = 0; i < list.size(); ++i) load(list[i].first, images[i]);
}

Function Modules::get(const KernelInfo& kernel, const void* const* constants) {
  Function function;
  find({&kernel, constants_key(kernel, constants)}, function);
  return function;
}

bool Modules::find(const Key& key, Function& function) {
  const std::lock_guard lock(mutex_);
  const auto known = modules_.find(key);
  if (known != modules_.end()) function = known->second.function;
  return known != modules_.end();
}

void Modules::load(const Key& key, const std::vector<char>& image) {
  const Driver& driver = stream_->driver();
  const std::string what = std::string(key.first->name) + ": the GPU cannot load it";
  Module module{};
  stream_->require(what, driver.module_load(&module.handle, image.data()));
  int threads = 0;
  Result result = driver.module_function(&module.function.handle, module.handle, key.first->name);
  if (result == Result::success)
    result =
        driver.function_attribute(&threads, FunctionAttribute::max_threads_per_block, module.function.handle);
  if (result != Result::success) driver.module_unload(module.handle);
  stream_->require(what, result);
  module.function.max_threads = uint32_t(threads);
  const std::lock_guard lock(mutex_);
  modules_.emplace(key, module);
}

}  // namespace pyturbo::cuda
