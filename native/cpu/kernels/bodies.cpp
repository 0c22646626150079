// The table of one level: the bodies of every source that kernels.cmake lists.
#include "cpu/kernels/bodies.h"

#include "body_sources.h"

namespace pyturbo::cpu {

#define PYTURBO_DECLARE(stem) extern const BodyList stem##_bodies;
namespace PYTURBO_BASE {
PYTURBO_SHARED_SOURCES(PYTURBO_DECLARE)
}

namespace PYTURBO_LEVEL {

PYTURBO_OWN_SOURCES(PYTURBO_DECLARE)

#define PYTURBO_SHARED(stem) &PYTURBO_BASE::stem##_bodies,
#define PYTURBO_OWN(stem) &PYTURBO_LEVEL::stem##_bodies,
extern const BodyList* const kLists[] = {PYTURBO_SHARED_SOURCES(PYTURBO_SHARED)
                                             PYTURBO_OWN_SOURCES(PYTURBO_OWN) nullptr};

}  // namespace PYTURBO_LEVEL
}  // namespace pyturbo::cpu
