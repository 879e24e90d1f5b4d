// Rotary positions, and the write of keys and values into a cache.

#ifndef GRAPHGEN_ROTATION_H_
#define GRAPHGEN_ROTATION_H_

#include <cstdint>

#include "cache_numbers.h"
#include "linear.h"
#include "task_pool.h"

namespace graphgen {

// out[place(b, s), h] = turned(x[b, s, offset + h · size ...])
//
// turned: of pairs (i, i + half), or of neighbours (2i, 2i + 1), for i < half: first · cos -
// second · sin and second · cos + first · sin, in f32; elements from 2 · half on stay. The place of
// a row is b · active + s, or of a cache row ids[b], slot slots[b, s]; what lies outside of the
// cache is dropped. A cache of 8 bits is given what is turned, rounded to out_type, over its scale,
// between -limit and limit. A row scale is that of each head of a row: its largest magnitude over
// the limit, at least the smallest normal number; it stands behind the codes, as 0 for zeros.
struct Rotation {
  int64_t batch;   // B
  int64_t active;  // S
  int64_t heads;
  int64_t size;      // of a head
  int64_t half = 0;  // pairs; 0 leaves x as it is
  int64_t stride;    // from one row of x to the next
  int64_t offset;    // of the first head in a row of x
  bool neighbors = false;
  Type x_type;
  Type out_type;
  CacheNumbers numbers = CacheNumbers::kPlain;
  CacheScale scale;     // [], [heads] or [heads, size]
  float limit = 0.0f;   // not above the largest number
  bool row_scale = false;
  const void* x;
  const float* cos = nullptr;      // [B, S, half]
  const float* sin = nullptr;      // [B, S, half]
  const int32_t* ids = nullptr;    // [B]; null where the result is no cache
  const int32_t* slots = nullptr;  // [B, S]
  int64_t cache_rows = 0;
  int64_t cache_slots = 0;
  void* out = nullptr;

  // Where the row goes, -1 for nowhere.
  int64_t place(int64_t row) const {
    if (!ids) return row;
    const int64_t to = ids[row / active], slot = slots[row];
    const bool inside = to >= 0 && to < cache_rows && slot >= 0 && slot < cache_slots;
    return inside ? to * cache_slots + slot : -1;
  }
};

void RunRotation(const Rotation& rotation, const TaskPool& pool);

}  // namespace graphgen

#endif  // GRAPHGEN_ROTATION_H_
