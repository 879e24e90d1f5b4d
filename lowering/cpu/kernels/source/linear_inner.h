// The inner loops of RunLinear, included once per instruction set, inside of its namespace, after
// norm_inner.h.

#include "blocks_inner.h"
#include "low_rank_inner.h"
#include "narrow_inner.h"
#include "nibbles_inner.h"
#include "integers_inner.h"

inline void StoreLanes(const Linear& linear, int64_t row, int64_t column, Floats value) {
  const int64_t start = row * linear.columns;
  StoreWide(linear.out_type, linear.out, start + column, start + linear.columns, value);
}

// What stands behind a product, and its store.
inline void Finish(const Linear& linear, int64_t row, int64_t column, Floats sum) {
  if (linear.bias) sum += LoadWide(Type::kF32, linear.bias, column, linear.columns);
  if (linear.activation != Activation::kNone) sum = Activate(linear.activation, sum);
  if (linear.residual) {
    const int64_t start = row * linear.columns;
    sum += LoadWide(Type::kF32, linear.residual, start + column, start + linear.columns);
  }
  StoreLanes(linear, row, column, sum);
}

// The rows of x in the form of the blocks, zero beyond K. The memory is the thread's: one at a time.
template <typename Steps>
class Rows {
 public:
  using X = typename Steps::X;

  Rows(const Linear& linear, const TaskPool& pool) : linear_(linear) {
    const int64_t steps = (linear.depth + Steps::kDepth - 1) / Steps::kDepth;
    depth_ = {steps, linear.group ? linear.group / Steps::kDepth : steps, linear.groups(),
              linear.scale_type, linear.zero_type};
    if (depth_.groups == 1) depth_.of_group = steps;
    const bool in_place = !linear.norm && linear.depth % Steps::kDepth == 0 &&
                          linear.x_type == linear.type && linear.type != Type::kF16;
    if (in_place) x_ = static_cast<const X*>(linear.x);
    else x_ = made_ = ThreadMemory<kRowsOfX, X>(linear.rows * steps);
    if (linear.zero) sums_ = ThreadMemory<kSumsOfX, float>(linear.rows * depth_.groups);
    if (in_place && !sums_) return;
    const int64_t share = 8;
    ParallelFor(pool, (linear.rows + share - 1) / share, [&](int64_t part) {
      const int64_t end = std::min(linear.rows, (part + 1) * share);
      for (int64_t row = part * share; row < end; ++row) {
        if (made_) Make(row);
        if (sums_) Sum(row);
      }
    });
  }

  XRows<Steps> rows() const { return {x_, depth_.steps, sums_}; }
  // The same in steps of the product's type.
  LowRankInput input() const {
    const int64_t numbers = depth_.steps * Steps::kDepth;
    return {x_, kHalves ? numbers / 2 : numbers};
  }
  const Depth& depth() const { return depth_; }

 private:
  void Make(int64_t row) {
    const Linear& l = linear_;
    const Norm norm = {l.rows, l.depth, l.x_type, l.type, l.x, l.norm, l.offset, l.epsilon};
    const NormedRow normed(norm, row);
    const int64_t start = row * l.depth;
    X* to = made_ + row * depth_.steps;
    for (int64_t at = 0; at < l.depth; at += kLanes, to += kLanes / Steps::kDepth) {
      const Floats value = l.norm ? normed.At(at)
                                  : LoadWide(l.x_type, l.x, start + at, start + l.depth);
      const int64_t lanes = std::min(kLanes, l.depth - at);
      const size_t bytes = (lanes + Steps::kDepth - 1) / Steps::kDepth * sizeof(X);
      if constexpr (kHalves) {
        const Halves halves = FloatsToBf16(value);
        std::memcpy(to, &halves, bytes);
      } else {
        const Floats rounded = Rounded(l.type, value);
        std::memcpy(to, &rounded, bytes);
      }
    }
  }

  // The sums of a row over each group, of numbers of the product's type.
  void Sum(int64_t row) {
    const int64_t size = depth_.of_group * Steps::kDepth, all = depth_.steps * Steps::kDepth;
    const X* from = x_ + row * depth_.steps;
    const Type type = kHalves ? Type::kBf16 : Type::kF32;
    for (int64_t group = 0; group < depth_.groups; ++group) {
      const int64_t end = std::min(all, (group + 1) * size);
      Floats sums = {};
      for (int64_t at = group * size; at < end; at += kLanes) sums += LoadWide(type, from, at, end);
      sums_[row * depth_.groups + group] = Total(sums);
    }
  }

  // Whether X holds bf16, not f32.
  static constexpr bool kHalves = sizeof(X) == 2 * Steps::kDepth;
  const Linear& linear_;
  Depth depth_;
  const X* x_ = nullptr;
  X* made_ = nullptr;
  float* sums_ = nullptr;
};

