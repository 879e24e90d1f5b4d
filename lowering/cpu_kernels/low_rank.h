// Low-rank terms beside a product, with matrices of the slot of each row.

#ifndef GRAPHGEN_LOW_RANK_H_
#define GRAPHGEN_LOW_RANK_H_

#include <cstdint>

#include "element_types.h"

namespace graphgen {

// Most terms of a product: of projections whose weights are side by side.
constexpr int64_t kMostTerms = 8;

// A term of some tiles of the product's columns; where it has none, B is zero.
struct LowRankTerm {
  const void* a;        // [slots, rank, K]
  const void* b;        // [slots, tiles], packed like a weight of depth rank
  int64_t tile, tiles;  // the first, and how many
};

// term[M, columns] = rounded(x[M, K] · A[slot]ᵀ) · B[slot], of the slot that `ids` has for a row of
// the call; M is a multiple of its rows, and a slot that does not exist gives nothing. Terms of one
// tile are added. What B is multiplied by is rounded to its type; sums are f32.
struct LowRank {
  int64_t rows;  // of ids
  const int32_t* ids;
  int64_t slots, rank;
  int64_t count;  // of terms
  LowRankTerm terms[kMostTerms];
  // Of a call that runs: the products with A, [M, count], each as a row of x.
  void* low = nullptr;
};

}  // namespace graphgen

#endif  // GRAPHGEN_LOW_RANK_H_
