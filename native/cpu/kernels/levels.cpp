#include "cpu/kernels/levels.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "pyturbo/error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pyturbo {

namespace generated {
std::vector<const KernelTable*> pyturbo_tables();
}

namespace cpu {

#define PYTURBO_TABLE(level)             \
  namespace level {                      \
  extern const BodyList* const kLists[]; \
  }

#if defined(__x86_64__)
PYTURBO_TABLE(vnni)
PYTURBO_TABLE(avx512)
PYTURBO_TABLE(avx2)
#elif defined(__aarch64__)
PYTURBO_TABLE(dotprod)
PYTURBO_TABLE(neon)
#endif

namespace {

#if defined(__x86_64__)
// Every processor with AVX2 and FMA has F16C, which not every compiler can ask for.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_vnni() {
  return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}
#elif defined(__aarch64__)
bool has_dotprod() {
#if defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has;
#elif defined(__linux__)
  constexpr unsigned long kDotProd = 1ul << 20;  // HWCAP_ASIMDDP
  return getauxval(AT_HWCAP) & kDotProd;
#else
  return false;
#endif
}
bool has_neon() { return true; }
#endif

// Best first, then a level without a name.
constexpr Level kBuilt[] = {
#if defined(__x86_64__)
    {"vnni", has_vnni, vnni::kLists},
    {"avx512", has_avx512, avx512::kLists},
    {"avx2", has_avx2, avx2::kLists},
#elif defined(__aarch64__)
    {"dotprod", has_dotprod, dotprod::kLists},
    {"neon", has_neon, neon::kLists},
#endif
    {nullptr, nullptr, nullptr},
};

bool same(const Extent& a, const Extent& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

bool serves(const BodyForm& form, const KernelInfo& kernel) {
  for (uint32_t i = 0; i < kernel.parameter_count; ++i)
    if (form.types[i] != DType::raw && form.types[i] != kernel.parameters[i].type) return false;
  return true;
}

}  // namespace

RunBody Level::find(const KernelInfo& kernel) const {
  for (const BodyList* const* list = lists; *list; ++list)
    for (uint32_t i = 0; i < (*list)->count; ++i) {
      const Body& body = (*list)->bodies[i];
      if (std::strcmp(body.function, kernel.function) != 0) continue;
      for (uint32_t form = 0; form < body.form_count; ++form)
        if (serves(body.forms[form], kernel)) return body.forms[form].run;
    }
  return nullptr;
}

std::vector<const Level*> levels() {
  std::vector<const Level*> here;
  for (const Level* level = kBuilt; level->name; ++level)
    if (level->available()) here.push_back(level);
  return here;
}

const Level* choose_level() {
  const std::vector<const Level*> here = levels();
  const char* wanted = std::getenv("PYTURBO_ISA");
  if (!wanted || !*wanted) return here.empty() ? nullptr : here.front();
  std::string known;
  for (const Level* level : here) {
    if (std::string_view(wanted) == level->name) return level;
    known += std::string(level->name) + ", ";
  }
  if (std::string_view(wanted) == "none") return nullptr;
  throw Error(ErrorKind::argument, "PYTURBO_ISA: expected one of " + known + "none, got " + wanted);
}

Bodies::Bodies(const Level* level) {
  if (!level) return;
  for (const KernelTable* table : generated::pyturbo_tables()) {
    if (table->variant != Variant::reference) continue;
    for (uint32_t i = 0; i < table->count; ++i)
      if (const RunBody run = level->find(table->kernels[i])) bodies_[&table->kernels[i]] = run;
  }
}

bool Bodies::add(const KernelInfo& kernel, const Arguments& arguments, const Dispatch& dispatch,
                 Batch& batch) const {
  const auto found = bodies_.find(&kernel);
  if (found == bodies_.end()) return false;
  Dispatch stated;
  kernel.dispatch(arguments, stated);
  if (!same(stated.groups, dispatch.groups) || !same(stated.threads, dispatch.threads)) return false;
  found->second(batch, kernel, arguments);
  return true;
}

}  // namespace cpu
}  // namespace pyturbo
