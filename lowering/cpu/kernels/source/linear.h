// Products with a weight that is packed once, with what stands before and behind them.

#ifndef GRAPHGEN_LINEAR_H_
#define GRAPHGEN_LINEAR_H_

#include <cstdint>

#include "task_pool.h"

namespace graphgen {

// Columns of a weight that lie side by side in its packed form.
constexpr int64_t kLanes = 16;

enum class Type { kF32, kBf16, kF16 };
enum class Activation { kNone, kSilu, kGelu, kGeluTanh, kGeluSigmoid };

// out[M, N] = after(before(x)[M, K] · weightᵀ)
//
// before: x itself, or x / sqrt(mean(x²) + epsilon) · norm, rounded to the weight's type
//         before and after the factors.
// after:  + bias[N], then + residual[M, N]; or, with an activation f, of the columns
//         [0, N) and [N, 2N) of the product: f(left) · right.
// Sums are f32.
//
// Packed weights are zero beyond N and K:
//   bf16      [columns / 16][K / 2][16][2]
//   f32, f16  [columns / 16][K][16]
struct Linear {
  int64_t rows;     // M
  int64_t depth;    // K
  int64_t columns;  // N, of the result
  Type type;        // of the weight
  Type x_type;
  Type out_type;
  const void* x;
  const void* weight;
  const void* norm = nullptr;  // [K], of the weight's type
  float epsilon = 0.0f;
  const float* bias = nullptr;      // [N]
  const float* residual = nullptr;  // [M, N]
  Activation activation = Activation::kNone;
  void* out = nullptr;

  // Columns of the product.
  int64_t product_columns() const {
    return activation == Activation::kNone ? columns : 2 * columns;
  }
};

// Computes out. The instruction set is the best one that both this build and the CPU have.
void RunLinear(const Linear& linear, const TaskPool& pool);

// The instruction set that RunLinear uses: "avx512_bf16", "avx512", "avx2" or "baseline".
const char* InstructionSet();

}  // namespace graphgen

#endif  // GRAPHGEN_LINEAR_H_
