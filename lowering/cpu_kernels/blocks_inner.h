// Sums of products of some rows of x and some tiles of a weight. Part of linear_inner.h.
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
// Bytes from the scales of a group to those that are asked for meanwhile.
constexpr int64_t kScaleBytesAhead = 2048;

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
// The products of pairs of bf16, added to a sum.
inline Floats AddPairs(Floats sum, Words a, Words b) {
  return EachRegister(sum, a, b, [](auto sum, auto a, auto b) {
    return (decltype(sum))vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
  });
}
#endif

// Reads of a weight tile and of a row of x, by element type. A step is one depth of f32 and f16,
// two of bf16. Add takes a step of x with sixteen columns, AddSteps sixteen steps with as many of w
// that lie side by side.
struct Bf16Steps {
  using X = uint32_t;
  using Sum = Floats;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
  using W = uint16_t;
  using Wide = Words;
  static Wide Read(const W* w) { return Load<Words>(w); }
  static Floats Add(Floats sum, Wide w, X x) {
#if defined(__AVX512BF16__)
    const __m512i pairs = _mm512_set1_epi32(static_cast<int>(x));
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)pairs);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return AddPairs(sum, w, SplatAs<Words>(x));
#else
    const uint32_t first = x << 16, second = x & 0xffff0000u;
    sum = MultiplyAdd(AsFloats(w << 16), Splat(Load<float>(&first)), sum);
    return MultiplyAdd(AsFloats(w & 0xffff0000u), Splat(Load<float>(&second)), sum);
#endif
  }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)Load<__m512i>(w),
                                    (__m512bh)Load<__m512i>(x));
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return AddPairs(sum, Load<Words>(w), Load<Words>(x));
#else
    const Words left = Load<Words>(w), right = Load<Words>(x);
    sum = MultiplyAdd(AsFloats(left << 16), AsFloats(right << 16), sum);
    return MultiplyAdd(AsFloats(left & 0xffff0000u), AsFloats(right & 0xffff0000u), sum);
#endif
  }
  static Floats Widen(const W* from) { return Bf16ToFloats(Load<Halves>(from)); }
};

struct F32Steps {
  using X = float;
  using Sum = Floats;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = float;
  using Wide = Floats;
  static Wide Read(const W* w) { return Load<Floats>(w); }
  static Floats Add(Floats sum, Wide w, X x) { return MultiplyAdd(w, Splat(x), sum); }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
    return MultiplyAdd(Load<Floats>(w), Load<Floats>(x), sum);
  }
  static Floats Widen(const W* from) { return Load<Floats>(from); }
};

struct F16Steps {
  using X = float;
  using Sum = Floats;
  static constexpr int64_t kDepth = 1;
  static constexpr int64_t kStride = 16;
  using W = uint16_t;
  using Wide = Floats;
  static Wide Read(const W* w) { return F16ToFloats(Load<Halves>(w)); }
  static Floats Add(Floats sum, Wide w, X x) { return MultiplyAdd(w, Splat(x), sum); }
  static Floats AddSteps(Floats sum, const W* w, const X* x) {
    return MultiplyAdd(Widen(w), Load<Floats>(x), sum);
  }
  static Floats Widen(const W* from) { return F16ToFloats(Load<Halves>(from)); }
};

// Rows of x in the form of the blocks: steps of a row side by side.
template <typename Steps>
struct XRows {
  const typename Steps::X* steps;
  int64_t stride;
  // The sums of x over each group; null without zero points, but for integers.
  const float* sums;
  // Of integers, the scale of each group; else null.
  const float* scales = nullptr;

  XRows from(int64_t row, int64_t groups) const {
    const auto part = [&](const float* all) { return all ? all + row * groups : nullptr; };
    return {steps + row * stride, stride, part(sums), part(scales)};
  }
};

// Whether x and the weight are integers.
template <typename Steps>
constexpr bool kOfIntegers = std::is_same_v<typename Steps::Sum, Ints>;

// Sixteen columns of a weight, with the scales and zero points of their groups, [groups][16].
template <typename W>
struct Tile {
  const W* numbers;
  const void* scale;
  const void* zero;
};

// How a column is summed: in groups of steps, one without scales of groups; and the types of those.
struct Depth {
  int64_t steps, of_group, groups;
  Type scale = Type::kF32, zero = Type::kF32;
  // Bytes from a tile to what is read next, for each tile of a block.
  int64_t ahead = 0;
};

// The scales of a group of sixteen columns, and their zero points.
struct GroupFacts {
  Floats scale, less;

  template <typename W>
  GroupFacts(const Tile<W>& tile, const Depth& depth, int64_t group) {
    const int64_t at = group * kLanes;
    // Without a call where they are most often.
    if (!tile.scale) scale = Splat(1.0f);
    else if (depth.scale == Type::kF32) scale = Load<Floats>(static_cast<const float*>(tile.scale) + at);
    else scale = LoadWide(depth.scale, tile.scale, at, at + kLanes);
    less = tile.zero ? -LoadWide(depth.zero, tile.zero, at, at + kLanes) : Floats{};
  }

  // The sum so far and that of the group; x_sum is the sum of x over it, or null, and x_scale what
  // both are multiplied with, or null.
  Floats Add(Floats all, Floats sum, const float* x_sum, const float* x_scale) const {
    if (x_sum) sum = MultiplyAdd(less, Splat(*x_sum), sum);
    if (x_scale) sum = sum * Splat(*x_scale);
    return MultiplyAdd(sum, scale, all);
  }
};

