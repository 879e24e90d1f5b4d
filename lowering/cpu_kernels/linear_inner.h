// The inner loops of products, included once per instruction set, inside of its namespace, after
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

// The number of a call whose threads make rows for themselves.
inline uint64_t NextCall() {
  static std::atomic<uint64_t> calls{0};
  return ++calls;
}

// The call whose rows the calling thread made last, of all types: they share memory.
inline uint64_t& LastCall() {
  thread_local uint64_t last = 0;
  return last;
}

// Bytes from a tile to what is read next, for each tile of a block: of a gated product only every
// second tile of a block is beside the next.
template <typename Steps>
int64_t Ahead(const Linear& linear, int64_t steps) {
  const int64_t tile = steps * Steps::kStride * sizeof(typename Steps::W);
  return linear.gated ? tile / 2 : tile;
}

// The rows of x in the form of the blocks, zero beyond K. The memory is the thread's: one at a time.
//
// Few rows are made by each thread for itself: lines of one core, written by another, come later
// than they are made.
template <typename Form>
class Rows {
 public:
  using Steps = Form;
  using X = typename Steps::X;

  Rows(const Linear& linear, const TaskPool& pool) : linear_(linear) {
    const int64_t steps = (linear.depth + Steps::kDepth - 1) / Steps::kDepth;
    depth_ = {steps, linear.group ? linear.group / Steps::kDepth : steps, linear.groups(),
              linear.scale_type, linear.zero_type};
    if (depth_.groups == 1) depth_.of_group = steps;
    depth_.ahead = Ahead<Steps>(linear, steps);
    in_place_ = !linear.norm && linear.depth % Steps::kDepth == 0 &&
                linear.x_type == linear.type && linear.type != Type::kF16;
    rows_ = {static_cast<const X*>(linear.x), steps, nullptr};
    if (in_place_ && !linear.zero) return;
    if (linear.rows <= kMostRows) {
      call_ = NextCall();
      return;
    }
    X* made = in_place_ ? nullptr : ThreadMemory<kRowsOfX, X>(linear.rows * steps);
    float* sums = nullptr;
    if (linear.zero) sums = ThreadMemory<kSumsOfX, float>(linear.rows * depth_.groups);
    const int64_t share = 8;
    ParallelFor(pool, (linear.rows + share - 1) / share, [&](int64_t part) {
      MakeRows(part * share, std::min(linear.rows, (part + 1) * share), made, sums);
    });
    rows_ = With(made, sums);
  }

  // Those of the calling thread.
  XRows<Steps> rows() const {
    if (!call_) return rows_;
    X* made = in_place_ ? nullptr : ThreadMemory<kOwnRowsOfX, X>(linear_.rows * depth_.steps);
    float* sums = nullptr;
    if (linear_.zero) sums = ThreadMemory<kOwnSumsOfX, float>(linear_.rows * depth_.groups);
    if (LastCall() != call_) MakeRows(0, linear_.rows, made, sums);
    LastCall() = call_;
    return With(made, sums);
  }

  // The same in steps of the product's type: those of the calling thread, which all may read while it
  // is in the call.
  LowRankInput input() const {
    const int64_t numbers = depth_.steps * Steps::kDepth;
    return {rows().steps, kHalves ? numbers / 2 : numbers};
  }
  const Depth& depth() const { return depth_; }

 private:
  XRows<Steps> With(const X* made, const float* sums) const {
    return {made ? made : rows_.steps, rows_.stride, sums};
  }

  void MakeRows(int64_t first, int64_t end, X* made, float* sums) const {
    for (int64_t row = first; row < end; ++row) {
      X* to = made ? made + row * depth_.steps : nullptr;
      if (to) Make(row, to);
      if (sums) Sum(to ? to : rows_.steps + row * depth_.steps, sums + row * depth_.groups);
    }
  }

