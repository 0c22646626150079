// Address spaces and function kinds do not exist in C++. `[[kernel]]` becomes the empty attribute.
#pragma once

#define kernel
#define device
#define constant
#define thread
#define threadgroup
#define METAL_FUNC inline
