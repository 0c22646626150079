// A Python reference that native code can hold and drop on any thread.
#pragma once

#include <Python.h>

#include <memory>

namespace pyturbo::python {

// Takes a new reference; the last copy drops it, taking the GIL.
inline std::shared_ptr<void> hold(PyObject* object) {
  Py_INCREF(object);
  return {object, [](void* held) {
            if (!Py_IsInitialized()) return;
            const PyGILState_STATE state = PyGILState_Ensure();
            Py_DECREF(static_cast<PyObject*>(held));
            PyGILState_Release(state);
          }};
}

}  // namespace pyturbo::python