#include "integer_rows_inner.h"

template <typename Steps>
using RowsOf = std::conditional_t<kOfIntegers<Steps>, IntegerRows<Steps>, Rows<Steps>>;

// A sum with the scale of its columns, from `column` of the product on.
inline Floats Scaled(const Linear& linear, int64_t column, Floats sum) {
  if (!linear.scale || linear.group) return sum;
  if (linear.one_scale) return sum * *static_cast<const float*>(linear.scale);
  return sum * LoadWide(Type::kF32, linear.scale, column, linear.product_columns());
}

// Stores the finished tiles of one row, from `column` of the result on. Not inlined: one copy serves
// the loops of all element types.
__attribute__((noinline)) inline void FinishGroup(const Linear& linear, int64_t row, int64_t column, int64_t tiles,
                        const Floats* sums) {
  Floats terms[kGroup];
  const bool adapted = linear.low_rank != nullptr, gated = linear.gated;
  if (adapted) {
    LowRankTiles(linear, row, column, gated ? tiles / 2 : tiles, terms, gated ? 2 : 1);
    if (gated) LowRankTiles(linear, row, column + linear.columns, tiles / 2, terms + 1, 2);
  }
  const auto summed = [&](int64_t t, int64_t at) {
    const Floats sum = Scaled(linear, at, sums[t]);
    return adapted ? sum + terms[t] : sum;
  };
  if (!gated) {
    for (int64_t t = 0; t < tiles; ++t, column += kLanes) Finish(linear, row, column, summed(t, column));
    return;
  }
  for (int64_t t = 0; t < tiles; t += 2, column += kLanes) {
    const Floats left = Activate(linear.activation, summed(t, column));
    StoreLanes(linear, row, column, left * summed(t + 1, column + linear.columns));
  }
}

// Computes a group of tiles for all rows of x; they stand in the result from `column` on.
template <typename Steps>
void RunRows(const Linear& linear, const XRows<Steps>& x, const Depth& depth,
             const Tile<typename Steps::W>* tiles, int64_t count, int64_t column) {
  Floats sums[kMostRows * kGroup];
  for (int64_t row = 0; row < linear.rows;) {
    const auto [rows, run] = RunnerFor<Steps>(linear.rows - row);
    run(x.from(row, depth.groups), tiles, count, depth, sums);
    for (int64_t r = 0; r < rows; ++r) {
      FinishGroup(linear, row + r, column, count, sums + r * kGroup);
    }
    row += rows;
  }
}

// Widened tiles of a thread at a time: what a core's second cache holds beside x.
constexpr int64_t kScratchBytes = 256 * 1024;

// The same for many rows: some narrow tiles at a time are widened once for all of them.
template <typename Steps>
void RunRowsWidened(const Linear& linear, const XRows<Steps>& x, const Depth& depth,
                    const Tile<typename Steps::W>* tiles, int64_t count, int64_t column) {
  using Plain = typename Steps::Plain;
  // The parts of a step are steps of the widened tiles.
  constexpr int64_t kParts = Steps::kDepth / Plain::kDepth;
  const Depth parts = {depth.steps * kParts, depth.of_group * kParts, depth.groups, depth.scale,
                       depth.zero};
  const XRows<Plain> rows = {reinterpret_cast<const typename Plain::X*>(x.steps),
                             x.stride * kParts, x.sums};
  const int64_t stride = parts.steps * Plain::kStride;
  const int64_t fit = kScratchBytes / static_cast<int64_t>(stride * sizeof(typename Plain::W));
  const int64_t most = std::max<int64_t>(2, fit / 2 * 2);
  const bool gated = linear.gated;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t some = std::min(most, count - first);
    auto* wide = ThreadMemory<kWidenedTiles, typename Plain::W>(some * stride);
    Tile<typename Plain::W> made[kGroup];
    for (int64_t t = 0; t < some; ++t) {
      const Tile<typename Steps::W>& tile = tiles[first + t];
      auto* to = wide + t * stride;
      made[t] = {to, tile.scale, tile.zero};
      for (int64_t step = 0; step < depth.steps; ++step) {
        Steps::Widen(tile.numbers + step * Steps::kStride, to + step * kParts * Plain::kStride);
      }
    }
    const int64_t place = column + (gated ? first / 2 : first) * kLanes;
    RunRows<Plain>(linear, rows, parts, made, some, place);
  }
}

