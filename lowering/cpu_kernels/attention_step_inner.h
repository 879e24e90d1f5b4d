// Attention of few queries, included once per instruction set, inside of its namespace, after
// attention_operands_inner.h.
//
// The cache is read once, as it is: packing would take longer than the products. Slots are taken in
// pieces that begin at multiples of their size, so that all threads have as much to do with one row
// as with many, and a query's sums are the same whatever stands beside it. A piece of a head gives for
// each query its largest score, the sum of the powers of its scores over that, and the values
// weighted by those; a query's pieces are then added in their order.

// Queries of one head below which nothing is packed.
constexpr int64_t kFewQueries = 12;
// Slots of a piece. Keys and values of one fit into a core's first cache.
constexpr int64_t kPieceSlots = 128;
// Pieces above which threads share the additions.
constexpr int64_t kManyPieces = 64;

template <typename Steps>
class AttentionStep {
 public:
  using X = typename Steps::X;
  using W = typename Steps::W;
  using Operands = AttentionOperands<Steps>;
  using Head = typename Operands::Head;

  AttentionStep(const Attention& attention, const TaskPool& pool)
      : a_(attention),
        of_(attention),
        pool_(pool),
        queries_(a_.active * a_.group()),
        columns_(RoundUp(a_.width, kLanes)) {}

  void Run() {
    spans_ = ThreadMemory<kSpans, Span>(a_.batch);
    int64_t pieces = 0;
    for (int64_t b = 0; b < a_.batch; ++b) {
      const auto [low, high] = of_.Visible(b, 0, a_.active);
      spans_[b] = {low, high, pieces};
      pieces += spans_[b].pieces();
    }
    parts_ = pieces * a_.kv_heads;
    const KeptMemory memory(parts_ * queries_ * (kLanes + columns_) * sizeof(float));
    partial_ = static_cast<float*>(memory.data());
    ParallelFor(pool_, parts_, [&](int64_t part) { RunPart(part); });
    const TaskPool alone;
    ParallelFor(pieces > kManyPieces ? pool_ : alone, a_.batch * a_.kv_heads,
                [&](int64_t head) { AddPieces(of_.HeadOf(head)); });
  }

 private:
  // The slots that the queries of a row read, in whole tiles, and the pieces of the rows before it.
  struct Span {
    int64_t low, high, before;

    int64_t first() const { return low / kPieceSlots; }
    int64_t pieces() const { return (high + kPieceSlots - 1) / kPieceSlots - first(); }
  };

  // A piece of a head.
  struct Part {
    Head head;
    int64_t low, high;
  };

  // Parts of all heads of a piece follow each other: their slots lie side by side.
  Part PartOf(int64_t part) const {
    const int64_t piece = part / a_.kv_heads;
    const Span* span = std::upper_bound(spans_, spans_ + a_.batch, piece,
                                        [](int64_t at, const Span& of) { return at < of.before; }) - 1;
    const int64_t start = (span->first() + piece - span->before) * kPieceSlots;
    return {of_.HeadOf((span - spans_) * a_.kv_heads + part % a_.kv_heads),
            std::max(span->low, start), std::min(span->high, start + kPieceSlots)};
  }

  // Of a query in a part: the largest score, the sum of powers, and from kLanes on the weighted sums.
  float* Partial(int64_t part, int64_t query) const {
    return partial_ + (part * queries_ + query) * (kLanes + columns_);
  }

  void RunPart(int64_t part) const {
    const auto [head, low, high] = PartOf(part);
    const int64_t count = high - low, real = std::min(high, a_.attended) - low;
    float* scores = ThreadMemory<kScores, float>(queries_ * kPieceSlots);
    Floats tops[kFewQueries];
    Score(head, low, count, real, scores, tops);
    float scales[kPieceSlots];
    for (int64_t c = 0; a_.row_scale && c < count; c += kLanes) {
      Store(scales + c, of_.ScalesOf(a_.value, head, low + c, a_.width));
    }
    for (int64_t query = 0; query < queries_; ++query) {
      const float* own = scores + query * kPieceSlots;
      float* partial = Partial(part, query);
      partial[0] = Operands::Largest(tops[query]);
      partial[1] = of_.Weigh(own, count, partial[0], a_.row_scale ? scales : nullptr, WeightsOf(query));
    }
    const Slots<W> values = of_.Read(a_.value, head, low, real, a_.width);
    const Ahead ahead = part + 1 < parts_ ? KeysOf(PartOf(part + 1)) : Ahead{};
    for (int64_t query = 0; query < queries_;) {
      query += Sums<4>(values, real, part, query, query ? Ahead{} : ahead);
    }
  }

