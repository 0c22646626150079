// Where the records of a store go.
#pragma once

#include <cstdint>

namespace pyturbo::experts {

// One loop at a time: hold() for each slot of its first pass, then take(), and for each taken slot drop(), or
// keep() and later release().
// Owner: a store, under its lock.
class Places {
 public:
  static constexpr int32_t kNone = -1;

  virtual ~Places() = default;

  // The expert in this slot has a new score.
  virtual void used(int32_t slot) = 0;
  // Holds a slot that the first pass uses, until release(). Its expert may have a new score.
  virtual void hold(int32_t slot) = 0;
  // Returns a slot for an expert, which is held until drop() or release(); kNone: all are held for now.
  virtual int32_t take(uint32_t layer, uint32_t expert) = 0;
  // Returns a slot for an expert that will be used soon: perhaps, or almost certainly; kNone: there is none.
  enum class Hope { perhaps, surely };
  virtual int32_t take_ahead(uint32_t layer, uint32_t expert, Hope hope) = 0;
  // Returns how many slots may be held for experts that will almost certainly be used soon.
  virtual uint32_t most_ahead() const = 0;
  virtual uint8_t* memory(uint32_t layer, int32_t slot) const = 0;
  // Called when the record is complete. Returns whether it stays after its pass.
  virtual bool keep(int32_t slot) = 0;
  // The record did not come: the slot is empty.
  virtual void drop(int32_t slot) = 0;
  // The pass is done.
  virtual void release(int32_t slot) = 0;
  // Uses that many slots from now on, which no loop holds, `staging` of them for experts that are not kept,
  // and gives the memory of the others back, unless the system refuses it.
  virtual void resize(uint32_t slots, uint32_t staging) = 0;
  // Returns whether resize() has nothing to do; it has while the system keeps memory that was given back.
  virtual bool is_sized(uint32_t slots, uint32_t staging) const = 0;
  virtual uint32_t slots() const = 0;
  // Returns how many slots take memory: those that have been read into, until the system has taken their
  // memory back.
  virtual uint32_t filled() const = 0;
};

}  // namespace pyturbo::experts
