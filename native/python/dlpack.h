// DLPack capsules over memory of the host or of a device, in the published C layouts of DLPack 0.x and 1.x.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/owner.h"
#include "pyturbo/kernel.h"

namespace pyturbo::python {

inline constexpr int kDlpackCpu = 1;

using DlpackDevice = std::pair<int32_t, int32_t>;  // type and number

struct DlpackTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;  // of one element
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // null: row-major
  uint64_t byte_offset;
};

struct DlpackManaged {
  DlpackTensor tensor;
  void* context;
  void (*deleter)(DlpackManaged*);
};

struct DlpackVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlpackVersioned*);
  uint64_t flags;  // bit 0: read-only
  DlpackTensor tensor;
};

struct DlpackElement {
  uint8_t code, bits;
};

inline DlpackElement dlpack_element(DType dtype) {
  constexpr uint8_t kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6;
  switch (dtype) {
    case DType::f32:
      return {kFloat, 32};
    case DType::f16:
      return {kFloat, 16};
    case DType::bf16:
      return {kBfloat, 16};
    case DType::i8:
      return {kInt, 8};
    case DType::i16:
      return {kInt, 16};
    case DType::u16:
      return {kUInt, 16};
    case DType::i32:
      return {kInt, 32};
    case DType::u32:
      return {kUInt, 32};
    case DType::i64:
      return {kInt, 64};
    case DType::u64:
      return {kUInt, 64};
    case DType::boolean:
      return {kBool, 8};
    case DType::u8:
    case DType::raw:
      break;
  }
  return {kUInt, 8};
}

template <typename Managed>
struct DlpackHolder {
  Managed managed;
  std::vector<int64_t> shape;
  std::shared_ptr<void> owner;

  static void release(Managed* managed) { delete static_cast<DlpackHolder*>(managed->context); }

  // Frees a capsule that nobody consumed; a consumer renames the capsule.
  static void discard(PyObject* capsule) {
    const char* name = std::is_same_v<Managed, DlpackVersioned> ? "dltensor_versioned" : "dltensor";
    if (PyCapsule_IsValid(capsule, name)) release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, name)));
  }
};

template <typename Managed>
PyObject* make_dlpack(PyObject* owner, void* data, DType dtype, const std::vector<int64_t>& shape,
                      DlpackDevice device, bool readonly) {
  auto* holder = new DlpackHolder<Managed>{Managed{}, shape, hold(owner)};
  const DlpackElement element = dlpack_element(dtype);
  holder->managed.tensor = {.data = data,
                            .device_type = device.first,
                            .device_id = device.second,
                            .ndim = int32_t(shape.size()),
                            .code = element.code,
                            .bits = element.bits,
                            .lanes = 1,
                            .shape = holder->shape.data(),
                            .strides = nullptr,
                            .byte_offset = 0};
  holder->managed.context = holder;
  holder->managed.deleter = DlpackHolder<Managed>::release;
  const char* name = "dltensor";
  if constexpr (std::is_same_v<Managed, DlpackVersioned>) {
    holder->managed.major = 1;
    holder->managed.minor = 0;
    holder->managed.flags = readonly ? 1 : 0;
    name = "dltensor_versioned";
  }
  PyObject* capsule = PyCapsule_New(&holder->managed, name, DlpackHolder<Managed>::discard);
  if (!capsule) DlpackHolder<Managed>::release(&holder->managed);
  return capsule;
}

// Returns a new capsule that keeps `owner` alive, or null with a Python error set. The layout is row-major.
inline PyObject* dlpack_capsule(PyObject* owner, void* data, DType dtype, const std::vector<int64_t>& shape,
                                DlpackDevice device, bool readonly, bool versioned) {
  return versioned ? make_dlpack<DlpackVersioned>(owner, data, dtype, shape, device, readonly)
                   : make_dlpack<DlpackManaged>(owner, data, dtype, shape, device, readonly);
}

}  // namespace pyturbo::python
