// Which levels this machine has. Also compiled by itself when the build looks for them
// (available_levels.cpp).
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pyturbo::cpu {

// X(level) for all levels of this architecture, best first.
#if defined(__x86_64__)
#define PYTURBO_KNOWN_LEVELS(X) X(amx) X(vnni) X(avx512) X(avxvnni) X(avx2)
#elif defined(__aarch64__)
#define PYTURBO_KNOWN_LEVELS(X) X(i8mm) X(dotprod) X(neon)
#else
#define PYTURBO_KNOWN_LEVELS(X)
#endif

#if defined(__x86_64__)
// Every processor with AVX2 and FMA has F16C, which not every compiler can ask for.
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
inline bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
inline bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#if defined(__linux__)
// Linux lets a process use the tiles once it has asked, for all its threads and those it forks. It refuses
// where an alternate signal stack has no room for them.
inline bool has_amx() {
  constexpr unsigned kTiles = 1u << 24, kBfloats = 1u << 22;
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  return has_vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) && (d & kBfloats) &&
         syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#else
inline bool has_amx() { return false; }
#endif
// Not every compiler can ask for it by name.
inline bool has_avxvnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a, b, c, d;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni);
}
#elif defined(__aarch64__)
#if defined(__APPLE__)
inline bool has_feature(const char* name) {
  int has = 0;
  size_t size = sizeof has;
  return sysctlbyname(name, &has, &size, nullptr, 0) == 0 && has;
}
inline bool has_dotprod() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
inline bool has_i8mm() { return has_dotprod() && has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(__linux__)
// HWCAP_ASIMDDP and HWCAP2_I8MM, which not every header has.
inline bool has_dotprod() { return getauxval(AT_HWCAP) >> 20 & 1; }
inline bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); }
#else
inline bool has_dotprod() { return false; }
inline bool has_i8mm() { return false; }
#endif
inline bool has_neon() { return true; }
#endif

}  // namespace pyturbo::cpu
