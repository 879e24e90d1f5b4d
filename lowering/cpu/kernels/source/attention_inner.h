// RunAttention, included once per instruction set, inside of its namespace, after
// attention_pack_inner.h.
//
// Keys and values are packed like weights, so that both products are the blocks of a linear layer:
// scores[rows, C] = q · packed keys, out[rows, W] = weights · packed values. Rows are the queries
// that read one head of the cache, s · group + g. A step of few queries reads the cache as it is:
// packing would take longer than the products. Narrow numbers are widened a few slots at a time.

// Queries of one head below which nothing is packed.
constexpr int64_t kFewQueries = 12;
// Narrow slots that are widened at a time, where nothing is packed.
constexpr int64_t kSlotsAtOnce = 64;

template <typename Steps>
class AttentionRun {
 public:
  using X = typename Steps::X;
  using W = typename Steps::W;

  AttentionRun(const Attention& attention, const TaskPool& pool)
      : a_(attention),
        pool_(pool),
        slots_(RoundUp(a_.attended, kLanes)),
        queries_(a_.active * a_.group()),
        widen_(WidenerOf<W>(a_.numbers)) {}

  void Run() {
    const int64_t heads = a_.batch * a_.kv_heads;
    if (queries_ < kFewQueries) {
      // Few heads are cut in two, so that all threads have about as much to do.
      const int64_t parts = queries_ > 1 && heads < 4 * (pool_.helpers + 1) ? 2 : 1;
      const int64_t rows = (queries_ + parts - 1) / parts;
      ParallelFor(pool_, heads * parts, [&](int64_t part) {
        const int64_t first = part % parts * rows;
        Direct(part / parts, first, std::min(rows, queries_ - first));
      });
      return;
    }
    key_size_ = slots_ * RoundUp(a_.size, Steps::kDepth);
    value_size_ = slots_ * RoundUp(a_.width, kLanes);
    const KeptMemory memory(heads * (key_size_ + value_size_) * sizeof(W));
    packed_ = static_cast<W*>(memory.data());
    const KeptMemory scales(a_.row_scale ? 2 * heads * slots_ * sizeof(float) : 0);
    scales_ = static_cast<float*>(scales.data());
    ParallelFor(pool_, heads, [&](int64_t head) { Pack(head); });
    const int64_t blocks = (queries_ + kBlockRows - 1) / kBlockRows;
    // A thread has whole heads, and so their keys. Later queries of a causal mask read more: they start first.
    ParallelFor(pool_, heads * blocks, [&](int64_t part) {
      const int64_t first = (blocks - 1 - part % blocks) * kBlockRows;
      Block(part / blocks, first, std::min(kBlockRows, queries_ - first));
    });
  }

 private:
  static constexpr int64_t kBlockRows = 12;

  // A head of a row, with the factor of its products.
  struct Head {
    int64_t b, k;
    float scale;
  };

  Head HeadOf(int64_t head) const {
    const int64_t k = head % a_.kv_heads;
    const CacheScale& keys = a_.key_scale;
    const bool whole = keys.data && !keys.per_channel;
    return {head / a_.kv_heads, k, whole ? a_.scale * keys.data[k * keys.per_head] : a_.scale};
  }

  // `count` slots from c on of a head of a cache, until the next call in this thread.
  Slots<W> Read(const void* cache, Head head, int64_t c, int64_t count, int64_t size) const {
    if (!widen_) {
      const W* first = static_cast<const W*>(cache) + SlotOf(head, c) * size;
      return {first, a_.kv_heads * size, size};
    }
    const int64_t wide = RoundUp(size, kWidened), bytes = KeptBytes(size);
    W* to = ThreadMemory<kWideSlots, W>(count * wide);
    widen_(static_cast<const uint8_t*>(cache) + SlotOf(head, c) * bytes, a_.kv_heads * bytes, count,
           size, to, wide);
    return {to, wide, wide};
  }

  int64_t SlotOf(Head head, int64_t c) const {
    return (a_.row(head.b) * a_.cache_slots + c) * a_.kv_heads + head.k;
  }

  // Of a slot of `size` numbers of 8 bits.
  int64_t KeptBytes(int64_t size) const {
    return size + (a_.row_scale ? static_cast<int64_t>(sizeof(float)) : 0);
  }

