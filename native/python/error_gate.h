// The one place where native exceptions become Python ones.
#pragma once

#include <Python.h>

#include <new>

#include "pyturbo/error.h"

namespace pyturbo::python {

// Exception classes of pyturbo.errors by ErrorKind, owned.
inline PyObject* error_classes[6] = {};

inline void set_error_class(ErrorKind kind, PyObject* type) {
  Py_INCREF(type);
  error_classes[int(kind)] = type;
}

// Called by Cython inside a catch block, with the GIL held.
inline void raise_python() {
  try {
    throw;
  } catch (const Error& error) {
    // A message may hold a path, in any encoding.
    if (PyObject* text = PyUnicode_DecodeFSDefault(error.what())) {
      PyErr_SetObject(error_classes[int(error.kind)], text);
      Py_DECREF(text);
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown native exception");
  }
}

}  // namespace pyturbo::python
