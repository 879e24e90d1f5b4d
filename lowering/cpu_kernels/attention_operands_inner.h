// What both ways of an attention read and write, included once per instruction set, inside of its
// namespace, after attention_pack_inner.h.

// The operands of an attention, of which a head is read as elements of a product.
template <typename Steps>
class AttentionOperands {
 public:
  using X = typename Steps::X;
  using W = typename Steps::W;

  explicit AttentionOperands(const Attention& attention)
      : a_(attention), widen_(WidenerOf<W>(a_.numbers)) {}

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

  // The slots that any query of the positions [first, end) reads, in whole tiles; all if one reads
  // none: its weights are equal.
  std::pair<int64_t, int64_t> Visible(int64_t b, int64_t first, int64_t end) const {
    const int64_t all = RoundUp(a_.attended, kLanes);
    int64_t low = all, high = 0;
    for (int64_t s = first; s < end; ++s) {
      const uint8_t* mask = a_.mask + (b * a_.active + s) * a_.attended;
      int64_t from = 0, to = a_.attended;
      while (to - from >= 8 && !Load<uint64_t>(mask + from)) from += 8;
      while (from < to && !mask[from]) ++from;
      while (to - from >= 8 && !Load<uint64_t>(mask + to - 8)) to -= 8;
      while (to > from && !mask[to - 1]) --to;
      if (from == to) return {0, all};
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
    scores = WhereBytes(bytes, scores, Splat(-FLT_MAX));
    return lanes == kLanes ? scores : Before(lanes, scores);
  }

  void StoreOut(Head head, int64_t query_head, int64_t w, Floats value) const {
    const CacheScale& scale = a_.value_scale;
    const int64_t at = head.k * scale.per_head;
    if (scale.per_channel) value *= LoadWide(Type::kF32, scale.data, at + w, at + a_.width);
    else if (scale.data) value *= scale.data[at];
    const int64_t start = query_head * a_.width;
    StoreWide(a_.type, a_.out, start + w, start + a_.width, value);
  }

  // One more score of a query, without a value; the lowest f32 where there is none.
  float Sink(int64_t query_head) const {
    return a_.sinks ? a_.sinks[query_head % a_.heads] : -FLT_MAX;
  }

  // The larger of two scores. What is not a number may be passed over: it makes the sum of the powers
  // one that is not.
  static Floats Larger(Floats a, Floats b) { return Where(a > b, a, b); }

  static float Largest(Floats scores) {
    float top = scores[0];
    for (int lane = 1; lane < kLanes; ++lane) top = std::max(top, scores[lane]);
    return top;
  }

  // Turns scores into weights, as steps of a block take them: e^(score - top), times the scales of
  // the values if there are any. Returns the sum of the powers.
  float Weigh(const float* scores, int64_t count, float top, const float* scales, X* to) const {
    Floats sums = {};
    for (int64_t c = 0; c < count; c += kLanes) {
      const Floats power = Exp(Load<Floats>(scores + c) - top);
      sums += power;
      Floats weight = power;
      if (scales) weight = Rounded(a_.type, power) * Load<Floats>(scales + c);
      if constexpr (Steps::kDepth == 2) {
        Store(reinterpret_cast<uint16_t*>(to) + c, FloatsToBf16(weight));
      } else {
        Store(to + c, scales ? weight : Rounded(a_.type, weight));
      }
    }
    return Total(sums);
  }

  // Queries of a head as steps, zero beyond D; times the scales of the channels of the keys. Rows of
  // them `stride` apart, in memory of `all`.
  const X* LoadQueries(Head head, int64_t first, int64_t rows, int64_t all, int64_t stride) const {
    X* to = ThreadMemory<kQueries, X>(all * stride);
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
        X* lanes = to + r * stride + d / Steps::kDepth;
        if constexpr (Steps::kDepth == 2) Store(reinterpret_cast<uint16_t*>(lanes), FloatsToBf16(query));
        else Store(lanes, query);
      }
    }
    return to;
  }

  // Whether numbers of the cache are widened before they are elements of a product.
  bool widens() const { return widen_ != nullptr; }

 private:
  const Attention& a_;
  SlotWidener<W> widen_;  // of narrow numbers
};