  // Lines of slots that are asked for, `stride` bytes apart.
  struct Ahead {
    const char* first = nullptr;
    int64_t stride = 0, bytes = 0;

    void Fetch(int64_t slot) const {
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + slot * stride + at, 0, 2);
    }
  };

  Ahead AheadOf(const void* cache, Head head, int64_t c, int64_t size) const {
    const int64_t bytes = of_.widens() ? of_.KeptBytes(size) : size * int64_t{sizeof(W)};
    return {static_cast<const char*>(cache) + of_.SlotOf(head, c) * bytes, a_.kv_heads * bytes, bytes};
  }

  Ahead KeysOf(const Part& part) const { return AheadOf(a_.key, part.head, part.low, a_.size); }

  // Scores of all queries in a piece, those of a query kPieceSlots apart, and the largest in each
  // lane. Asks for the values.
  void Score(Head head, int64_t low, int64_t count, int64_t real, float* scores,
             Floats* tops) const {
    const uint8_t* masks[kFewQueries];
    for (int64_t query = 0; query < queries_; ++query) {
      tops[query] = Splat(-FLT_MAX), masks[query] = of_.Mask(head, query);
    }
    const int64_t wide = RoundUp(a_.size, kWidened) / Steps::kDepth;
    const X* queries = of_.LoadQueries(head, 0, queries_, queries_, wide);
    const Slots<W> keys = of_.Read(a_.key, head, low, real, a_.size);
    const Ahead values = AheadOf(a_.value, head, low, a_.width);
    for (int64_t c = 0; c < count; c += kLanes) {
      const int64_t end = std::min(real, c + kLanes);
      for (int64_t slot = c; slot < end; ++slot) values.Fetch(slot);
      const Floats scale = of_.ScalesOf(a_.key, head, low + c, a_.size) * head.scale;
      for (int64_t query = 0; query < queries_; ++query) {
        const Floats sums = Products(keys, c, end - c, queries + query * wide);
        const Floats each = of_.Finished(sums, scale, masks[query], low + c);
        Store(scores + query * kPieceSlots + c, each);
        tops[query] = Operands::Larger(each, tops[query]);
      }
    }
  }

  // The products of one query and the keys of at most sixteen slots from `from` on.
  static Floats Products(Slots<W> keys, int64_t from, int64_t slots, const X* query) {
    const W* first = keys.first + from * keys.stride;
    if (keys.size == 2 * Steps::kStride) return Products<2>(first, keys, slots, query);
    if (keys.size == 4 * Steps::kStride) return Products<4>(first, keys, slots, query);
    return Products<0>(first, keys, slots, query);
  }

  // The same of heads of kSteps vectors, 0 for any size.
  template <int kSteps>
  static Floats Products(const W* first, Slots<W> keys, int64_t slots, const X* query) {
    const int64_t whole = (kSteps ? kSteps : keys.size / Steps::kStride) * Steps::kStride;
    return Totals([&](int64_t slot) __attribute__((always_inline)) {
      // Beyond the last slot, that of the last.
      const W* key = first + std::min(slot, slots - 1) * keys.stride;
      Floats sum = {};
#pragma GCC unroll 4
      for (int64_t d = 0; d < whole; d += Steps::kStride) {
        sum = Steps::AddSteps(sum, key + d, query + d / Steps::kDepth);
      }
      if (!kSteps && whole < keys.size) {
        W rest[Steps::kStride] = {};
        std::memcpy(rest, key + whole, (keys.size - whole) * sizeof(W));
        sum = Steps::AddSteps(sum, rest, query + whole / Steps::kDepth);
      }
      return sum;
    });
  }

  // The weighted values of at most kRows queries from `query` on, to their partials; returns how many.
  template <int kRows>
  int64_t Sums(Slots<W> values, int64_t real, int64_t part, int64_t query, const Ahead& ahead) const {
    if constexpr (kRows > 1) {
      if (queries_ - query < kRows) return Sums<kRows - 1>(values, real, part, query, ahead);
    }
    for (int64_t w = 0; w < a_.width;) {
      w += kLanes * Tiles<kRows, 4>(values, real, part, query, w, w ? Ahead{} : ahead);
    }
    return kRows;
  }

  // The same of at most kTiles times sixteen columns from w on; returns how many tiles.
  template <int kRows, int kTiles>
  int64_t Tiles(Slots<W> values, int64_t real, int64_t part, int64_t query, int64_t w,
                const Ahead& ahead) const {
    if constexpr (kTiles > 1) {
      if (kRows * kTiles > kMostSums || a_.width - w < kTiles * kLanes) {
        return Tiles<kRows, kTiles / 2>(values, real, part, query, w, ahead);
      }
    }
    const X* weights = WeightsOf(query);
    const int64_t lanes = std::min<int64_t>(kTiles * kLanes, a_.width - w);
    Floats sum[kRows][kTiles] = {};
    const auto add = [&](const W* first, const W* second, int64_t step) {
      typename Steps::Wide wide[kTiles];
      ReadValues<kTiles>(first, second, wide);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const X weight = weights[r * kPieceSlots + step];
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) sum[r][t] = Steps::Add(sum[r][t], wide[t], weight);
      }
    };
    const W* first = values.first + w;
    const int64_t steps = lanes == kTiles * kLanes ? real / Steps::kDepth : 0;
    for (int64_t step = 0; step < steps; ++step, first += Steps::kDepth * values.stride) {
      for (int64_t i = 0; i < Steps::kDepth; ++i) ahead.Fetch(step * Steps::kDepth + i);
      add(first, first + values.stride, step);
    }
    // Of what is left no element may be read that is not there.
    for (int64_t slot = steps * Steps::kDepth; slot < real; slot += Steps::kDepth) {
      W some[2][kTiles * kLanes] = {};
      for (int64_t i = 0; i < std::min(Steps::kDepth, real - slot); ++i, first += values.stride) {
        std::memcpy(some[i], first, lanes * sizeof(W));
      }
      add(some[0], some[1], slot / Steps::kDepth);
    }
    for (int r = 0; r < kRows; ++r) {
      float* to = Partial(part, query + r) + kLanes + w;
      for (int t = 0; t < kTiles; ++t) Store(to + t * kLanes, sum[r][t]);
    }
    return kTiles;
  }

  // A step of values in kTiles times sixteen columns.
  template <int kTiles>
  static void ReadValues(const W* first, const W* second, typename Steps::Wide* wide) {
    if constexpr (Steps::kDepth == 2) {
      PairRows<kTiles>(first, second, wide);
    } else {
      for (int t = 0; t < kTiles; ++t) wide[t] = Steps::Read(first + t * kLanes);
    }
  }

  // The weights of a query in the part that the thread is at.
  X* WeightsOf(int64_t query) const {
    return ThreadMemory<kWeights, X>(queries_ * kPieceSlots) + query * kPieceSlots;
  }

  // The results of the queries of a head, from the partials of its pieces.
  void AddPieces(Head head) const {
    const Span& span = spans_[head.b];
    const int64_t first = span.before * a_.kv_heads + head.k, pieces = span.pieces();
    for (int64_t query = 0; query < queries_; ++query) {
      const auto partial = [&](int64_t piece) { return Partial(first + piece * a_.kv_heads, query); };
      const int64_t query_head = of_.QueryHead(head, query);
      const float sink = of_.Sink(query_head);
      float top = sink;
      for (int64_t piece = 0; piece < pieces; ++piece) top = std::max(top, partial(piece)[0]);
      Floats sum = a_.sinks ? Exp(Splat(sink - top)) : Floats{};
      for (int64_t piece = 0; piece < pieces; ++piece) {
        float* facts = partial(piece);
        const Floats factor = Exp(Splat(facts[0] - top));
        sum = MultiplyAdd(Splat(facts[1]), factor, sum);
        Store(facts, factor);
      }
      const Floats factor = 1.0f / sum;
      for (int64_t w = 0; w < a_.width; w += kLanes) {
        Floats all = {};
        for (int64_t piece = 0; piece < pieces; ++piece) {
          const float* facts = partial(piece);
          all = MultiplyAdd(Load<Floats>(facts + kLanes + w), Load<Floats>(facts), all);
        }
        of_.StoreOut(head, query_head, w, all * factor);
      }
    }
  }

  const Attention& a_;
  AttentionOperands<Steps> of_;
  const TaskPool& pool_;
  int64_t queries_;  // of one head
  int64_t columns_;  // of a value, in whole tiles
  int64_t parts_ = 0;
  Span* spans_ = nullptr;
  float* partial_ = nullptr;
};
