// A command queue whose command buffers do nothing and are done at once, for measuring the time of encoding.
#pragma once

#include "objects.h"

@interface SoftNullQueue : SoftLabelled <MTLCommandQueue>
@end
