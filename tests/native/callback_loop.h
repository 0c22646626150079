// A host loop whose work is a Python object, for tests.
#pragma once

#include <Python.h>

#include <memory>
#include <string>

#include "python/owner.h"
#include "pyturbo/error.h"
#include "pyturbo/host_loop.h"

// Calls the methods begin, next, finish and cancel of `object`. An exception becomes Error{file} with its
// text.
class CallbackLoop final : public pyturbo::HostLoop {
 public:
  CallbackLoop(PyObject* object, PyObject* memory, const uint32_t* missing)
      : object_(pyturbo::python::hold(object)), memory_(pyturbo::python::hold(memory)), missing_(missing) {}

  const uint32_t* missing() const override { return missing_; }
  void begin() override { call("begin"); }
  bool next() override { return call("next"); }
  void finish() override { call("finish"); }
  void cancel() override { call("cancel"); }

 private:
  // Returns whether the result is true.
  bool call(const char* method) {
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject* result = PyObject_CallMethod(static_cast<PyObject*>(object_.get()), method, nullptr);
    const bool truth = result && PyObject_IsTrue(result) == 1;
    std::string text;
    if (!result) {
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyObject* shown = value ? PyObject_Str(value) : nullptr;
      const char* words = shown ? PyUnicode_AsUTF8(shown) : nullptr;
      text = words ? words : "an exception without a text";
      PyErr_Clear();
      for (PyObject* each : {shown, type, value, trace}) Py_XDECREF(each);
    }
    Py_XDECREF(result);
    PyGILState_Release(state);
    if (!text.empty()) throw pyturbo::Error(pyturbo::ErrorKind::file, text);
    return truth;
  }

  const std::shared_ptr<void> object_, memory_;
  const uint32_t* const missing_;
};

inline std::shared_ptr<pyturbo::HostLoop> callback_loop(PyObject* object, PyObject* memory,
                                                        const void* missing) {
  return std::make_shared<CallbackLoop>(object, memory, static_cast<const uint32_t*>(missing));
}