  // The scales behind at most sixteen slots from c on, 0 beyond C; 1 where there are none.
  Floats ScalesOf(const void* cache, Head head, int64_t c, int64_t size) const {
    if (!a_.row_scale) return Splat(1.0f);
    const int64_t bytes = KeptBytes(size);
    return RowScales(static_cast<const uint8_t*>(cache) + SlotOf(head, c) * bytes,
                     a_.kv_heads * bytes, std::min(kLanes, a_.attended - c), size);
  }

  int64_t QueryHead(Head head, int64_t query) const {
    const int64_t s = query / a_.group(), g = query % a_.group();
    return (head.b * a_.active + s) * a_.heads + head.k * a_.group() + g;
  }

  const uint8_t* Mask(Head head, int64_t query) const {
    return a_.mask + (head.b * a_.active + query / a_.group()) * a_.attended;
  }

  // Tiles of the keys and the values of a head, and the scales of their slots.
  void Pack(int64_t number) {
    const Head head = HeadOf(number);
    W* keys = packed_ + number * (key_size_ + value_size_);
    W* values = keys + key_size_;
    const int64_t depth = RoundUp(a_.size, Steps::kDepth);
    for (int64_t c = 0; c < a_.attended; c += kLanes) {
      const int64_t count = std::min(kLanes, a_.attended - c);
      PackKeys<Steps>(Read(a_.key, head, c, count, a_.size), count, a_.size, keys + c * depth);
      PackValues<Steps>(Read(a_.value, head, c, count, a_.width), count, a_.width, slots_,
                        values + c / Steps::kDepth * Steps::kStride);
      if (!a_.row_scale) continue;
      float* scales = scales_ + 2 * number * slots_ + c;
      Store(scales, ScalesOf(a_.key, head, c, a_.size));
      Store(scales + slots_, ScalesOf(a_.value, head, c, a_.width));
    }
  }

  // The slots that any of these queries reads, [first, last), in whole tiles; all if it is none:
  // the weights of a query that reads nothing are equal.
  std::pair<int64_t, int64_t> Range(Head head, int64_t first, int64_t rows) const {
    int64_t low = slots_, high = 0;
    // Queries of one position have one mask.
    for (int64_t query = first; query < first + rows; query += a_.group() - query % a_.group()) {
      const uint8_t* mask = Mask(head, query);
      int64_t from = 0, to = a_.attended;
      while (to - from >= 8 && !Load<uint64_t>(mask + from)) from += 8;
      while (from < to && !mask[from]) ++from;
      while (to - from >= 8 && !Load<uint64_t>(mask + to - 8)) to -= 8;
      while (to > from && !mask[to - 1]) --to;
      if (from == to) return {0, slots_};
      low = std::min(low, from);
      high = std::max(high, to);
    }
    return {low / kLanes * kLanes, RoundUp(high, kLanes)};
  }

  // The first lanes of these, then minus infinity.
  static Floats Before(int64_t lanes, Floats scores) {
    for (int64_t lane = lanes; lane < kLanes; ++lane) scores[lane] = -INFINITY;
    return scores;
  }

  // Scores of 16 slots from c on: scaled, capped and masked; minus infinity beyond C.
  Floats Finished(Floats sums, Floats scale, const uint8_t* mask, int64_t c) const {
    Floats scores = sums * scale;
    if (a_.softcap != 0.0f) {
      // tanh(x) = 1 - 2 / (e^2x + 1)
      const Floats power = Exp(scores * (2.0f / a_.softcap));
      scores = (1.0f - 2.0f / (power + 1.0f)) * a_.softcap;
    }
    const int64_t lanes = std::min(kLanes, a_.attended - c);
    Bytes bytes = {};
    if (lanes == kLanes) {
      bytes = Load<Bytes>(mask + c);
    } else {
      uint8_t some[kLanes] = {};
      std::memcpy(some, mask + c, lanes);
      bytes = Load<Bytes>(some);
    }
    scores = Where(Convert<Words>(bytes) != 0u, scores, Splat(-FLT_MAX));
    return lanes == kLanes ? scores : Before(lanes, scores);
  }

