// SIGBUS: what the system sends a thread that reads a mapped page which its file no longer has.
#pragma once

namespace pyturbo {

// From now on such a page of a mapped file of ours reads as zeros (mapped_file.h). Any other SIGBUS goes to
// the handler that was there before. Called again, it puts our handler in front of one installed since.
void watch_bus_errors();

}  // namespace pyturbo
