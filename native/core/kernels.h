// The kernels known to this process, by name and variant.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pyturbo/kernel.h"
#include "pyturbo/process.h"

namespace pyturbo {

// Owner: the process (kernel_registry()), which never destroys it. Tables are static data of the library that
// adds them and are never removed. Any thread; one lock, held for look-ups and additions only.
class KernelRegistry {
 public:
  KernelRegistry() { hold_across_forks(mutex_); }

  // Throws Error{argument}, and adds nothing, when another table of the same variant has a kernel of the same
  // name. A table that has been added is left as it is.
  void add(const KernelTable& table);

  const KernelInfo* find(std::string_view name, Variant variant) const;  // null when absent

  bool has(Variant variant) const;  // any kernel of it

  std::vector<std::string> names() const;

 private:
  mutable std::mutex mutex_;
  std::set<const KernelTable*> tables_;
  std::deque<KernelInfo> checked_;                                    // with the bodies of that variant
  std::map<std::string, const KernelInfo*, std::less<>> kernels_[2];  // by variant
};

// Returns the registry, which holds the shaders of this package; other libraries may add theirs.
KernelRegistry& kernel_registry();

// Returns the folder of the library that holds the registry, beside which the texts of the kernels are.
std::string kernels_folder();

// Returns the values of all function constants of a kernel as bytes that identify a specialised kernel.
std::string constants_key(const KernelInfo& kernel, const void* const* constants);

}  // namespace pyturbo
