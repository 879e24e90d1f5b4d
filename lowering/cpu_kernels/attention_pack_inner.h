// Tiles of keys and values in the form of a linear layer's weight, included once per instruction set,
// inside of its namespace, after linear_inner.h and cache_inner.h.
//
// Keys are tiles of 16 slots, [C / 16][D / step][16][step]; values tiles of 16 columns,
// [W / 16][C / step][16][step]. Zero beyond C, D and W.

inline int64_t RoundUp(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

// A vector of elements, zeros from `count` on.
template <typename Vector, typename W>
inline Vector LoadSome(const W* from, int64_t count) {
  constexpr int64_t kWhole = sizeof(Vector) / sizeof(W);
  if (count >= kWhole) return Load<Vector>(from);
  Vector some = {};
  if (count > 0) std::memcpy(&some, from, count * sizeof(W));
  return some;
}

// A tile of keys of `size` elements; slots from `count` on are zeros.
template <typename Steps, typename W>
void PackKeys(Slots<W> slots, int64_t count, int64_t size, W* to) {
  if constexpr (sizeof(W) * Steps::kDepth == sizeof(uint32_t)) {
    // A step is a word of each slot: words are transposed.
    const int64_t steps = RoundUp(size, Steps::kDepth) / Steps::kDepth;
    for (int64_t step = 0; step < steps; step += kLanes) {
      Words rows[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t from = step * Steps::kDepth, left = i < count ? size - from : 0;
        rows[i] = LoadSome<Words>(slots.first + i * slots.stride + from, left);
      }
      Transpose(rows);
      const int64_t end = std::min(kLanes, steps - step);
      for (int64_t i = 0; i < end; ++i) Store(to + (step + i) * Steps::kStride, rows[i]);
    }
    return;
  }
  for (int64_t i = 0; i < kLanes; ++i) {
    const W* key = slots.first + i * slots.stride;
    for (int64_t d = 0; d < size; ++d) to[d * kLanes + i] = i < count ? key[d] : W();
  }
}

// Sixteen values of `width` elements, in tiles of `all` slots; slots from `count` on are zeros.
template <typename Steps, typename W>
void PackValues(Slots<W> slots, int64_t count, int64_t width, int64_t all, W* to) {
  using Row = std::conditional_t<sizeof(W) == 4, Words, Halves>;
  const auto row = [&](int64_t i, int64_t w) {
    return LoadSome<Row>(slots.first + i * slots.stride + w, i < count ? width - w : 0);
  };
  for (int64_t w = 0; w < width; w += kLanes) {
    W* tile = to + w * all;
    for (int64_t i = 0; i < kLanes; i += Steps::kDepth, tile += Steps::kStride) {
      if constexpr (Steps::kDepth == 2) {
        const Words first = Convert<Words>(row(i, w));
        Store(tile, first | Convert<Words>(row(i + 1, w)) << 16);
      } else {
        Store(tile, row(i, w));
      }
    }
  }
}
