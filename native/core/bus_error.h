// SIGBUS, which a thread receives when it reads a mapped page that the file no longer has.
#pragma once

namespace pyturbo {

// Installs a handler that makes such pages of our mapped files read as zeros (pyturbo/mapped_file.h) and
// passes every other SIGBUS to the handler before it. A further call reinstalls it if another handler
// replaced it. Any thread, no lock.
void watch_bus_errors();

}  // namespace pyturbo
