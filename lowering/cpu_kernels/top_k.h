// The largest elements of rows.

#ifndef GRAPHGEN_TOP_K_H_
#define GRAPHGEN_TOP_K_H_

#include <cstdint>

#include "element_types.h"
#include "task_pool.h"

namespace graphgen {

// values[M, k], ids[M, k] = the k largest elements of each row of x[M, N] and their places, the
// largest first, of equal ones the first. The order is IEEE 754's total order: NaN, infinity, ...,
// +0, -0, ..., -infinity, -NaN.
struct TopK {
  int64_t rows;  // M
  int64_t size;  // N
  int64_t k;     // 1 to N
  Type type;     // of x and values
  const void* x;
  void* values = nullptr;
  int32_t* ids = nullptr;
};

void RunTopK(const TopK& top_k, const TaskPool& pool);

}  // namespace graphgen

#endif  // GRAPHGEN_TOP_K_H_
