// The devices that are open in this process.
#pragma once

namespace pyturbo {

// Closes all of them: for the end of the process.
void close_devices();

}  // namespace pyturbo
