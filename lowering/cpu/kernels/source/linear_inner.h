// The inner loops of RunLinear, included once per instruction set, inside of its namespace.
//
// A sum is taken in the order of K for any number of rows, so a row of the result does not depend
// on the other rows. A block is some rows of x and some tiles of 16 columns, one register of sums
// each: one row takes many tiles, to hide the latency of the additions; many rows take few.

// Sums that fit into the registers.
#if defined(__AVX512F__)
constexpr int kMostSums = 24;
#else
constexpr int kMostSums = 6;
#endif
constexpr int kMostRows = 12;
// Tiles that are finished together.
constexpr int kGroup = 8;

// Reads of a weight tile and of a row of x, by element type. A step is one depth of f32 and f16,
// two of bf16. Add takes a step of x with sixteen columns, AddSteps sixteen steps with as many of w
// that lie side by side.
struct Bf16Steps {
  using X = uint32_t;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
  using W = uint16_t;
  using Wide = Words;
  static Wide Read(const W* w) { return Load<Words>(w); }
  static Floats Add(Floats sum, Wide w, X x) {
#if defined(__AVX512BF16__)
    const __m512i pairs = _mm512_set1_epi32(static_cast<int>(x));
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)pairs);
#else
    const uint32_t first = x << 16, second = x & 0xffff0000u;
    sum += AsFloats(w << 16) * Splat(Load<float>(&first));
    return sum + AsFloats(w & 0xffff0000u) * Splat(Load<float>(&second));
#endif
  }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)Load<__m512i>(w),
                                    (__m512bh)Load<__m512i>(x));
#else
    const Words left = Load<Words>(w), right = Load<Words>(x);
    sum += AsFloats(left << 16) * AsFloats(right << 16);
    return sum + AsFloats(left & 0xffff0000u) * AsFloats(right & 0xffff0000u);
#endif
  }
  static Floats Widen(const W* from) { return Bf16ToFloats(Load<Halves>(from)); }
};

struct F32Steps {
  using X = float;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = float;
  using Wide = Floats;
  static Wide Read(const W* w) { return Load<Floats>(w); }
  static Floats Add(Floats sum, Wide w, X x) { return sum + w * Splat(x); }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
    return sum + Load<Floats>(w) * Load<Floats>(x);
  }
  static Floats Widen(const W* from) { return Load<Floats>(from); }
};

struct F16Steps {
  using X = float;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = uint16_t;
  using Wide = Floats;
  static Wide Read(const W* w) { return F16ToFloats(Load<Halves>(w)); }
  static Floats Add(Floats sum, Wide w, X x) { return sum + w * Splat(x); }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
    return sum + Widen(w) * Load<Floats>(x);
  }
  static Floats Widen(const W* from) { return F16ToFloats(Load<Halves>(from)); }
};

#include "narrow_inner.h"

