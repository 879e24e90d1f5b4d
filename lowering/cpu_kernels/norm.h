// Norms of rows.

#ifndef GRAPHGEN_NORM_H_
#define GRAPHGEN_NORM_H_

#include <cstdint>

#include "element_types.h"
#include "task_pool.h"

namespace graphgen {

// out[M, K] = x / sqrt(mean(x²) + epsilon) · norm, rounded to `type` before and after the factor; or,
//             with an offset, y / sqrt(mean(y²) + epsilon) · norm + offset of y = x - mean(x),
//             rounded once.
// Means are over the K elements of a row, in f32.
struct Norm {
  int64_t rows;   // M
  int64_t depth;  // K
  Type x_type;
  Type type;  // of norm, offset and out
  const void* x;
  const void* norm;    // [K]
  const void* offset;  // [K], or null
  float epsilon;
  void* out = nullptr;
};

void RunNorm(const Norm& norm, const TaskPool& pool);

}  // namespace graphgen

#endif  // GRAPHGEN_NORM_H_
