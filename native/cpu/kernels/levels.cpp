#include "cpu/kernels/levels.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "built_levels.h"
#include "cpu/kernels/available.h"
#include "pyturbo/error.h"

namespace pyturbo {

namespace generated {
std::vector<const KernelTable*> pyturbo_tables();
}

namespace cpu {

#define PYTURBO_TABLE(level)             \
  namespace level {                      \
  extern const BodyList* const kLists[]; \
  }

PYTURBO_LEVELS(PYTURBO_TABLE)

namespace {

// Best first, then a level without a name.
constexpr Level kBuilt[] = {
#define PYTURBO_ENTRY(level) {#level, has_##level, level::kLists},
    PYTURBO_LEVELS(PYTURBO_ENTRY){nullptr, nullptr, nullptr},
};

bool same(const Extent& a, const Extent& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

bool serves(const BodyForm& form, const KernelInfo& kernel) {
  for (uint32_t i = 0; i < kernel.parameter_count; ++i)
    if (form.types[i] != DType::raw && form.types[i] != kernel.parameters[i].type) return false;
  return true;
}

}  // namespace

RunBody Level::find(const KernelInfo& kernel) const {
  if (!kernel.dispatch) return nullptr;
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