// sums[row][tile] = x[row] · tiles[tile]; a row of sums has kGroup places.
template <typename Steps, int kRows, int kTiles>
void Block(const typename Steps::X* x, int64_t x_stride, const typename Steps::W* const* tiles,
           int64_t steps, Floats* sums) {
  Floats sum[kRows][kTiles] = {};
  const typename Steps::W* weight[kTiles];
  for (int tile = 0; tile < kTiles; ++tile) weight[tile] = tiles[tile];
  for (int64_t step = 0; step < steps; ++step) {
    typename Steps::Wide wide[kTiles];
#pragma GCC unroll 8
    for (int tile = 0; tile < kTiles; ++tile) {
      wide[tile] = Steps::Read(weight[tile] + step * Steps::kStride);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
      const typename Steps::X value = x[row * x_stride + step];
#pragma GCC unroll 8
      for (int tile = 0; tile < kTiles; ++tile) {
        sum[row][tile] = Steps::Add(sum[row][tile], wide[tile], value);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int tile = 0; tile < kTiles; ++tile) sums[row * kGroup + tile] = sum[row][tile];
  }
}

// Runs the largest block of kRows rows that has registers and tiles; returns its tiles.
template <typename Steps, int kRows, int kTiles>
int64_t RunBlock(const typename Steps::X* x, int64_t x_stride,
                 const typename Steps::W* const* tiles, int64_t count, int64_t steps,
                 Floats* sums) {
  if constexpr (kTiles > 1) {
    if (kRows * kTiles > kMostSums || count < kTiles) {
      return RunBlock<Steps, kRows, kTiles / 2>(x, x_stride, tiles, count, steps, sums);
    }
  }
  if constexpr (kRows * kTiles <= kMostSums || kTiles == 1) {
    Block<Steps, kRows, kTiles>(x, x_stride, tiles, steps, sums);
  }
  return kTiles;
}

// sums[row][tile] for kRows rows and all tiles of a group.
template <typename Steps, int kRows>
void RunGroup(const typename Steps::X* x, int64_t x_stride, const typename Steps::W* const* tiles,
              int64_t count, int64_t steps, Floats* sums) {
  for (int64_t tile = 0; tile < count;) {
    tile += RunBlock<Steps, kRows, kGroup>(x, x_stride, tiles + tile, count - tile, steps,
                                           sums + tile);
  }
}

template <typename Steps>
using GroupRunner = void (*)(const typename Steps::X*, int64_t, const typename Steps::W* const*,
                             int64_t, int64_t, Floats*);

// The most of these rows that a block takes, and what runs it.
template <typename Steps>
std::pair<int64_t, GroupRunner<Steps>> RunnerFor(int64_t rows) {
  if (kMostSums >= 24) {
    if (rows >= 12) return {12, RunGroup<Steps, 12>};
    if (rows >= 8) return {8, RunGroup<Steps, 8>};
  }
  if (rows >= 6) return {6, RunGroup<Steps, 6>};
  if (rows >= 4) return {4, RunGroup<Steps, 4>};
  if (rows == 3) return {3, RunGroup<Steps, 3>};
  if (rows == 2) return {2, RunGroup<Steps, 2>};
  return {1, RunGroup<Steps, 1>};
}

inline Floats Logistic(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

// The formulas of graphgen/composites/basics.py.
inline Floats Activate(Activation activation, Floats x) {
  switch (activation) {
    case Activation::kSilu: return x * Logistic(x);
    case Activation::kGeluTanh: return x * Logistic(1.59576912f * (x + 0.044715f * x * x * x));
    case Activation::kGeluSigmoid: return x * Logistic(1.702f * x);
    default: break;
  }
  Floats share;
  for (int lane = 0; lane < kLanes; ++lane) share[lane] = std::erf(x[lane] * 0.707106781f);
  return x * ((share + 1.0f) * 0.5f);
}

inline Halves Narrowed(Type type, Floats value) {
  return type == Type::kBf16 ? FloatsToBf16(value) : FloatsToF16(value);
}

// Stores sixteen elements from `at` on, none from `end` on.
inline void StoreWide(Type type, void* to, int64_t at, int64_t end, Floats value) {
  const int64_t lanes = std::min(kLanes, end - at);
  if (type == Type::kF32) {
    float* out = static_cast<float*>(to) + at;
    if (lanes == kLanes) return Store(out, value);
    std::memcpy(out, &value, lanes * sizeof(float));
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(to) + at;
  const Halves halves = Narrowed(type, value);
  if (lanes == kLanes) return Store(out, halves);
  std::memcpy(out, &halves, lanes * sizeof(uint16_t));
}

inline void StoreLanes(const Linear& linear, int64_t row, int64_t column, Floats value) {
  const int64_t start = row * linear.columns;
  StoreWide(linear.out_type, linear.out, start + column, start + linear.columns, value);
}

// Sixteen elements from `at` on; zeros from `end` on.
inline Floats LoadWide(Type type, const void* from, int64_t at, int64_t end) {
  const int64_t lanes = std::min(kLanes, end - at);
  if (type == Type::kF32) {
    const float* floats = static_cast<const float*>(from) + at;
    if (lanes == kLanes) return Load<Floats>(floats);
    Floats value = {};
    std::memcpy(&value, floats, lanes * sizeof(float));
    return value;
  }
  const uint16_t* halves = static_cast<const uint16_t*>(from) + at;
  Halves value = {};
  if (lanes == kLanes) value = Load<Halves>(halves);
  else std::memcpy(&value, halves, lanes * sizeof(uint16_t));
  return type == Type::kBf16 ? Bf16ToFloats(value) : F16ToFloats(value);
}

// What stands behind a product, and its store.
inline void Finish(const Linear& linear, int64_t row, int64_t column, Floats sum) {
  if (linear.bias) sum += LoadWide(Type::kF32, linear.bias, column, linear.columns);
  if (linear.residual) {
    const int64_t start = row * linear.columns;
    sum += LoadWide(Type::kF32, linear.residual, start + column, start + linear.columns);
  }
  StoreLanes(linear, row, column, sum);
}

inline Floats Rounded(Type type, Floats value) {
  if (type == Type::kF32) return value;
  const Halves halves = Narrowed(type, value);
  return type == Type::kBf16 ? Bf16ToFloats(halves) : F16ToFloats(halves);
}

// The rows of x in the form of the blocks: steps of a row side by side, zero beyond K.
template <typename Steps>
class Rows {
 public:
  using X = typename Steps::X;

  Rows(const Linear& linear, const TaskPool& pool) : linear_(linear) {
    steps_ = (linear.depth + Steps::kDepth - 1) / Steps::kDepth;
    const bool in_place = !linear.norm && linear.depth % Steps::kDepth == 0 &&
                          linear.x_type == linear.type && linear.type != Type::kF16;
    if (in_place) {
      x_ = static_cast<const X*>(linear.x);
      return;
    }
    made_.reset(new X[linear.rows * steps_]);
    x_ = made_.get();
    const int64_t share = 8;
    ParallelFor(pool, (linear.rows + share - 1) / share, [&](int64_t part) {
      const int64_t end = std::min(linear.rows, (part + 1) * share);
      for (int64_t row = part * share; row < end; ++row) Make(row);
    });
  }

  const X* row(int64_t row) const { return x_ + row * steps_; }
  int64_t steps() const { return steps_; }

 private:
  void Make(int64_t row) {
    const Linear& l = linear_;
    const int64_t start = row * l.depth, end = start + l.depth;
    const float scale = l.norm ? Scale(start, end) : 1.0f;
    X* to = made_.get() + row * steps_;
    for (int64_t at = start; at < end; at += kLanes) {
      Floats value = LoadWide(l.x_type, l.x, at, end);
      if (l.norm) {
        value = Rounded(l.type, value * scale) * LoadWide(l.type, l.norm, at - start, l.depth);
      }
      const int64_t lanes = std::min(kLanes, end - at);
      const size_t bytes = (lanes + Steps::kDepth - 1) / Steps::kDepth * sizeof(X);
      if constexpr (std::is_same_v<X, Bf16Steps::X>) {
        const Halves halves = FloatsToBf16(value);
        std::memcpy(to, &halves, bytes);
      } else {
        const Floats rounded = Rounded(l.type, value);
        std::memcpy(to, &rounded, bytes);
      }
      to += kLanes / Steps::kDepth;
    }
  }

  // 1 / sqrt(mean(x²) + epsilon)
  float Scale(int64_t start, int64_t end) const {
    Floats sums = {};
    for (int64_t at = start; at < end; at += kLanes) {
      const Floats value = LoadWide(linear_.x_type, linear_.x, at, end);
      sums += value * value;
    }
    float sum = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
    return 1.0f / std::sqrt(sum / static_cast<float>(linear_.depth) + linear_.epsilon);
  }

  const Linear& linear_;
  int64_t steps_;
  const X* x_ = nullptr;
  std::unique_ptr<X[]> made_;
};

// A sum with the scale of its columns, from `column` of the product on.
inline Floats Scaled(const Linear& linear, int64_t column, Floats sum) {
  if (!linear.scale) return sum;
  if (linear.one_scale) return sum * *linear.scale;
  return sum * LoadWide(Type::kF32, linear.scale, column, linear.product_columns());
}

// Stores the finished tiles of one row, from `column` of the result on. Not inlined: one copy serves
// the loops of all element types.
__attribute__((noinline)) inline void FinishGroup(const Linear& linear, int64_t row, int64_t column, int64_t tiles,
                        const Floats* sums) {
  if (linear.activation == Activation::kNone) {
    for (int64_t t = 0; t < tiles; ++t, column += kLanes) {
      Finish(linear, row, column, Scaled(linear, column, sums[t]));
    }
    return;
  }
  for (int64_t t = 0; t < tiles; t += 2, column += kLanes) {
    const Floats left = Activate(linear.activation, Scaled(linear, column, sums[t]));
    const Floats right = Scaled(linear, column + linear.columns, sums[t + 1]);
    StoreLanes(linear, row, column, left * right);
  }
}

// Computes a group of tiles for all rows of x; they stand in the result from `column` on.
template <typename Steps>
void RunRows(const Linear& linear, const typename Steps::X* x, int64_t steps,
             const typename Steps::W* const* tiles, int64_t count, int64_t column) {
  Floats sums[kMostRows * kGroup];
  for (int64_t row = 0; row < linear.rows;) {
    const auto [rows, run] = RunnerFor<Steps>(linear.rows - row);
    run(x + row * steps, steps, tiles, count, steps, sums);
    for (int64_t r = 0; r < rows; ++r) {
      FinishGroup(linear, row + r, column, count, sums + r * kGroup);
    }
    row += rows;
  }
}

// The same for many rows: some narrow tiles at a time are widened once for all of them.
template <typename Steps>
void RunRowsWidened(const Linear& linear, const typename Steps::X* x, int64_t steps,
                    const typename Steps::W* const* tiles, int64_t count, int64_t column) {
  using Plain = typename Steps::Plain;
  constexpr int64_t kParts = Steps::kDepth / Plain::kDepth;
  const int64_t stride = steps * kParts * Plain::kStride;
  const int64_t fit = kScratchBytes / static_cast<int64_t>(stride * sizeof(typename Plain::W));
  const int64_t most = std::max<int64_t>(2, fit / 2 * 2);
  const bool gated = linear.activation != Activation::kNone;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t some = std::min(most, count - first);
    auto* wide = Scratch<typename Plain::W>(some * stride);
    const typename Plain::W* made[kGroup];
    for (int64_t t = 0; t < some; ++t) {
      made[t] = wide + t * stride;
      for (int64_t step = 0; step < steps; ++step) {
        Steps::Widen(tiles[first + t] + step * Steps::kStride,
                     wide + t * stride + step * kParts * Plain::kStride);
      }
    }
    const int64_t place = column + (gated ? first / 2 : first) * kLanes;
    // The parts of a step are steps of the widened tiles.
    RunRows<Plain>(linear, reinterpret_cast<const typename Plain::X*>(x), steps * kParts, made,
                   some, place);
  }
}

// Computes `count` tiles of the result from `first` on, at most a group, for all rows.
template <typename Steps>
void Group(const Linear& linear, const Rows<Steps>& x, int64_t first, int64_t count) {
  using W = typename Steps::W;
  const int64_t stride = x.steps() * Steps::kStride;
  const bool gated = linear.activation != Activation::kNone;
  const W* weight = static_cast<const W*>(linear.weight) + first * stride;
  const W* tiles[kGroup];
  // Gated, the tiles of the left and of the right half alternate.
  const int64_t half = linear.columns / kLanes * stride;
  const int64_t all = gated ? 2 * count : count;
  for (int64_t t = 0; t < all; ++t) {
    tiles[t] = gated ? weight + t / 2 * stride + t % 2 * half : weight + t * stride;
  }
  if constexpr (std::is_same_v<W, uint8_t>) {
    if (linear.rows > kMostRows) {
      return RunRowsWidened<Steps>(linear, x.row(0), x.steps(), tiles, all, first * kLanes);
    }
  }
  RunRows<Steps>(linear, x.row(0), x.steps(), tiles, all, first * kLanes);
}

template <typename Steps>
void Run(const Linear& linear, const TaskPool& pool) {
  const Rows<Steps> x(linear, pool);
  const int64_t tiles = (linear.columns + kLanes - 1) / kLanes;
  const int64_t group = linear.activation == Activation::kNone ? kGroup : kGroup / 2;
  // Small groups where there are few, so that all threads have as much to do.
  const int64_t wanted = (tiles + 4 * pool.helpers + 3) / (4 * pool.helpers + 4);
  const int64_t size = std::min(group, std::max<int64_t>(1, wanted));
  ParallelFor(pool, (tiles + size - 1) / size, [&](int64_t part) {
    Group<Steps>(linear, x, part * size, std::min(size, tiles - part * size));
  });
}

template <Narrow kNarrow>
void RunNarrow(const Linear& linear, const TaskPool& pool) {
  if (linear.type == Type::kBf16) return Run<NarrowBf16Steps<kNarrow>>(linear, pool);
  Run<NarrowF32Steps<kNarrow>>(linear, pool);
}

void RunLinear(const Linear& linear, const TaskPool& pool) {
  switch (linear.narrow) {
    case Narrow::kS8: return RunNarrow<Narrow::kS8>(linear, pool);
    case Narrow::kF8E4M3: return RunNarrow<Narrow::kF8E4M3>(linear, pool);
    case Narrow::kF8E5M2: return RunNarrow<Narrow::kF8E5M2>(linear, pool);
    case Narrow::kNone: break;
  }
  switch (linear.type) {
    case Type::kBf16: return Run<Bf16Steps>(linear, pool);
    case Type::kF16: return Run<F16Steps>(linear, pool);
    case Type::kF32: return Run<F32Steps>(linear, pool);
  }
}