// A tile of the weight, by its number.
template <typename Steps>
Tile<typename Steps::W> TileAt(const Linear& linear, const Depth& depth, int64_t number) {
  using W = typename Steps::W;
  const auto facts = [&](const void* all, Type type) -> const void* {
    if (!linear.group || !all) return nullptr;
    return static_cast<const char*>(all) + number * depth.groups * kLanes * SizeOf(type);
  };
  return {static_cast<const W*>(linear.weight) + number * depth.steps * Steps::kStride,
          facts(linear.scale, depth.scale), facts(linear.zero, depth.zero)};
}

// Computes `count` tiles of the result from `first` on, at most a group, for all rows.
template <typename Steps>
void Group(const Linear& linear, const RowsOf<Steps>& x, int64_t first, int64_t count) {
  const bool gated = linear.gated;
  Tile<typename Steps::W> tiles[kGroup];
  // Gated, the tiles of the left and of the right half alternate.
  const int64_t half = linear.columns / kLanes;
  const int64_t all = gated ? 2 * count : count;
  for (int64_t t = 0; t < all; ++t) {
    const int64_t number = gated ? first + t / 2 + t % 2 * half : first + t;
    tiles[t] = TileAt<Steps>(linear, x.depth(), number);
  }
  if constexpr (std::is_same_v<typename Steps::W, uint8_t> && !kOfIntegers<Steps>) {
    if (linear.rows > kMostRows) {
      return RunRowsWidened<Steps>(linear, x.rows(), x.depth(), tiles, all, first * kLanes);
    }
  }
  RunRows<Steps>(linear, x.rows(), x.depth(), tiles, all, first * kLanes);
}

// Runs the groups of a product with low-rank terms: run(linear, group) for each.
template <typename Group>
void RunAdapted(const Linear& linear, const LowRankInput& x, int64_t groups, const Group& run,
                const TaskPool& pool) {
  LowRank terms = *linear.low_rank;
  Linear adapted = linear;
  adapted.low_rank = &terms;
  terms.low = ThreadMemory<kLowValues, float>(linear.rows * terms.count * StepsOfRank(terms, linear.type));
  const int64_t shrinks = ShrinkParts(adapted);
  // All products with A come first: a group that waited for one that no thread has begun would keep
  // the thread that could begin it.
  ParallelFor(pool, shrinks, [&](int64_t part) { ShrinkPart(adapted, x, part); });
  ParallelFor(pool, groups, [&](int64_t part) { run(adapted, part); });
}

template <typename Steps>
void Run(const Linear& linear, const TaskPool& pool) {
  const RowsOf<Steps> x(linear, pool);
  const int64_t tiles = (linear.columns + kLanes - 1) / kLanes;
  const int64_t group = linear.gated ? kGroup / 2 : kGroup;
  // Small groups where there are few, so that all threads have as much to do.
  const int64_t wanted = (tiles + 4 * pool.helpers + 3) / (4 * pool.helpers + 4);
  const int64_t size = std::min(group, std::max<int64_t>(1, wanted));
  const int64_t groups = (tiles + size - 1) / size;
  const auto run = [&](const Linear& l, int64_t part) {
    Group<Steps>(l, x, part * size, std::min(size, tiles - part * size));
  };
  if constexpr (std::is_same_v<RowsOf<Steps>, Rows<Steps>>) {
    if (linear.low_rank) return RunAdapted(linear, x.input(), groups, run, pool);
  }
  ParallelFor(pool, groups, [&](int64_t part) { run(linear, part); });
}

template <typename Bf16, typename F32>
void RunNarrow(const Linear& linear, const TaskPool& pool) {
  if (linear.type == Type::kBf16) return Run<Bf16>(linear, pool);
  Run<F32>(linear, pool);
}

template <Narrow kNarrow>
void RunBytes(const Linear& linear, const TaskPool& pool) {
  RunNarrow<NarrowBf16Steps<kNarrow>, NarrowF32Steps<kNarrow>>(linear, pool);
}

void RunLinear(const Linear& linear, const TaskPool& pool) {
  if (linear.x_group) {
    if (linear.narrow == Narrow::kS4) return Run<NibbleIntegerSteps>(linear, pool);
    return Run<ByteIntegerSteps>(linear, pool);
  }
  switch (linear.narrow) {
    case Narrow::kS8: return RunBytes<Narrow::kS8>(linear, pool);
    case Narrow::kF8E4M3: return RunBytes<Narrow::kF8E4M3>(linear, pool);
    case Narrow::kF8E5M2: return RunBytes<Narrow::kF8E5M2>(linear, pool);
    case Narrow::kS4: return RunNarrow<NibbleBf16Steps, NibbleF32Steps>(linear, pool);
    case Narrow::kNone: break;
  }
  switch (linear.type) {
    case Type::kBf16: return Run<Bf16Steps>(linear, pool);
    case Type::kF16: return Run<F16Steps>(linear, pool);
    case Type::kF32: return Run<F32Steps>(linear, pool);
  }
}
