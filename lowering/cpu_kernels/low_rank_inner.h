// The low-rank terms of RunLinear, included once per instruction set, inside of its namespace, after
// blocks_inner.h.

// Values of one row of the call that are multiplied by A together.
constexpr int64_t kShrinkShare = 16;
// Sums that fit into the registers: of one value, and of some, with rows of A.
#if defined(__AVX512F__)
constexpr int kAloneRanks = 16, kShrinkValues = 4;
#else
constexpr int kAloneRanks = 4, kShrinkValues = 1;
#endif
constexpr int kShrinkRanks = 4;

// Rows of x, of the form that a block takes.
struct LowRankInput {
  const void* data;
  int64_t stride;  // steps from one row to the next
};

// Adds the products of sixteen steps of a row of A and of x, lane by lane.
template <typename Steps>
inline Floats ShrinkSteps(Floats sum, const typename Steps::W* a, const typename Steps::X* x) {
  if constexpr (Steps::kDepth == 1) {
    return MultiplyAdd(Steps::Widen(a), Load<Floats>(x), sum);
  } else {
#if defined(GRAPHGEN_BF16_PAIRS)
    return Steps::AddSteps(sum, a, x);
#else
    const Words left = Load<Words>(a), right = Load<Words>(x);
    sum = MultiplyAdd(AsFloats(left << 16), AsFloats(right << 16), sum);
    return MultiplyAdd(AsFloats(left & 0xffff0000u), AsFloats(right & 0xffff0000u), sum);
#endif
  }
}

// sums[value][rank] = lanes of the products of x with rows of A.
template <typename Steps, int kValues, int kRanks>
void ShrinkBlock(const typename Steps::X* x, int64_t stride, const typename Steps::W* a, int64_t depth,
                 Floats* sums) {
  using X = typename Steps::X;
  using W = typename Steps::W;
  constexpr int64_t kSteps = kLanes * Steps::kDepth;
  Floats own[kValues][kRanks] = {};
  const int64_t whole = depth / kSteps * kSteps;
  const auto add = [&](const X* from, int64_t row, const W* rows, int64_t next) {
#pragma GCC unroll 4
    for (int i = 0; i < kValues; ++i) {
#pragma GCC unroll 16
      for (int r = 0; r < kRanks; ++r) {
        own[i][r] = ShrinkSteps<Steps>(own[i][r], rows + r * next, from + i * row);
      }
    }
  };
  for (int64_t at = 0; at < whole; at += kSteps) add(x + at / Steps::kDepth, stride, a + at, depth);
  if (const int64_t left = depth - whole) {
    // Sixteen steps with zeros beyond the end.
    X from[kValues * kLanes] = {};
    W rows[kRanks * kSteps] = {};
    const int64_t steps = (left + Steps::kDepth - 1) / Steps::kDepth;
    for (int i = 0; i < kValues; ++i) {
      std::memcpy(from + i * kLanes, x + i * stride + whole / Steps::kDepth, steps * sizeof(X));
    }
    for (int r = 0; r < kRanks; ++r) {
      std::memcpy(rows + r * kSteps, a + r * depth + whole, left * sizeof(W));
    }
    add(from, kLanes, rows, kSteps);
  }
  for (int i = 0; i < kValues; ++i) {
    for (int r = 0; r < kRanks; ++r) sums[i * kLanes + r] = own[i][r];
  }
}

// Writes the products of some values with all rows of A, each value's as a row of x of depth ranks.
template <typename Steps, int kValues>
void ShrinkValues(const LowRankInput& x, int64_t row, const void* a, int64_t ranks, int64_t depth,
                  typename Steps::X* low, int64_t stride) {
  using X = typename Steps::X;
  constexpr int kRanks = kValues == 1 ? kAloneRanks : kShrinkRanks;
  const X* from = static_cast<const X*>(x.data) + row * x.stride;
  const auto* rows = static_cast<const typename Steps::W*>(a);
  for (int64_t group = 0; group < ranks; group += kLanes) {
    const int64_t some = std::min(kLanes, ranks - group);
    Floats sums[kValues * kLanes] = {};
    int64_t rank = 0;
    for (; rank + kRanks <= some; rank += kRanks) {
      ShrinkBlock<Steps, kValues, kRanks>(from, x.stride, rows + (group + rank) * depth, depth, sums + rank);
    }
    for (; rank < some; ++rank) {
      ShrinkBlock<Steps, kValues, 1>(from, x.stride, rows + (group + rank) * depth, depth, sums + rank);
    }
    const size_t bytes = (some + Steps::kDepth - 1) / Steps::kDepth * sizeof(X);
    for (int i = 0; i < kValues; ++i) {
      const Floats totals = Totals([&](int lane) { return sums[i * kLanes + lane]; });
      X* to = low + i * stride + group / Steps::kDepth;
      if constexpr (Steps::kDepth == 2) {
        const Halves halves = FloatsToBf16(totals);
        std::memcpy(to, &halves, bytes);
      } else {
        constexpr bool kHalf = sizeof(typename Steps::W) == 2;
        const Floats rounded = kHalf ? Rounded(Type::kF16, totals) : totals;
        std::memcpy(to, &rounded, bytes);
      }
    }
  }
}

