// The inner loops of RunLinear, included once per instruction set, inside of its namespace.
//
// A block is up to kMostRows rows of x and one or two tiles of 16 columns. Few rows read the weight
// as one stream, with several sums per tile to hide the latency of the additions; many rows read it
// from the cache of the core.

constexpr int64_t kMostRows = 12;
// Bytes of a weight that a thread takes at once: small enough to balance, and for its cache.
constexpr int64_t kChunkBytes = 64 << 10;

// Reads of a weight tile and of a row of x, by element type. A step is one depth of f32 and f16,
// two of bf16.
struct Bf16Steps {
  using X = uint32_t;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
  using W = uint16_t;
  static Floats Add(Floats sum, const W* w, X x) {
#if defined(__AVX512BF16__)
    const __m512i pairs = _mm512_set1_epi32(static_cast<int>(x));
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)Load<__m512i>(w), (__m512bh)pairs);
#else
    const Words both = Load<Words>(w);
    const uint32_t first = x << 16, second = x & 0xffff0000u;
    sum += AsFloats(both << 16) * Splat(Load<float>(&first));
    return sum + AsFloats(both & 0xffff0000u) * Splat(Load<float>(&second));
#endif
  }
};

struct F32Steps {
  using X = float;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = float;
  static Floats Add(Floats sum, const W* w, X x) { return sum + Load<Floats>(w) * Splat(x); }
};

struct F16Steps {
  using X = float;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = uint16_t;
  static Floats Add(Floats sum, const W* w, X x) { return sum + HalvesToFloats(w) * Splat(x); }
};