  // Turns scores into weights, in place.
  void Softmax(float* scores, int64_t count, int64_t query_head) const {
    Floats tops = Splat(-INFINITY);
    for (int64_t c = 0; c < count; c += kLanes) {
      const Floats lanes = Load<Floats>(scores + c);
      tops = Where(lanes > tops, lanes, tops);
      // A NaN stays: it compares with nothing.
      tops = Where(lanes != lanes, lanes, tops);
    }
    float top = tops[0];
    for (int lane = 1; lane < kLanes; ++lane) {
      if (!(tops[lane] <= top)) top = tops[lane];
    }
    const float sink = a_.sinks ? a_.sinks[query_head % a_.heads] : -INFINITY;
    if (sink > top) top = sink;
    Floats sums = {};
    for (int64_t c = 0; c < count; c += kLanes) {
      const Floats power = Exp(Load<Floats>(scores + c) - top);
      Store(scores + c, power);
      sums += power;
    }
    float sum = 0.0f;
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
    if (a_.sinks) sum += std::exp(sink - top);
    const Floats factor = Splat(1.0f / sum);
    for (int64_t c = 0; c < count; c += kLanes) {
      Store(scores + c, Rounded(a_.type, Load<Floats>(scores + c) * factor));
    }
  }

  static void ScaleWeights(float* weights, Floats scale) {
    Store(weights, Load<Floats>(weights) * scale);
  }

  void StoreOut(Head head, int64_t query_head, int64_t w, Floats value) const {
    const CacheScale& scale = a_.value_scale;
    const int64_t at = head.k * scale.per_head;
    if (scale.per_channel) value *= LoadWide(Type::kF32, scale.data, at + w, at + a_.width);
    else if (scale.data) value *= scale.data[at];
    const int64_t start = query_head * a_.width;
    StoreWide(a_.type, a_.out, start + w, start + a_.width, value);
  }

  // Sixteen elements of type_ from memory, as steps of a block take them.
  void Narrow(const float* from, int64_t count, X* to) const {
    for (int64_t at = 0; at < count; at += kLanes) {
      const Floats value = Load<Floats>(from + at);
      if constexpr (Steps::kDepth == 2) {
        Store(reinterpret_cast<uint16_t*>(to) + at, FloatsToBf16(value));
      } else {
        Store(to + at, value);
      }
    }
  }

