// The table of one level: the bodies of every source that kernels.cmake lists.
#include "cpu/kernels/bodies.h"

#include "body_sources.h"

namespace pyturbo::cpu::PYTURBO_LEVEL {

#define PYTURBO_DECLARE(stem) extern const BodyList stem##_bodies;
PYTURBO_BODY_SOURCES(PYTURBO_DECLARE)

#define PYTURBO_LIST(stem) &stem##_bodies,
extern const BodyList* const kLists[] = {PYTURBO_BODY_SOURCES(PYTURBO_LIST) nullptr};

}  // namespace pyturbo::cpu::PYTURBO_LEVEL
