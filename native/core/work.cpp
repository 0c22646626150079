#include "pyturbo/work.h"

#include <string_view>
#include <unordered_map>
#include <vector>

namespace pyturbo {

namespace generated {
std::vector<KernelWork> pyturbo_works();
}

Work work_of(const KernelInfo& kernel, const Arguments& launch) {
  using Works = std::unordered_map<std::string_view, Work (*)(const KernelInfo&, const Arguments&)>;
  static const Works& stated = *[] {
    Works* works = new Works;
    for (const KernelWork& work : generated::pyturbo_works()) works->emplace(work.function, work.of);
    return works;
  }();
  const auto found = stated.find(kernel.function);
  return found == stated.end() ? Work{0, work::argument_bytes(kernel, launch)}
                               : found->second(kernel, launch);
}

}  // namespace pyturbo