// sums[row][tile] = x[row] · weight tile, for kRows rows and kTiles tiles that lie tile_stride
// apart; kSums partial sums each.
template <typename Steps, int kRows, int kTiles, int kSums>
void Block(const typename Steps::X* x, int64_t x_stride, const typename Steps::W* weight,
           int64_t tile_stride, int64_t steps, Floats* sums) {
  Floats partial[kSums][kRows][kTiles] = {};
  int64_t step = 0;
  for (; step + kSums <= steps; step += kSums) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
#pragma GCC unroll 16
      for (int row = 0; row < kRows; ++row) {
        const typename Steps::X value = x[row * x_stride + step + s];
#pragma GCC unroll 4
        for (int tile = 0; tile < kTiles; ++tile) {
          partial[s][row][tile] = Steps::Add(
              partial[s][row][tile],
              weight + tile * tile_stride + (step + s) * Steps::kStride, value);
        }
      }
    }
  }
  for (; step < steps; ++step) {
    for (int row = 0; row < kRows; ++row) {
      for (int tile = 0; tile < kTiles; ++tile) {
        partial[0][row][tile] =
            Steps::Add(partial[0][row][tile],
                       weight + tile * tile_stride + step * Steps::kStride,
                       x[row * x_stride + step]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int tile = 0; tile < kTiles; ++tile) {
      Floats sum = partial[0][row][tile];
      for (int s = 1; s < kSums; ++s) sum += partial[s][row][tile];
      sums[row * kTiles + tile] = sum;
    }
  }
}

template <typename Steps>
using BlockOf = void (*)(const typename Steps::X*, int64_t, const typename Steps::W*, int64_t,
                         int64_t, Floats*);

// The block of that many rows; kTiles tiles at once.
template <typename Steps, int kTiles>
BlockOf<Steps> BlockFor(int64_t rows) {
  switch (rows) {
    case 1: return Block<Steps, 1, kTiles, 8 / kTiles>;
    case 2: return Block<Steps, 2, kTiles, 4 / kTiles>;
    case 3: return Block<Steps, 3, kTiles, 4 / kTiles>;
    case 4: return Block<Steps, 4, kTiles, 2 / kTiles>;
    case 5: return Block<Steps, 5, kTiles, 1>;
    case 6: return Block<Steps, 6, kTiles, 1>;
    case 7: return Block<Steps, 7, kTiles, 1>;
    case 8: return Block<Steps, 8, kTiles, 1>;
    case 9: return Block<Steps, 9, kTiles, 1>;
    case 10: return Block<Steps, 10, kTiles, 1>;
    case 11: return Block<Steps, 11, kTiles, 1>;
    default: return Block<Steps, 12, kTiles, 1>;
  }
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

inline void StoreLanes(const Linear& linear, int64_t row, int64_t column, Floats value) {
  const int64_t lanes = std::min(kLanes, linear.columns - column);
  const int64_t at = row * linear.columns + column;
  if (linear.out_type == Type::kF32) {
    std::memcpy(static_cast<float*>(linear.out) + at, &value, lanes * sizeof(float));
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(linear.out) + at;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    out[lane] = linear.out_type == Type::kBf16 ? FloatToBf16(value[lane])
                                               : FloatToHalf(value[lane]);
  }
}

inline Floats LoadLanes(const float* from, int64_t column, int64_t columns) {
  if (column + kLanes <= columns) return Load<Floats>(from + column);
  Floats value = {};
  std::memcpy(&value, from + column, (columns - column) * sizeof(float));
  return value;
}

// What stands behind a product, and its store.
inline void Finish(const Linear& linear, int64_t row, int64_t column, Floats sum) {
  if (linear.bias) sum += LoadLanes(linear.bias, column, linear.columns);
  if (linear.residual) {
    sum += LoadLanes(linear.residual + row * linear.columns, column, linear.columns);
  }
  StoreLanes(linear, row, column, sum);
}

// The rows of x in the form of the blocks: steps of a row side by side, zero beyond K.
template <typename Steps>
class Rows {
 public:
  using X = typename Steps::X;

  explicit Rows(const Linear& linear)
      : steps_((linear.depth + Steps::kDepth - 1) / Steps::kDepth) {
    const bool in_place = !linear.norm && linear.depth % Steps::kDepth == 0 &&
                          linear.x_type == linear.type && linear.type != Type::kF16;
    if (in_place) {
      x_ = static_cast<const X*>(linear.x);
      return;
    }
    made_.reset(new X[linear.rows * steps_]());
    std::unique_ptr<float[]> wide(new float[linear.depth]);
    for (int64_t row = 0; row < linear.rows; ++row) {
      for (int64_t k = 0; k < linear.depth; ++k) {
        wide[k] = Wide(linear.x_type, linear.x, row * linear.depth + k);
      }
      if (linear.norm) Normalize(linear, wide.get());
      Narrow(linear, wide.get(), made_.get() + row * steps_);
    }
    x_ = made_.get();
  }

  const X* row(int64_t row) const { return x_ + row * steps_; }
  int64_t steps() const { return steps_; }

 private:
  static float Wide(Type type, const void* from, int64_t at) {
    if (type == Type::kF32) return static_cast<const float*>(from)[at];
    const uint16_t half = static_cast<const uint16_t*>(from)[at];
    return type == Type::kBf16 ? Bf16ToFloat(half) : HalfToFloat(half);
  }

  static float Rounded(Type type, float value) {
    if (type == Type::kF32) return value;
    return type == Type::kBf16 ? Bf16ToFloat(FloatToBf16(value)) : HalfToFloat(FloatToHalf(value));
  }

  // Like rms_norm in graphgen/composites/basics.py, round before and after the factors.
  static void Normalize(const Linear& linear, float* wide) {
    Floats sums = {};
    int64_t k = 0;
    for (; k + kLanes <= linear.depth; k += kLanes) {
      const Floats lanes = Load<Floats>(wide + k);
      sums += lanes * lanes;
    }
    float sum = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
    for (; k < linear.depth; ++k) sum += wide[k] * wide[k];
    const float mean = sum / static_cast<float>(linear.depth);
    const float scale = 1.0f / std::sqrt(mean + linear.epsilon);
    for (k = 0; k < linear.depth; ++k) {
      wide[k] = Rounded(linear.type, wide[k] * scale) * Wide(linear.type, linear.norm, k);
    }
  }

  static void Narrow(const Linear& linear, const float* wide, X* to) {
    if constexpr (Steps::kDepth == 2) {
      uint16_t* halves = reinterpret_cast<uint16_t*>(to);
      for (int64_t k = 0; k < linear.depth; ++k) halves[k] = FloatToBf16(wide[k]);
    } else {
      for (int64_t k = 0; k < linear.depth; ++k) to[k] = Rounded(linear.type, wide[k]);
    }
  }

  int64_t steps_;
  const X* x_ = nullptr;
  std::unique_ptr<X[]> made_;
};

// Computes the tiles [first, last) of the result for all rows.
template <typename Steps>
void Tiles(const Linear& linear, const Rows<Steps>& x, int64_t first, int64_t last) {
  const auto* weight = static_cast<const typename Steps::W*>(linear.weight);
  const int64_t tile_stride = x.steps() * Steps::kStride;
  const bool gated = linear.activation != Activation::kNone;
  const int64_t half = linear.columns / kLanes * tile_stride;
  Floats sums[kMostRows * 2];
  for (int64_t tile = first; tile < last; ) {
    // Gated, the two tiles of a block are the left and the right one of a column.
    const bool two = gated || (linear.rows > 4 && tile + 1 < last);
    for (int64_t row = 0; row < linear.rows; row += kMostRows) {
      const int64_t rows = std::min(kMostRows, linear.rows - row);
      const auto block = two ? BlockFor<Steps, 2>(rows) : BlockFor<Steps, 1>(rows);
      block(x.row(row), x.steps(), weight + tile * tile_stride, gated ? half : tile_stride,
            x.steps(), sums);
      for (int64_t r = 0; r < rows; ++r) {
        if (gated) {
          const Floats left = Activate(linear.activation, sums[2 * r]);
          StoreLanes(linear, row + r, tile * kLanes, left * sums[2 * r + 1]);
        } else {
          for (int t = 0; t <= two; ++t) {
            Finish(linear, row + r, (tile + t) * kLanes, sums[(1 + two) * r + t]);
          }
        }
      }
    }
    tile += two && !gated ? 2 : 1;
  }
}

template <typename Steps>
void Run(const Linear& linear, const TaskPool& pool) {
  const Rows<Steps> x(linear);
  const int64_t tiles = (linear.columns + kLanes - 1) / kLanes;
  const bool gated = linear.activation != Activation::kNone;
  const int64_t tile_bytes = x.steps() * Steps::kStride * sizeof(typename Steps::W) * (1 + gated);
  int64_t chunk = std::max<int64_t>(2, kChunkBytes / std::max<int64_t>(tile_bytes, 1));
  chunk = std::min(chunk, std::max<int64_t>(2, tiles / (4 * (pool.helpers + 1))));
  chunk += chunk % 2;
  ParallelFor(pool, (tiles + chunk - 1) / chunk, [&](int64_t part) {
    Tiles<Steps>(linear, x, part * chunk, std::min(tiles, (part + 1) * chunk));
  });
}

void RunLinear(const Linear& linear, const TaskPool& pool) {
  switch (linear.type) {
    case Type::kBf16: return Run<Bf16Steps>(linear, pool);
    case Type::kF16: return Run<F16Steps>(linear, pool);
    case Type::kF32: return Run<F32Steps>(linear, pool);
  }
}
