// The one exception type of the native code. Python maps each kind to a class of pyturbo.errors.
#pragma once

#include <stdexcept>
#include <string>

namespace pyturbo {

enum class ErrorKind {
  argument,  // the caller passed something wrong
  device,    // a kernel failed on its device
  state,     // the object is closed, or not ready for the call
  format,    // a file does not hold what it should
  file,      // a file cannot be opened, mapped or read
  memory,    // an allocation failed
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind(kind) {}
  ~Error() override;  // in libpyturbo, so that all libraries agree on the type

  const ErrorKind kind;
};

}  // namespace pyturbo
