// Attention over a cache.

#ifndef GRAPHGEN_ATTENTION_H_
#define GRAPHGEN_ATTENTION_H_

#include <cstdint>

#include "cache_numbers.h"
#include "linear.h"
#include "task_pool.h"

namespace graphgen {

// out[b, s, h] = sum over c of softmax(scores[b, s, h])[c] · value[row(b), c, h / (H / K)]
//
// scores = scale · q[b, s, h] · key[row(b), c, h / (H / K)], then softcap · tanh(scores / softcap)
// where softcap is not 0; the lowest f32 where mask[b, s, c] is false. A sink is one more score of
// a head without a value. row(b) is rows[b] within the cache, or b. Scores and softmax are f32;
// the weights are rounded to the type. Keys and values are numbers of the cache times their scales.
struct Attention {
  int64_t batch;        // B
  int64_t active;       // S
  int64_t heads;        // H
  int64_t kv_heads;     // K
  int64_t size;         // D, of queries and keys
  int64_t width;        // W, of values
  int64_t attended;     // C
  int64_t cache_rows;   // R
  int64_t cache_slots;  // M, at least C
  Type type;
  CacheNumbers numbers = CacheNumbers::kPlain;
  CacheScale key_scale;    // [], [K] or [K, D]
  CacheScale value_scale;  // [], [K] or [K, W]
  // Whether the f32 scale of each key and value stands behind its 8-bit numbers.
  bool row_scale = false;
  float scale;
  float softcap = 0.0f;
  const void* query;              // [B, S, H, D]
  const void* key;                // [R, M, K, D]
  const void* value;              // [R, M, K, W]
  const uint8_t* mask;            // [B, S, C]
  const int32_t* rows = nullptr;  // [B]
  const float* sinks = nullptr;   // [H]
  void* out = nullptr;            // [B, S, H, W]

  int64_t group() const { return heads / kv_heads; }

  int64_t row(int64_t b) const {
    if (!rows) return b;
    const int64_t last = cache_rows - 1;
    return rows[b] < 0 ? 0 : rows[b] > last ? last : rows[b];
  }
};

void RunAttention(const Attention& attention, const TaskPool& pool);

}  // namespace graphgen

#endif  // GRAPHGEN_ATTENTION_H_
