#include "pyturbo/error.h"

namespace pyturbo {

Error::~Error() = default;

}  // namespace pyturbo