  void Make(int64_t row, X* to) const {
    const Linear& l = linear_;
    const Norm norm = {l.rows, l.depth, l.x_type, l.type, l.x, l.norm, l.offset, l.epsilon};
    const NormedRow normed(norm, row);
    const int64_t start = row * l.depth;
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
  void Sum(const X* from, float* to) const {
    const int64_t size = depth_.of_group * Steps::kDepth, all = depth_.steps * Steps::kDepth;
    const Type type = kHalves ? Type::kBf16 : Type::kF32;
    for (int64_t group = 0; group < depth_.groups; ++group) {
      const int64_t end = std::min(all, (group + 1) * size);
      Floats sums = {};
      for (int64_t at = group * size; at < end; at += kLanes) sums += LoadWide(type, from, at, end);
      to[group] = Total(sums);
    }
  }

  // Whether X holds bf16, not f32.
  static constexpr bool kHalves = sizeof(X) == 2 * Steps::kDepth;
  const Linear& linear_;
  Depth depth_;
  bool in_place_ = false;
  XRows<Steps> rows_;
  // Names the call, where each thread makes its own; else 0.
  uint64_t call_ = 0;
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

// Rows of x, from one on up to another.
struct RowRange {
  int64_t first, end;
};

// Asks for the lines of a block that Finish writes and adds to: another core may have them, and the
// product hides the time in which they come.
inline void FetchEnds(const Linear& linear, RowRange rows, int64_t column, int64_t tiles) {
  const int64_t size = SizeOf(linear.out_type), step = 64 / size;
  const int64_t end = std::min(linear.columns, column + (linear.gated ? tiles / 2 : tiles) * kLanes);
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const int64_t start = row * linear.columns;
    char* out = static_cast<char*>(linear.out) + start * size;
    for (int64_t at = column; at < end; at += step) __builtin_prefetch(out + at * size, 1);
    for (int64_t at = column; linear.residual && at < end; at += kLanes) {
      __builtin_prefetch(linear.residual + start + at);
    }
  }
}

// Computes a group of tiles for some rows of x; they stand in the result from `column` on.
template <typename Steps>
void RunRows(const Linear& linear, const XRows<Steps>& x, RowRange range, const Depth& depth,
             const Tile<typename Steps::W>* tiles, int64_t count, int64_t column) {
  Floats sums[kMostRows * kGroup];
  for (int64_t row = range.first; row < range.end;) {
    const auto [rows, run] = RunnerFor<Steps>(range.end - row);
    FetchEnds(linear, {row, row + rows}, column, count);
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
void RunRowsWidened(const Linear& linear, const XRows<Steps>& x, RowRange range, const Depth& depth,
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
    RunRows<Plain>(linear, rows, range, parts, made, some, place);
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

// Computes `count` tiles of the result from `first` on, at most a group, for some rows.
template <typename Steps>
void Group(const Linear& linear, const RowsOf<Steps>& x, RowRange rows, int64_t first,
           int64_t count) {
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
    if (rows.end - rows.first > kMostRows) {
      return RunRowsWidened<Steps>(linear, x.rows(), rows, x.depth(), tiles, all, first * kLanes);
    }
  }
  RunRows<Steps>(linear, x.rows(), rows, x.depth(), tiles, all, first * kLanes);
}

// Where the parts of a loop begin that has `count` of something: as many to each.
inline int64_t StartOf(int64_t part, int64_t parts, int64_t count) { return count * part / parts; }

// Rows that a thread takes at once, where there are as many: they stay in its core's second cache.
constexpr int64_t kFewestRowsApart = 24, kMostRowsApart = 128;

// Parts of the rows: of many, each thread has its own, and with them what other products, norms and
// rotations wrote for them; few are not parted, since each part reads the whole weight.
inline int64_t RowParts(int64_t rows, int64_t threads) {
  const int64_t parts = std::min(threads, rows / kFewestRowsApart);
  if (parts <= 1) return 1;
  const int64_t of_thread = (rows + parts - 1) / parts;
  return parts * ((of_thread + kMostRowsApart - 1) / kMostRowsApart);
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

// What a product reads of the weight, of tiles of the result.
template <typename Steps>
Reads ReadsOf(const Linear& linear, const Depth& depth, int64_t tiles) {
  const int64_t pieces = linear.gated ? 2 : 1, facts = tiles * pieces * depth.groups * kLanes;
  const int64_t step = Steps::kStride * sizeof(typename Steps::W);
  Reads reads = {{{linear.weight, tiles * pieces * depth.steps * step, pieces}}};
  if (!linear.group) return reads;
  reads.stretches[1] = {linear.scale, facts * SizeOf(depth.scale), pieces};
  if (linear.zero) reads.stretches[2] = {linear.zero, facts * SizeOf(depth.zero), pieces};
  return reads;
}

// Runs a product in parts: run(linear, rows, first, count) computes `count` tiles of the result from
// `first` on for some rows, whole `unit`s of them but for the last. x are the rows of the product.
template <typename X, typename Run>
void RunParts(const Linear& linear, const X& x, const Reads& reads, int64_t unit, const TaskPool& pool,
              const Run& run) {
  const int64_t tiles = (linear.columns + kLanes - 1) / kLanes;
  const int64_t most = linear.gated ? kGroup / 2 : kGroup, threads = pool.helpers + 1;
  const int64_t row_parts = RowParts(linear.rows, threads);
  // Small groups where there are few, so that all threads have as much to do.
  const int64_t wanted = (tiles * row_parts + 4 * threads - 1) / (4 * threads);
  const int64_t size = std::min(most, std::max<int64_t>(1, wanted));
  const int64_t groups = (tiles + size - 1) / size, units = (linear.rows + unit - 1) / unit;
  const auto part = [&](const Linear& l, int64_t number) {
    const int64_t of_rows = number / groups, group = number % groups;
    const RowRange rows = {StartOf(of_rows, row_parts, units) * unit,
                           std::min(l.rows, StartOf(of_rows + 1, row_parts, units) * unit)};
    const int64_t first = StartOf(group, groups, tiles);
    run(l, rows, first, StartOf(group + 1, groups, tiles) - first);
  };
  if constexpr (!kOfIntegers<typename X::Steps>) {
    if (linear.low_rank) return RunAdapted(linear, x.input(), row_parts * groups, part, pool);
  }
  ParallelFor(pool, row_parts * groups, [&](int64_t number) { part(linear, number); },
              linear.rows <= kMostRows ? &reads : nullptr);
}

template <typename Steps>
void Run(const Linear& linear, const TaskPool& pool) {
  const RowsOf<Steps> x(linear, pool);
  const Reads reads = ReadsOf<Steps>(linear, x.depth(), (linear.columns + kLanes - 1) / kLanes);
  RunParts(linear, x, reads, 1, pool, [&](const Linear& l, RowRange rows, int64_t first, int64_t count) {
    Group<Steps>(l, x, rows, first, count);
  });
}
