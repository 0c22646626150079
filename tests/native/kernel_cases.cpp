// The registry of kernels: both variants share what is not code, and a name has one kernel.
#include "core/kernels.h"

#include <string>

#include "native_test.h"
#include "pyturbo/kernel.h"

namespace {

using namespace pyturbo;

template <int number>
void body(const Arguments&, const Position&) {
  static volatile int last = 0;
  last = number;
}

KernelInfo kernel(const char* name, const char* file, uint32_t line = 0) {
  KernelInfo info{};
  info.name = name;
  info.file = file;
  info.line = line;
  info.max_threads = 10 * line;
  info.body = body<0>;
  return info;
}

// A registry stays for the whole process: its lock is held across forks.
KernelRegistry& registry() { return *new KernelRegistry; }

NATIVE_TEST(checked_kernels_differ_in_their_bodies_alone) {
  static const KernelInfo kernels[] = {kernel("one", "a.metal", 3), kernel("two", "a.metal", 5)};
  static constexpr KernelBody bodies[] = {body<1>, body<2>};
  static const KernelTable tables[] = {{Variant::reference, 2, kernels, nullptr},
                                       {Variant::checked, 2, kernels, bodies}};
  KernelRegistry& known = registry();
  for (const KernelTable& table : tables) known.add(table);
  for (int i = 0; i < 2; ++i) {
    const KernelInfo* own = known.find(kernels[i].name, Variant::reference);
    CHECK(own == &kernels[i] && own->body == body<0>);
    const KernelInfo* other = known.find(kernels[i].name, Variant::checked);
    CHECK(other != nullptr && other->body == bodies[i]);
    CHECK(other->name == own->name && other->file == own->file);
    CHECK_EQ(other->line, own->line);
    CHECK_EQ(other->max_threads, own->max_threads);
  }
  const KernelInfo* other = known.find("two", Variant::checked);
  for (const KernelTable& table : tables) known.add(table);  // as before
  CHECK(known.find("two", Variant::checked) == other);
  CHECK_EQ(known.names().size(), size_t(2));
}

NATIVE_TEST(a_name_has_one_kernel) {
  static const KernelInfo first[] = {kernel("one", "a.metal")};
  static const KernelInfo second[] = {kernel("new", "b.metal"), kernel("one", "b.metal")};
  static const KernelTable table = {Variant::reference, 1, first, nullptr};
  static const KernelTable other = {Variant::reference, 2, second, nullptr};
  KernelRegistry& known = registry();
  known.add(table);
  for (int times = 0; times < 2; ++times) {
    CHECK_THROWS(known.add(other), "expected one kernel named one, got one in a.metal and one in b.metal");
    CHECK(known.find("new", Variant::reference) == nullptr);
  }
}

}  // namespace
