#include "body_names.h"

#include "cpu/kernels/levels.h"

std::vector<std::string> body_names(const std::string& level) {
  std::vector<std::string> names;
  for (const pyturbo::cpu::Level* each : pyturbo::cpu::levels()) {
    if (level != each->name) continue;
    for (const pyturbo::cpu::BodyList* const* list = each->lists; *list; ++list)
      for (uint32_t i = 0; i < (*list)->count; ++i) names.push_back((*list)->bodies[i].function);
  }
  return names;
}
