// The folder for files that can be made again, such as compiled kernels.
#pragma once

#include <string>

namespace pyturbo {

// Returns PYTURBO_CACHE if it is set (empty: no cache), else the user's folder for caches. Empty: there is
// none.
std::string cache_folder();

// Returns a path beside `path` for a file that is renamed to it when it is complete: the process and a number
// are appended.
std::string temporary_path(const std::string& path);

// Removes such files that processes which have ended left in a folder; `suffix` is how complete ones end. A
// process of another machine that shares the folder may lose the file it is writing, and makes it again.
void remove_leftovers(const std::string& folder, const std::string& suffix);

}  // namespace pyturbo
