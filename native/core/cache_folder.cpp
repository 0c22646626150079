#include "core/cache_folder.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace pyturbo {

namespace fs = std::filesystem;

std::string cache_folder() {
  if (const char* named = std::getenv("PYTURBO_CACHE")) return named;
  const char* home = std::getenv("HOME");
  if (!home || !*home) return {};
#if defined(__APPLE__)
  return fs::path(home) / "Library" / "Caches" / "pyturbo";
#else
  const char* cache = std::getenv("XDG_CACHE_HOME");
  return (cache && *cache ? fs::path(cache) : fs::path(home) / ".cache") / "pyturbo";
#endif
}

std::string temporary_path(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + "." + std::to_string(::getpid()) + "." + std::to_string(count.fetch_add(1));
}

void remove_leftovers(const std::string& folder, const std::string& suffix) {
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    const auto place = name.rfind(suffix);
    int process = 0;
    unsigned number = 0;
    char more = 0;
    if (place == std::string::npos ||
        std::sscanf(name.c_str() + place + suffix.size(), ".%d.%u%c", &process, &number, &more) != 2)
      continue;
    std::error_code ignored;
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove(entry->path(), ignored);
  }
}

}  // namespace pyturbo
