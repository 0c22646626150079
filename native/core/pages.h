// Physical memory of pages that stay allocated.
#pragma once

#include <cstdint>

namespace pyturbo {

// Returns the size of the system's pages.
uint64_t page_bytes();

// Gives the physical memory of the whole pages in this part of an allocation back to the system; what they
// held is lost. Returns whether the system took it, which it refuses for locked pages.
bool give_back_pages(void* memory, uint64_t bytes);

// Takes such pages into use again, also those that only begin or end in this part. Called before they are
// written to; other pages stay as they are.
void reuse_pages(void* memory, uint64_t bytes);

}  // namespace pyturbo
