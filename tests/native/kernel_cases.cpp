// The registry of kernels: both variants share what is not code, and a name has one kernel.
#include "core/kernels.h"

#include <string>

#include "native_test.h"
#include "pyturbo/kernel.h"

namespace {

using namespace pyturbo;

void plain(const Arguments&, const Position&) {}
void checked(const Arguments&, const Position&) {}

KernelInfo kernel(const char* name, const char* file) {
  KernelInfo info{};
  info.name = name;
  info.file = file;
  info.body = plain;
  return info;
}

// A registry stays for the whole process: its lock is held across forks.
KernelRegistry& registry() { return *new KernelRegistry; }

NATIVE_TEST(checked_kernels_differ_in_their_bodies_alone) {
  static const KernelInfo kernels[] = {kernel("one", "a.metal"), kernel("two", "a.metal")};
  static constexpr KernelBody bodies[] = {checked, checked};
  static const KernelTable tables[] = {{Variant::reference, 2, kernels, nullptr},
                                       {Variant::checked, 2, kernels, bodies}};
  KernelRegistry& known = registry();
  for (const KernelTable& table : tables) known.add(table);
  CHECK(known.find("two", Variant::reference) == &kernels[1]);
  const KernelInfo* other = known.find("two", Variant::checked);
  CHECK(other != nullptr && other != &kernels[1]);
  CHECK(other->body == checked && other->file == kernels[1].file);
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