  // Queries as steps, rows of them `stride` apart, zero beyond D; times the scales of the channels
  // of the keys.
  X* LoadQueries(Head head, int64_t first, int64_t rows, int64_t stride) const {
    X* to = ThreadMemory<kQueries, X>(rows * stride);
    std::memset(to, 0, rows * stride * sizeof(X));
    const CacheScale& keys = a_.key_scale;
    const int64_t of_head = head.k * keys.per_head;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t start = QueryHead(head, first + r) * a_.size;
      for (int64_t d = 0; d < a_.size; d += kLanes) {
        Floats query = LoadWide(a_.type, a_.query, start + d, start + a_.size);
        if (keys.per_channel) {
          query *= LoadWide(Type::kF32, keys.data, of_head + d, of_head + a_.size);
        }
        float lanes[kLanes];
        Store(lanes, query);
        Narrow(lanes, kLanes, to + r * stride + d / Steps::kDepth);
      }
    }
    return to;
  }

  void Block(int64_t number, int64_t first, int64_t rows) {
    const Head head = HeadOf(number);
    const auto [low, high] = Range(head, first, rows);
    const int64_t count = high - low;
    const int64_t depth = RoundUp(a_.size, Steps::kDepth), steps = depth / Steps::kDepth;
    const int64_t wide = RoundUp(a_.size, kLanes);
    const X* queries = LoadQueries(head, first, rows, wide);
    float* scores = ThreadMemory<kScores, float>(rows * count);
    const W* keys = packed_ + number * (key_size_ + value_size_);
    Floats sums[kMostRows * kGroup];
    for (int64_t c = low; c < high; c += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (high - c) / kLanes);
      Products(queries, wide, keys + c * depth, kLanes * depth, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t slot = c + t * kLanes;
          Floats scale = Splat(head.scale);
          if (a_.row_scale) scale *= Load<Floats>(scales_ + 2 * number * slots_ + slot);
          Store(scores + r * count + slot - low,
                Finished(sums[r * kGroup + t], scale, Mask(head, first + r), slot));
        }
      }
    }
    Weigh(number, first, rows, low, count, scores);
  }

  // The weighted sums of the values, from scores of the slots [low, low + count).
  void Weigh(int64_t number, int64_t first, int64_t rows, int64_t low, int64_t count,
             float* scores) {
    const Head head = HeadOf(number);
    const int64_t steps = count / Steps::kDepth;
    X* weights = ThreadMemory<kWeights, X>(rows * steps);
    for (int64_t r = 0; r < rows; ++r) {
      Softmax(scores + r * count, count, QueryHead(head, first + r));
      for (int64_t c = 0; a_.row_scale && c < count; c += kLanes) {
        const float* scales = scales_ + (2 * number + 1) * slots_ + low + c;
        ScaleWeights(scores + r * count + c, Load<Floats>(scales));
      }
      Narrow(scores + r * count, count, weights + r * steps);
    }
    const W* values = packed_ + number * (key_size_ + value_size_) + key_size_ +
                      low / Steps::kDepth * Steps::kStride;
    Floats sums[kMostRows * kGroup];
    for (int64_t w = 0; w < a_.width; w += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (a_.width - w + kLanes - 1) / kLanes);
      Products(weights, steps, values + w * slots_, kLanes * slots_, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          StoreOut(head, QueryHead(head, first + r), w + t * kLanes, sums[r * kGroup + t]);
        }
      }
    }
  }

  // sums[row][tile] of `rows` rows and tiles that lie `stride` apart.
  static void Products(const X* x, int64_t x_stride, const W* tile, int64_t stride, int64_t tiles,
                       int64_t steps, int64_t rows, Floats* sums) {
    Tile<W> each[kGroup];
    for (int64_t t = 0; t < tiles; ++t) each[t] = {tile + t * stride, nullptr, nullptr};
    const XRows<Steps> all = {x, x_stride, nullptr};
    for (int64_t row = 0; row < rows;) {
      const auto [taken, run] = RunnerFor<Steps>(rows - row);
      run(all.from(row, 1), each, tiles, {steps, steps, 1}, sums + row * kGroup);
      row += taken;
    }
  }

  // Some queries of one head, from the cache as it is.
  void Direct(int64_t number, int64_t first, int64_t rows) {
    const Head head = HeadOf(number);
    const auto [low, high] = Range(head, first, rows);
    const int64_t end = std::min(high, a_.attended), count = high - low;
    const int64_t at_once = widen_ ? kSlotsAtOnce : count;
    float* scores = ThreadMemory<kScores, float>(rows * count);
    const int64_t wide = RoundUp(a_.size, kWidened) / Steps::kDepth;
    const X* queries = LoadQueries(head, first, rows, wide);
    for (int64_t c = low; c < end; c += at_once) {
      const int64_t some = std::min(at_once, end - c);
      const Slots<W> keys = Read(a_.key, head, c, some, a_.size);
      for (int64_t i = 0; i < some; i += kLanes) {
        const Floats scale = ScalesOf(a_.key, head, c + i, a_.size) * head.scale;
        for (int64_t r = 0; r < rows; ++r) {
          const Floats sums = DirectScores(keys, i, std::min(kLanes, some - i), queries + r * wide);
          Store(scores + r * count + c + i - low,
                Finished(sums, scale, Mask(head, first + r), c + i));
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      Softmax(scores + r * count, count, QueryHead(head, first + r));
    }
    for (int64_t c = low; a_.row_scale && c < high; c += kLanes) {
      const Floats scale = ScalesOf(a_.value, head, c, a_.width);
      for (int64_t r = 0; r < rows; ++r) ScaleWeights(scores + r * count + c - low, scale);
    }
    const int64_t columns = RoundUp(a_.width, kWidened);
    float* sums = ThreadMemory<kSums, float>(rows * columns);
    std::memset(sums, 0, rows * columns * sizeof(float));
    for (int64_t c = low; c < end; c += at_once) {
      const int64_t some = std::min(at_once, end - c);
      const Slots<W> values = Read(a_.value, head, c, some, a_.width);
      for (int64_t r = 0; r < rows;) {
        r += DirectSums<4>(values, some, rows - r, scores + r * count + c - low, count,
                           sums + r * columns);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t w = 0; w < a_.width; w += kLanes) {
        StoreOut(head, QueryHead(head, first + r), w, Load<Floats>(sums + r * columns + w));
      }
    }
  }

  // The products of one query and the keys of at most sixteen slots from `from` on; 0 beyond.
  static Floats DirectScores(Slots<W> keys, int64_t from, int64_t slots, const X* query) {
    Floats each[kLanes] = {};
    const int64_t whole = keys.size / Steps::kStride * Steps::kStride;
    for (int64_t i = 0; i < slots; ++i) {
      const W* key = keys.first + (from + i) * keys.stride;
      Floats sum = {};
      for (int64_t d = 0; d < whole; d += Steps::kStride) {
        sum = Steps::AddSteps(sum, key + d, query + d / Steps::kDepth);
      }
      if (whole < keys.size) {
        W rest[Steps::kStride] = {};
        std::memcpy(rest, key + whole, (keys.size - whole) * sizeof(W));
        sum = Steps::AddSteps(sum, rest, query + whole / Steps::kDepth);
      }
      each[i] = sum;
    }
    return Totals(each);
  }

  // Adds `count` weighted values to the sums of at most kRows queries; returns how many. Weights of
  // two queries are `stride` apart.
  template <int kRows>
  int64_t DirectSums(Slots<W> values, int64_t count, int64_t rows, const float* weights,
                     int64_t stride, float* sums) const {
    if constexpr (kRows > 1) {
      if (rows < kRows) {
        return DirectSums<kRows - 1>(values, count, rows, weights, stride, sums);
      }
    }
    for (int64_t w = 0; w < a_.width;) {
      w += kLanes * DirectTiles<kRows, 4>(values, count, w, weights, stride, sums);
    }
    return kRows;
  }

  // The same of at most kTiles times sixteen columns from w on; returns how many tiles.
  template <int kRows, int kTiles>
  int64_t DirectTiles(Slots<W> values, int64_t count, int64_t w, const float* weights,
                      int64_t stride, float* sums) const {
    if constexpr (kTiles > 1) {
      if (kRows * kTiles > kMostSums || values.size - w < kTiles * kLanes) {
        return DirectTiles<kRows, kTiles / 2>(values, count, w, weights, stride, sums);
      }
    }
    const int64_t columns = RoundUp(a_.width, kWidened);
    const int64_t lanes = std::min<int64_t>(kTiles * kLanes, values.size - w);
    Floats sum[kRows][kTiles];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) sum[r][t] = Load<Floats>(sums + r * columns + w + t * kLanes);
    }
    for (int64_t c = 0; c < count; ++c) {
      const W* value = values.first + c * values.stride + w;
      W rest[kLanes] = {};
      if (kTiles == 1 && lanes < kLanes) {
        std::memcpy(rest, value, lanes * sizeof(W));
        value = rest;
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Floats each = Steps::Widen(value + t * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][t] += each * weights[r * stride + c];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) Store(sums + r * columns + w + t * kLanes, sum[r][t]);
    }
    return kTiles;
  }

  const Attention& a_;
  const TaskPool& pool_;
  int64_t slots_;    // C in whole tiles
  int64_t queries_;  // of one head
  SlotWidener<W> widen_;  // of narrow numbers
  int64_t key_size_ = 0;
  int64_t value_size_ = 0;
  W* packed_ = nullptr;
  float* scales_ = nullptr;  // behind keys and values, [heads][2][C in whole tiles]
};

void RunAttention(const Attention& attention, const TaskPool& pool) {
  // Narrow numbers are widened to bf16 or to f32.
  if (attention.numbers != CacheNumbers::kPlain && attention.type == Type::kF16) {
    return AttentionRun<F32Steps>(attention, pool).Run();
  }
  switch (attention.type) {
    case Type::kBf16: return AttentionRun<Bf16Steps>(attention, pool).Run();
    case Type::kF16: return AttentionRun<F16Steps>(attention, pool).Run();
    case Type::kF32: return AttentionRun<F32Steps>(attention, pool).Run();
  }
}
