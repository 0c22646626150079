// The one place where native exceptions become Python ones.
#pragma once

#include <Python.h>

#include <new>

#include "pyturbo/error.h"

namespace pyturbo::python {

// The class of pyturbo.errors for a kind of error.
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

// Sets the Python error; if that fails, the error of the failure stays set.
inline void set_error(ErrorKind kind, const char* message) {
  PyObject* module = PyImport_ImportModule("pyturbo.errors");
  PyObject* type = module ? PyObject_GetAttrString(module, error_class(kind)) : nullptr;
  PyObject* text = type ? PyUnicode_DecodeFSDefault(message) : nullptr;  // may hold a path, in any encoding
  if (text) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(module);
}

// Called by Cython inside a catch block, with the GIL held.
inline void raise_python() {
  try {
    throw;
  } catch (const Error& error) {
    set_error(error.kind, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown native exception");
  }
}

}  // namespace pyturbo::python
