// Products with a weight that is packed once, with what stands before and behind them.

#ifndef GRAPHGEN_LINEAR_H_
#define GRAPHGEN_LINEAR_H_

#include <cstdint>

#include "element_types.h"
#include "low_rank.h"
#include "task_pool.h"

namespace graphgen {

// Numbers in which a weight may be kept: integers of 8 bits, floats of OCP's formats, integers of 4
// bits.
enum class Narrow { kNone, kS8, kF8E4M3, kF8E5M2, kS4 };
enum class Activation { kNone, kRelu, kSilu, kGelu, kGeluTanh, kGeluSigmoid };

// out[M, N] = after(before(x)[M, K] · weightᵀ)
//
// before: x itself, or x / sqrt(mean(x²) + epsilon) · norm, rounded to the product's type before
//         and after the factors; or, with an offset, y / sqrt(mean(y²) + epsilon) · norm + offset of
//         y = x - mean(x), rounded once.
// after:  · scale, then + low-rank terms, then + bias[N], then an activation, then + residual[M, N]; or, gated by the
//         activation f, of those columns [0, N) and [N, 2N) of the product: f(left) · right.
// Sums are f32. The product's type is that of the weight; narrow numbers are widened to it, which
// is exact.
//
// With groups, `group` consecutive numbers of a column share a scale, and perhaps a zero point. The
// product is then the sum over the groups, in their order, of
//   (Σ x · number - zero point · Σ x) · scale
// so where x is infinite a zero point makes a NaN.
//
// With x_group, x is rounded to integers of 8 bits first, with a scale for each x_group numbers of
// a row: their largest magnitude / 127, at least the smallest normal f32. Its product with a weight
// of integers is one of integers, and the sum over the groups, in their order, of
//   (Σ x · number - zero point · Σ x) · scale of x · scale
// A group with a NaN or an infinity has such a scale, so the row becomes NaN.
//
// Packed weights are zero beyond N and K:
//   bf16, 8 bits          [columns / 16][K / 2][16][2]
//   4 bits                [columns / 16][K / 8][16], words as nibbles_inner.h has them
//   f32, f16              [columns / 16][K][16]
//   scale, zero of groups [columns / 16][K / group][16]
struct Linear {
  int64_t rows;     // M
  int64_t depth;    // K
  int64_t columns;  // N, of the result
  Type type;        // of the product's operands
  Narrow narrow = Narrow::kNone;
  Type x_type;
  Type out_type;
  const void* x;
  const void* weight;
  const void* norm = nullptr;  // [K], of the product's type
  const void* offset = nullptr;  // [K], the same
  float epsilon = 0.0f;
  const void* scale = nullptr;      // f32 [product_columns()], or one; packed with groups
  bool one_scale = false;
  int64_t group = 0;                // a multiple of step(), or K; 0 without groups
  int64_t x_group = 0;              // of integers; `group` if there is one; 0 for x as it is
  const void* zero = nullptr;       // of groups, packed
  Type scale_type = Type::kF32;     // of groups
  Type zero_type = Type::kF32;
  const LowRank* low_rank = nullptr;  // of the product's type
  const float* bias = nullptr;      // [N]
  const float* residual = nullptr;  // [M, N]
  Activation activation = Activation::kNone;
  bool gated = false;
  void* out = nullptr;

  // Columns of the product.
  int64_t product_columns() const {
    return gated ? 2 * columns : columns;
  }

  // Elements of a column that lie side by side in the packed weight.
  int64_t step() const {
    if (narrow == Narrow::kS4) return 8;
    return type == Type::kBf16 || narrow != Narrow::kNone ? 2 : 1;
  }

  // Groups of a column, the last of which may be short.
  int64_t groups() const {
    const int64_t size = group ? group : x_group;
    return size ? (depth + size - 1) / size : 1;
  }
};

// Computes out. The instruction set is the best one that both this build and the CPU have, or the
// one that UseInstructionSet names.
void RunLinear(const Linear& linear, const TaskPool& pool);

// The instruction set that RunLinear uses: "amx", "avx512_bf16", "avx512", "avx2" or "baseline"; on
// ARM "neon_bf16", "neon_dotprod" or "baseline".
const char* InstructionSet();

// The instruction sets that both this build and the CPU have, the best first, with spaces between.
const char* InstructionSets();

// Has every kernel use an instruction set of InstructionSets(), "amx" where the CPU and the system have
// it, or "amx_emulated", which computes the same slowly. Returns the one that is used, which is another
// where the name is none of these.
const char* UseInstructionSet(const char* name);

}  // namespace graphgen

#endif  // GRAPHGEN_LINEAR_H_
