// RunAttention, included once per instruction set, inside of its namespace, after linear_inner.h.
//
// Keys and values are packed like weights, so that both products are the blocks of a linear layer:
// scores[rows, C] = q · packed keys, out[rows, W] = weights · packed values. Rows are the queries
// that read one head of the cache, s · group + g. A step of few queries reads the cache as it is:
// packing would take longer than the products.

// Queries of one head below which nothing is packed.
constexpr int64_t kFewQueries = 12;

inline int64_t RoundUp(int64_t size, int64_t to) { return (size + to - 1) / to * to; }

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
        element_(a_.type == Type::kF32 ? 4 : 2) {}

  void Run() {
    const int64_t heads = a_.batch * a_.kv_heads;
    if (queries_ < kFewQueries) {
      // Few heads are cut in two, so that all threads have about as much to do.
      const int64_t parts = queries_ > 1 && heads < 4 * (pool_.helpers + 1) ? 2 : 1;
      const int64_t rows = (queries_ + parts - 1) / parts;
      ParallelFor(pool_, heads * parts, [&](int64_t part) {
        const int64_t first = part / heads * rows;
        Direct(part % heads, first, std::min(rows, queries_ - first));
      });
      return;
    }
    key_size_ = slots_ * RoundUp(a_.size, Steps::kDepth);
    value_size_ = slots_ * RoundUp(a_.width, kLanes);
    packed_.reset(new W[heads * (key_size_ + value_size_)]);
    ParallelFor(pool_, heads, [&](int64_t head) { Pack(head); });
    const int64_t blocks = (queries_ + kBlockRows - 1) / kBlockRows;
    // Later queries of a causal mask read more: they start first.
    ParallelFor(pool_, heads * blocks, [&](int64_t part) {
      const int64_t first = (blocks - 1 - part / heads) * kBlockRows;
      Block(part % heads, first, std::min(kBlockRows, queries_ - first));
    });
  }

 private:
  static constexpr int64_t kBlockRows = 12;

  struct Head {
    int64_t b, k;
  };

  Head HeadOf(int64_t head) const { return {head / a_.kv_heads, head % a_.kv_heads}; }

  // The elements of slot c of a head of a cache.
  const W* Slot(const void* cache, Head head, int64_t c, int64_t size) const {
    const int64_t slot = (a_.row(head.b) * a_.cache_slots + c) * a_.kv_heads + head.k;
    return static_cast<const W*>(cache) + slot * size;
  }

  int64_t QueryHead(Head head, int64_t query) const {
    const int64_t s = query / a_.group(), g = query % a_.group();
    return (head.b * a_.active + s) * a_.heads + head.k * a_.group() + g;
  }

  const uint8_t* Mask(Head head, int64_t query) const {
    return a_.mask + (head.b * a_.active + query / a_.group()) * a_.attended;
  }

  // Keys as tiles of 16 slots, [C / 16][D / step][16][step]; values as tiles of 16 columns,
  // [W / 16][C / step][16][step]. Zero beyond C, D and W.
  void Pack(int64_t number) {
    const Head head = HeadOf(number);
    W* keys = packed_.get() + number * (key_size_ + value_size_);
    W* values = keys + key_size_;
    std::memset(keys, 0, (key_size_ + value_size_) * sizeof(W));
    const int64_t depth = RoundUp(a_.size, Steps::kDepth);
    for (int64_t c = 0; c < a_.attended; ++c) {
      const W* key = Slot(a_.key, head, c, a_.size);
      W* to = keys + c / kLanes * kLanes * depth + c % kLanes * Steps::kDepth;
      for (int64_t d = 0; d < a_.size; ++d) {
        to[d / Steps::kDepth * Steps::kStride + d % Steps::kDepth] = key[d];
      }
      const W* value = Slot(a_.value, head, c, a_.width);
      to = values + c / Steps::kDepth * Steps::kStride + c % Steps::kDepth;
      for (int64_t w = 0; w < a_.width; ++w) {
        to[w / kLanes * kLanes * slots_ + w % kLanes * Steps::kDepth] = value[w];
      }
    }
  }

  // The slots that any of these queries reads, [first, last), in whole tiles; all if it is none:
  // the weights of a query that reads nothing are equal.
  std::pair<int64_t, int64_t> Range(Head head, int64_t first, int64_t rows) const {
    int64_t low = slots_, high = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* mask = Mask(head, first + r);
      int64_t from = 0, to = a_.attended;
      while (from < to && !mask[from]) ++from;
      while (to > from && !mask[to - 1]) --to;
      if (from == to) return {0, slots_};
      low = std::min(low, from);
      high = std::max(high, to);
    }
    return {low / kLanes * kLanes, RoundUp(high, kLanes)};
  }

  // Scores of 16 slots from c on: scaled, capped and masked; minus infinity beyond C.
  Floats Finished(Floats sums, const uint8_t* mask, int64_t c) const {
    Floats scores = sums * a_.scale;
    if (a_.softcap != 0.0f) {
      // tanh(x) = 1 - 2 / (e^2x + 1)
      const Floats power = Exp(scores * (2.0f / a_.softcap));
      scores = (1.0f - 2.0f / (power + 1.0f)) * a_.softcap;
    }
    const int64_t lanes = std::min(kLanes, a_.attended - c);
    using Bytes = uint8_t __attribute__((vector_size(16)));
    Bytes bytes = {};
    std::memcpy(&bytes, mask + c, lanes);
    const Words read = (Words)(__builtin_convertvector(bytes, Words) != 0);
    scores = AsFloats(Choose(read, AsWords(scores), AsWords(Splat(-FLT_MAX))));
    for (int64_t lane = lanes; lane < kLanes; ++lane) scores[lane] = -INFINITY;
    return scores;
  }

  // Turns scores into weights, in place.
  void Softmax(float* scores, int64_t count, int64_t query_head) const {
    Floats tops = Splat(-INFINITY);
    for (int64_t c = 0; c < count; c += kLanes) {
      const Floats lanes = Load<Floats>(scores + c);
      tops = AsFloats(Choose((Words)(lanes > tops), AsWords(lanes), AsWords(tops)));
      // A NaN stays: it compares with nothing.
      tops = AsFloats(Choose((Words)(lanes != lanes), AsWords(lanes), AsWords(tops)));
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

  void StoreOut(int64_t query_head, int64_t w, Floats value) const {
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

  // Queries as steps, rows of them `stride` apart.
  void LoadQueries(Head head, int64_t first, int64_t rows, int64_t stride, X* to) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t start = QueryHead(head, first + r) * a_.size;
      for (int64_t d = 0; d < a_.size; d += kLanes) {
        float lanes[kLanes];
        Store(lanes, LoadWide(a_.type, a_.query, start + d, start + a_.size));
        Narrow(lanes, kLanes, to + r * stride + d / Steps::kDepth);
      }
    }
  }

  void Block(int64_t number, int64_t first, int64_t rows) {
    const Head head = HeadOf(number);
    const auto [low, high] = Range(head, first, rows);
    const int64_t count = high - low;
    const int64_t depth = RoundUp(a_.size, Steps::kDepth), steps = depth / Steps::kDepth;
    const int64_t wide = RoundUp(a_.size, kLanes);
    std::vector<X> queries(rows * wide, X());
    std::vector<float> scores(rows * count);
    LoadQueries(head, first, rows, wide, queries.data());
    const W* keys = packed_.get() + number * (key_size_ + value_size_);
    Floats sums[kMostRows * kGroup];
    for (int64_t c = low; c < high; c += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (high - c) / kLanes);
      Products(queries.data(), wide, keys + c * depth, kLanes * depth, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t slot = c + t * kLanes;
          Store(scores.data() + r * count + slot - low,
                Finished(sums[r * kGroup + t], Mask(head, first + r), slot));
        }
      }
    }
    Weigh(number, first, rows, low, count, scores.data());
  }

  // The weighted sums of the values, from scores of the slots [low, low + count).
  void Weigh(int64_t number, int64_t first, int64_t rows, int64_t low, int64_t count,
             float* scores) {
    const Head head = HeadOf(number);
    const int64_t steps = count / Steps::kDepth;
    std::vector<X> weights(rows * steps);
    for (int64_t r = 0; r < rows; ++r) {
      Softmax(scores + r * count, count, QueryHead(head, first + r));
      Narrow(scores + r * count, count, weights.data() + r * steps);
    }
    const W* values = packed_.get() + number * (key_size_ + value_size_) + key_size_ +
                      low / Steps::kDepth * Steps::kStride;
    Floats sums[kMostRows * kGroup];
    for (int64_t w = 0; w < a_.width; w += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (a_.width - w + kLanes - 1) / kLanes);
      Products(weights.data(), steps, values + w * slots_, kLanes * slots_, tiles, steps, rows,
               sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          StoreOut(QueryHead(head, first + r), w + t * kLanes, sums[r * kGroup + t]);
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
    const int64_t count = high - low, wide = RoundUp(a_.size, Steps::kStride) / Steps::kDepth;
    std::vector<X> queries(rows * wide, X());
    std::vector<float> scores(rows * count);
    LoadQueries(head, first, rows, wide, queries.data());
    for (int64_t c = low; c < high; c += kLanes) {
      for (int64_t r = 0; r < rows; ++r) {
        const Floats sums = DirectScores(head, c, queries.data() + r * wide);
        Store(scores.data() + r * count + c - low, Finished(sums, Mask(head, first + r), c));
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      Softmax(scores.data() + r * count, count, QueryHead(head, first + r));
    }
    const int64_t end = std::min(high, a_.attended);
    for (int64_t r = 0; r < rows;) {
      r += DirectSums<4>(head, first + r, rows - r, low, end, scores.data() + r * count, count);
    }
  }

  // The products of one query and the keys of sixteen slots from c on; 0 beyond C.
  Floats DirectScores(Head head, int64_t c, const X* query) const {
    Floats each[kLanes] = {};
    const int64_t slots = std::min(kLanes, a_.attended - c);
    const int64_t whole = a_.size / Steps::kStride * Steps::kStride;
    for (int64_t i = 0; i < slots; ++i) {
      const W* key = Slot(a_.key, head, c + i, a_.size);
      Floats sum = {};
      for (int64_t d = 0; d < whole; d += Steps::kStride) {
        sum = Steps::AddSteps(sum, key + d, query + d / Steps::kDepth);
      }
      if (whole < a_.size) {
        W rest[Steps::kStride] = {};
        std::memcpy(rest, key + whole, (a_.size - whole) * sizeof(W));
        sum = Steps::AddSteps(sum, rest, query + whole / Steps::kDepth);
      }
      each[i] = sum;
    }
    return Totals(each);
  }

  // The weighted sums of the values in [low, end) for at most kRows queries; returns how many.
  template <int kRows>
  int64_t DirectSums(Head head, int64_t first, int64_t rows, int64_t low, int64_t end,
                     const float* weights, int64_t count) const {
    if constexpr (kRows > 1) {
      if (rows < kRows) {
        return DirectSums<kRows - 1>(head, first, rows, low, end, weights, count);
      }
    }
    for (int64_t w = 0; w < a_.width;) {
      w += kLanes * DirectTiles<kRows, 4>(head, first, w, low, end, weights, count);
    }
    return kRows;
  }

  // At most kTiles times sixteen columns from w on; returns how many tiles.
  template <int kRows, int kTiles>
  int64_t DirectTiles(Head head, int64_t first, int64_t w, int64_t low, int64_t end,
                      const float* weights, int64_t count) const {
    if constexpr (kTiles > 1) {
      if (kRows * kTiles > kMostSums || a_.width - w < kTiles * kLanes) {
        return DirectTiles<kRows, kTiles / 2>(head, first, w, low, end, weights, count);
      }
    }
    Floats sums[kRows][kTiles] = {};
    const int64_t lanes = std::min<int64_t>(kTiles * kLanes, a_.width - w);
    for (int64_t c = low; c < end; ++c) {
      const W* value = Slot(a_.value, head, c, a_.width) + w;
      W rest[kLanes] = {};
      if (kTiles == 1 && lanes < kLanes) {
        std::memcpy(rest, value, lanes * sizeof(W));
        value = rest;
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Floats each = Steps::Widen(value + t * kLanes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sums[r][t] += each * weights[r * count + c - low];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTiles; ++t) {
        StoreOut(QueryHead(head, first + r), w + t * kLanes, sums[r][t]);
      }
    }
    return kTiles;
  }

  const Attention& a_;
  const TaskPool& pool_;
  int64_t slots_;    // C in whole tiles
  int64_t queries_;  // of one head
  int64_t element_;  // bytes
  int64_t key_size_ = 0;
  int64_t value_size_ = 0;
  std::unique_ptr<W[]> packed_;
};

void RunAttention(const Attention& attention, const TaskPool& pool) {
  switch (attention.type) {
    case Type::kBf16: return AttentionRun<Bf16Steps>(attention, pool).Run();
    case Type::kF16: return AttentionRun<F16Steps>(attention, pool).Run();
    case Type::kF32: return AttentionRun<F32Steps>(attention, pool).Run();
  }
}
