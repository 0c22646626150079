// The one place where native exceptions become Python ones.
#pragma once

#include <Python.h>

#include <new>

#include "pyturbo/error.h"

namespace pyturbo::python {

// Exception classes of pyturbo.errors by ErrorKind; borrowed from the module, which lives as long as the
// process.
inline PyObject* error_classes[6] = {};

inline void set_error_class(ErrorKind kind, PyObject* type) { error_classes[int(kind)] = type; }

// Called by Cython inside a catch block, with the GIL held.
inline void raise_python() {
  try {
    throw;
  } catch (const Error& error) {
    PyErr_SetString(error_classes[int(error.kind)], error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

}  // namespace pyturbo::python
