// Progress of a device, told to a Python callable.
#pragma once

#include <Python.h>

#include "python/owner.h"
#include "pyturbo/device.h"

namespace pyturbo::python {

// Returns a function that calls `callable` with "kernels" or "weights", how much is done, and the total. What
// it raises goes to sys.unraisablehook: the work of a device does not end halfway. None: an empty function.
inline Progress progress_to(PyObject* callable) {
  if (callable == Py_None) return nullptr;
  return [held = hold(callable)](Preparation what, uint64_t done, uint64_t total) {
    if (!Py_IsInitialized()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject* const called = static_cast<PyObject*>(held.get());
    PyObject* const result =
        PyObject_CallFunction(called, "sKK", what == Preparation::kernels ? "kernels" : "weights",
                              static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
    if (!result) PyErr_WriteUnraisable(called);
    Py_XDECREF(result);
    PyGILState_Release(state);
  };
}

}  // namespace pyturbo::python
