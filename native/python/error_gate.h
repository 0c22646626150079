// The one place where native exceptions become Python ones.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <new>

#include "pyturbo/error.h"
#include "pyturbo/process.h"

namespace pyturbo::python {

// Returns the name of the class in pyturbo.errors for a kind of error.
inline const char* error_class(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument:
      return "ArgumentError";
    case ErrorKind::device:
      return "DeviceError";
    case ErrorKind::state:
      return "StateError";
    case ErrorKind::format:
      return "FormatError";
    case ErrorKind::file:
      return "FileError";
    case ErrorKind::memory:
      return "AllocationError";
  }
  return "TurboError";
}

// Sets an exception of pyturbo.errors. If that fails, the exception of the failure stays set.
inline void set_error(const char* name, const char* message) {
  PyObject* module = PyImport_ImportModule("pyturbo.errors");
  PyObject* type = module ? PyObject_GetAttrString(module, name) : nullptr;
  PyObject* text = type ? PyUnicode_DecodeFSDefault(message) : nullptr;  // may hold a path, in any encoding
  if (text) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(module);
}

// Called by Cython inside a catch block, with the GIL held. While another thread ends the process, this
// thread sleeps until the end, as Python makes threads do that outlive the interpreter.
inline void raise_python() {
  if (process_ends_elsewhere()) {
    PyEval_SaveThread();
    for (;;) ::pause();
  }
  try {
    throw;
  } catch (const Error& error) {
    set_error(error_class(error.kind), error.what());
  } catch (const std::bad_alloc&) {
    set_error("AllocationError", "the process is out of memory");
  } catch (const std::exception& error) {
    set_error("TurboError", error.what());
  } catch (...) {
    set_error("TurboError", "a library that pyturbo calls failed and did not say why");
  }
}

}  // namespace pyturbo::python