// Steps of a row of what B is multiplied by.
inline int64_t StepsOfRank(const LowRank& all, Type type) {
  return type == Type::kBf16 ? (all.rank + 1) / 2 : all.rank;
}

// The products of the values [row, end), which have one slot, with its A of one term.
template <typename Steps>
void Shrink(const Linear& linear, const LowRankInput& x, int64_t term, int64_t slot, int64_t row,
            int64_t end) {
  const LowRank& all = *linear.low_rank;
  const int64_t depth = linear.depth, steps = StepsOfRank(all, linear.type), stride = all.count * steps;
  const void* a = static_cast<const typename Steps::W*>(all.terms[term].a) + slot * all.rank * depth;
  auto* low = static_cast<typename Steps::X*>(all.low) + term * steps;
  while (row < end) {
    auto* to = low + row * stride;
    if (end - row >= kShrinkValues) {
      ShrinkValues<Steps, kShrinkValues>(x, row, a, all.rank, depth, to, stride);
      row += kShrinkValues;
    } else {
      ShrinkValues<Steps, 1>(x, row, a, all.rank, depth, to, stride);
      ++row;
    }
  }
}

// Values of each row of the call.
inline int64_t ValuesOfRow(const Linear& linear) { return linear.rows / linear.low_rank->rows; }

inline int64_t SharesOfRow(const Linear& linear) {
  return (ValuesOfRow(linear) + kShrinkShare - 1) / kShrinkShare;
}

// How many parts the products with A have: some values of a row, with one term.
inline int64_t ShrinkParts(const Linear& linear) {
  return linear.low_rank->rows * SharesOfRow(linear) * linear.low_rank->count;
}

inline void ShrinkPart(const Linear& linear, const LowRankInput& x, int64_t part) {
  const LowRank& all = *linear.low_rank;
  const int64_t shares = SharesOfRow(linear), values = ValuesOfRow(linear);
  const int64_t term = part % all.count, share = part / all.count % shares;
  const int64_t of = part / all.count / shares, slot = all.ids[of];
  if (slot >= 0 && slot < all.slots) {
    const int64_t row = of * values + share * kShrinkShare;
    const int64_t end = std::min((of + 1) * values, row + kShrinkShare);
    switch (linear.type) {
      case Type::kF32: Shrink<F32Steps>(linear, x, term, slot, row, end); break;
      case Type::kBf16: Shrink<Bf16Steps>(linear, x, term, slot, row, end); break;
      case Type::kF16: Shrink<F16Steps>(linear, x, term, slot, row, end); break;
    }
  }
}

// Adds the terms of `count` tiles from `first` on to sums[0], sums[stride] and so on.
template <typename Steps>
void Expand(const LowRank& all, int64_t slot, int64_t row, int64_t steps, int64_t first, int64_t count,
            Floats* sums, int64_t stride) {
  using W = typename Steps::W;
  for (int64_t t = 0; t < all.count; ++t) {
    const LowRankTerm& term = all.terms[t];
    const int64_t begin = std::max(first, term.tile), end = std::min(first + count, term.tile + term.tiles);
    if (begin >= end) continue;
    const W* b = static_cast<const W*>(term.b) +
                 (slot * term.tiles + begin - term.tile) * steps * Steps::kStride;
    Tile<W> tiles[kGroup];
    for (int64_t i = 0; i < end - begin; ++i) tiles[i] = {b + i * steps * Steps::kStride, nullptr, nullptr};
    Floats own[kGroup];
    const auto* low = static_cast<const typename Steps::X*>(all.low) + (row * all.count + t) * steps;
    RunGroup<Steps, 1>({low, steps, nullptr}, tiles, end - begin, {steps, steps, 1}, own);
    for (int64_t i = 0; i < end - begin; ++i) sums[(begin - first + i) * stride] += own[i];
  }
}

// The terms of a row of the product in `count` tiles from that of `column` on.
inline void LowRankTiles(const Linear& linear, int64_t row, int64_t column, int64_t count, Floats* sums,
                         int64_t stride) {
  const LowRank& all = *linear.low_rank;
  for (int64_t i = 0; i < count; ++i) sums[i * stride] = Floats{};
  const int64_t slot = all.ids[row / ValuesOfRow(linear)];
  if (slot < 0 || slot >= all.slots) return;
  const int64_t steps = StepsOfRank(all, linear.type), first = column / kLanes;
  switch (linear.type) {
    case Type::kF32: return Expand<F32Steps>(all, slot, row, steps, first, count, sums, stride);
    case Type::kBf16: return Expand<Bf16Steps>(all, slot, row, steps, first, count, sums, stride);
    case Type::kF16: return Expand<F16Steps>(all, slot, row, steps, first, count, sums, stride);
  }
}
