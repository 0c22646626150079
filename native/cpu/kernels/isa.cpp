#include "cpu/kernels/isa.h"

#include <cstdlib>
#include <string_view>

#include "pyturbo/error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pyturbo::cpu {

#define PYTURBO_LEVEL(isa)            \
  namespace isa {                     \
  extern const FastKernel kKernels[]; \
  extern const uint32_t kKernelCount; \
  }

#if defined(__x86_64__)
PYTURBO_LEVEL(vnni)
PYTURBO_LEVEL(avx512)
PYTURBO_LEVEL(avx2)
#elif defined(__aarch64__)
PYTURBO_LEVEL(dotprod)
PYTURBO_LEVEL(neon)
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

std::vector<Isa> built() {
  return {
#if defined(__x86_64__)
      {"vnni", has_vnni, vnni::kKernels, vnni::kKernelCount},
      {"avx512", has_avx512, avx512::kKernels, avx512::kKernelCount},
      {"avx2", has_avx2, avx2::kKernels, avx2::kKernelCount},
#elif defined(__aarch64__)
      {"dotprod", has_dotprod, dotprod::kKernels, dotprod::kKernelCount},
      {"neon", has_neon, neon::kKernels, neon::kKernelCount},
#endif
  };
}

}  // namespace

std::vector<const Isa*> isa_levels() {
  static const std::vector<Isa>& all = *new std::vector<Isa>(built());
  std::vector<const Isa*> here;
  for (const Isa& isa : all)
    if (isa.available()) here.push_back(&isa);
  return here;
}

const Isa* choose_isa() {
  const std::vector<const Isa*> levels = isa_levels();
  const char* wanted = std::getenv("PYTURBO_ISA");
  if (!wanted || !*wanted) return levels.empty() ? nullptr : levels.front();
  std::string known;
  for (const Isa* isa : levels) {
    if (std::string_view(wanted) == isa->name) return isa;
    known += std::string(isa->name) + ", ";
  }
  if (std::string_view(wanted) == "none") return nullptr;
  throw Error(ErrorKind::argument, "PYTURBO_ISA: expected one of " + known + "none, got " + wanted);
}

}  // namespace pyturbo::cpu
