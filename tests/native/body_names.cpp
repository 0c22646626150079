#include "body_names.h"

#include "cpu/kernels/levels.h"

namespace pyturbo::generated {
std::vector<const KernelTable*> pyturbo_tables();
}

namespace {

using namespace pyturbo::cpu;

const Level* level_of(const std::string& name) {
  for (const Level* level : levels())
    if (name == level->name) return level;
  return nullptr;
}

}  // namespace

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  for (const Level* level : levels()) names.push_back(level->name);
  return names;
}

std::vector<std::string> body_names(const std::string& level) {
  std::vector<std::string> names;
  const Level* found = level_of(level);
  for (const BodyList* const* list = found ? found->lists : nullptr; list && *list; ++list)
    for (uint32_t i = 0; i < (*list)->count; ++i) names.push_back((*list)->bodies[i].function);
  return names;
}

std::vector<std::string> body_instances(const std::string& level) {
  std::vector<std::string> names;
  const Level* found = level_of(level);
  if (!found) return names;
  for (const pyturbo::KernelTable* table : pyturbo::generated::pyturbo_tables())
    for (uint32_t i = 0; table->variant == pyturbo::Variant::reference && i < table->count; ++i)
      if (found->find(table->kernels[i])) names.push_back(table->kernels[i].name);
  return names;
}