// Asks for the scales of a later group: who reads one tile after the other would wait for them.
template <typename W>
void FetchScale(const Tile<W>& tile, const Depth& depth, int64_t group) {
  if (!tile.scale) return;
  const auto* scales = static_cast<const char*>(tile.scale);
  __builtin_prefetch(scales + group * kLanes * SizeOf(depth.scale) + kScaleBytesAhead, 0, 2);
}

// sums[row][tile] = x[row] · tiles[tile]; a row of sums has kGroup places.
template <typename Steps, int kRows, int kTiles>
void Block(const XRows<Steps>& x, const Tile<typename Steps::W>* tiles, const Depth& depth,
           Floats* sums) {
  const typename Steps::W* weight[kTiles];
  for (int tile = 0; tile < kTiles; ++tile) weight[tile] = tiles[tile].numbers;
  const typename Steps::X* steps = x.steps;
  const int64_t stride = x.stride, ahead = kTiles * depth.ahead;
  for (int64_t group = 0; group < depth.groups; ++group) {
    typename Steps::Sum sum[kRows][kTiles] = {};
    if constexpr (kOfIntegers<Steps>) {
      for (int row = 0; row < kRows; ++row) {
        const Ints start = Steps::Start(x.sums[row * depth.groups + group]);
        for (int tile = 0; tile < kTiles; ++tile) sum[row][tile] = start;
      }
    }
    const int64_t end = std::min(depth.steps, (group + 1) * depth.of_group);
    if constexpr (kRows == 1 && kOfIntegers<Steps>) FetchScale(*tiles, depth, group);
    for (int64_t step = group * depth.of_group; step < end; ++step) {
      typename Steps::Wide wide[kTiles];
#pragma GCC unroll 8
      for (int tile = 0; tile < kTiles; ++tile) {
        const typename Steps::W* from = weight[tile] + step * Steps::kStride;
        // To the second cache: what a core asks for itself ends with a page, and comes too late.
        __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead, 0, 2);
        wide[tile] = Steps::Read(from);
      }
#pragma GCC unroll 16
      for (int row = 0; row < kRows; ++row) {
        const typename Steps::X value = steps[row * stride + step];
#pragma GCC unroll 8
        for (int tile = 0; tile < kTiles; ++tile) {
          sum[row][tile] = Steps::Add(sum[row][tile], wide[tile], value);
        }
      }
    }
    for (int tile = 0; tile < kTiles; ++tile) {
      if constexpr (!kOfIntegers<Steps>) {
        if (!tiles->scale) {
          for (int row = 0; row < kRows; ++row) sums[row * kGroup + tile] = sum[row][tile];
          continue;
        }
      }
      const GroupFacts facts(tiles[tile], depth, group);
      const bool less = kOfIntegers<Steps> ? tiles->zero != nullptr : x.sums != nullptr;
      for (int row = 0; row < kRows; ++row) {
        Floats& all = sums[row * kGroup + tile];
        const int64_t at = row * depth.groups + group;
        const float* x_sum = less ? x.sums + at : nullptr;
        const float* x_scale = kOfIntegers<Steps> ? x.scales + at : nullptr;
        all = facts.Add(group ? all : Floats{}, Convert<Floats>(sum[row][tile]), x_sum, x_scale);
      }
    }
  }
}

// Runs the largest block of kRows rows that has registers and tiles; returns its tiles.
template <typename Steps, int kRows, int kTiles>
int64_t RunBlock(const XRows<Steps>& x, const Tile<typename Steps::W>* tiles, int64_t count,
                 const Depth& depth, Floats* sums) {
  if constexpr (kTiles > 1) {
    if (kRows * kTiles > kMostSums || count < kTiles) {
      return RunBlock<Steps, kRows, kTiles / 2>(x, tiles, count, depth, sums);
    }
  }
  if constexpr (kRows * kTiles <= kMostSums || kTiles == 1) {
    Block<Steps, kRows, kTiles>(x, tiles, depth, sums);
  }
  return kTiles;
}

// sums[row][tile] for kRows rows and all tiles of a group.
template <typename Steps, int kRows>
void RunGroup(const XRows<Steps>& x, const Tile<typename Steps::W>* tiles, int64_t count,
              const Depth& depth, Floats* sums) {
  // A row of integers takes one tile after the other, so that a thread reads one stream of memory: its
  // groups do not wait for each other's sums.
  constexpr int kTiles = kRows == 1 && kOfIntegers<Steps> ? 1 : kGroup;
  for (int64_t tile = 0; tile < count;) {
    tile += RunBlock<Steps, kRows, kTiles>(x, tiles + tile, count - tile, depth, sums + tile);
  }
}

template <typename Steps>
using GroupRunner = void (*)(const XRows<Steps>&, const Tile<typename Steps::W>*, int64_t,
                             const Depth&, Floats*);

// The most of these rows that a block takes, and what runs it.
template <typename Steps>
std::pair<int64_t, GroupRunner<Steps>> RunnerFor(int64_t rows) {
  // Not one for every number: each is compiled for all tiles, types and instruction sets.
  if constexpr (kMostSums >= 24) {
    if (rows >= 12) return {12, RunGroup<Steps, 12>};
    if (rows >= 8) return {8, RunGroup<Steps, 8>};
  } else {
    if (rows >= 6) return {6, RunGroup<Steps, 6>};
  }
  if (rows >= 4) return {4, RunGroup<Steps, 4>};
  if (rows == 3) return {3, RunGroup<Steps, 3>};
  if (rows == 2) return {2, RunGroup<Steps, 2>};
  return {1, RunGroup<Steps, 1>};
}
