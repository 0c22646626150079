#include "cpu/kernels/bodies.h"

#include <cstring>
#include <string_view>
#include <vector>

namespace pyturbo {

namespace generated {
std::vector<const KernelTable*> pyturbo_tables();
}

namespace cpu {
namespace {

// From the end of an instance's name, behind the name of its function: "_b4_bf16", "_mxfp4", "_f16".
Format format_of(const KernelInfo& kernel) {
  Format format;
  const std::string_view suffix = std::string_view(kernel.name).substr(std::strlen(kernel.function));
  if (suffix.starts_with("_b") && suffix.size() > 2 && suffix[2] >= '0' && suffix[2] <= '9')
    format.bits = uint32_t(suffix[2] - '0');
  if (suffix == "_mxfp4") return {4, DType::u8, 32};
  if (suffix == "_mxfp8") return {8, DType::u8, 32};
  if (suffix == "_nvfp4") return {4, DType::u8, 16};
  if (suffix.ends_with("_bf16"))
    format.type = DType::bf16;
  else if (suffix.ends_with("_f16"))
    format.type = DType::f16;
  return format;
}

bool same(const Extent& a, const Extent& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

}  // namespace

FastBodies::FastBodies(const Isa* isa) {
  if (!isa) return;
  for (const KernelTable* table : generated::pyturbo_tables()) {
    if (table->variant != Variant::reference) continue;
    for (uint32_t i = 0; i < table->count; ++i) {
      const KernelInfo& kernel = table->kernels[i];
      for (uint32_t j = 0; j < isa->count; ++j)
        if (std::strcmp(isa->kernels[j].function, kernel.function) == 0)
          bodies_[&kernel] = {isa->kernels[j].run, format_of(kernel)};
    }
  }
}

bool FastBodies::add(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch,
                     Precision precision, Batch& batch) const {
  const auto found = bodies_.find(&kernel);
  if (found == bodies_.end()) return false;
  Dispatch stated;
  kernel.dispatch(arguments, stated);
  if (!same(stated.groups, dispatch.groups) || !same(stated.threads, dispatch.threads)) return false;
  found->second.run({kernel, found->second.format, arguments, precision, batch});
  return true;
}

}  // namespace cpu
}  // namespace pyturbo
