#include "core/kernels.h"

#include <dlfcn.h>

#include <filesystem>

#include "pyturbo/error.h"

namespace pyturbo {

namespace generated {
std::vector<const KernelTable*> pyturbo_tables();
}

void KernelRegistry::add(const KernelTable& table) {
  std::lock_guard lock(mutex_);
  if (tables_.contains(&table)) return;
  auto& kernels = kernels_[size_t(table.variant)];
  for (uint32_t i = 0; i < table.count; ++i) {
    const KernelInfo& kernel = table.kernels[i];
    if (const auto known = kernels.find(kernel.name); known != kernels.end())
      throw Error(ErrorKind::argument, std::string("expected one kernel named ") + kernel.name +
                                           ", got one in " + known->second->file + " and one in " +
                                           kernel.file);
  }
  for (uint32_t i = 0; i < table.count; ++i) {
    const KernelInfo* kernel = &table.kernels[i];
    if (table.variant == Variant::checked) {
      checked_.push_back(*kernel);
      checked_.back().body = table.bodies[i];
      kernel = &checked_.back();
    }
    kernels.emplace(kernel->name, kernel);
  }
  tables_.insert(&table);
}

const KernelInfo* KernelRegistry::find(std::string_view name, Variant variant) const {
  std::lock_guard lock(mutex_);
  const auto& kernels = kernels_[size_t(variant)];
  const auto entry = kernels.find(name);
  return entry == kernels.end() ? nullptr : entry->second;
}

bool KernelRegistry::has(Variant variant) const {
  std::lock_guard lock(mutex_);
  return !kernels_[size_t(variant)].empty();
}

std::vector<std::string> KernelRegistry::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels_[size_t(Variant::reference)]) names.push_back(name);
  return names;
}

KernelRegistry& kernel_registry() {
  static KernelRegistry& instance = []() -> KernelRegistry& {
    KernelRegistry& kernels = *new KernelRegistry;
    for (const KernelTable* table : generated::pyturbo_tables()) kernels.add(*table);
    return kernels;
  }();
  return instance;
}

std::string kernels_folder() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&kernel_registry), &info);
  return info.dli_fname ? std::filesystem::path(info.dli_fname).parent_path().string() : "";
}

std::string constants_key(const KernelInfo& kernel, const void* const* constants) {
  std::string key;
  for (uint32_t i = 0; i < kernel.constant_count; ++i) {
    const ConstantInfo& info = kernel.constants[i];
    const void* value = constants[info.slot];
    key.push_back(value ? '=' : '-');
    if (value) key.append(static_cast<const char*>(value), info.size);
  }
  return key;
}

}  // namespace pyturbo
