// RunAttention, included once per instruction set, inside of its namespace, after
// attention_step_inner.h.
//
// Keys and values are packed like weights, so that both products are the blocks of a linear layer:
// scores[rows, C] = q · packed keys, out[rows, W] = weights · packed values. Rows are the queries
// that read one head of the cache, s · group + g.

template <typename Steps>
class PackedAttention {
 public:
  using X = typename Steps::X;
  using W = typename Steps::W;
  using Operands = AttentionOperands<Steps>;
  using Head = typename Operands::Head;

  PackedAttention(const Attention& attention, const TaskPool& pool)
      : a_(attention),
        of_(attention),
        pool_(pool),
        slots_(RoundUp(a_.attended, kLanes)),
        queries_(a_.active * a_.group()),
        key_size_(slots_ * RoundUp(a_.size, Steps::kDepth)),
        value_size_(slots_ * RoundUp(a_.width, kLanes)) {}

  void Run() {
    const int64_t heads = a_.batch * a_.kv_heads;
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

  // Tiles of the keys and the values of a head, and the scales of their slots.
  void Pack(int64_t number) {
    const Head head = of_.HeadOf(number);
    W* keys = packed_ + number * (key_size_ + value_size_);
    W* values = keys + key_size_;
    const int64_t depth = RoundUp(a_.size, Steps::kDepth);
    for (int64_t c = 0; c < a_.attended; c += kLanes) {
      const int64_t count = std::min(kLanes, a_.attended - c);
      PackKeys<Steps>(of_.Read(a_.key, head, c, count, a_.size), count, a_.size, keys + c * depth);
      PackValues<Steps>(of_.Read(a_.value, head, c, count, a_.width), count, a_.width, slots_,
                        values + c / Steps::kDepth * Steps::kStride);
      if (!a_.row_scale) continue;
      float* scales = scales_ + 2 * number * slots_ + c;
      Store(scales, of_.ScalesOf(a_.key, head, c, a_.size));
      Store(scales + slots_, of_.ScalesOf(a_.value, head, c, a_.width));
    }
  }

  void Block(int64_t number, int64_t first, int64_t rows) {
    const Head head = of_.HeadOf(number);
    const int64_t group = a_.group();
    const auto [low, high] = of_.Visible(head.b, first / group, (first + rows - 1) / group + 1);
    const int64_t count = high - low;
    const int64_t depth = RoundUp(a_.size, Steps::kDepth), steps = depth / Steps::kDepth;
    const int64_t wide = RoundUp(a_.size, kLanes);
    const X* queries = of_.LoadQueries(head, first, rows, wide);
    float* scores = ThreadMemory<kScores, float>(rows * count);
    const W* keys = packed_ + number * (key_size_ + value_size_);
    Floats sums[kMostRows * kGroup], tops[kBlockRows];
    for (int64_t r = 0; r < rows; ++r) tops[r] = Splat(-FLT_MAX);
    for (int64_t c = low; c < high; c += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (high - c) / kLanes);
      Products(queries, wide, keys + c * depth, kLanes * depth, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* mask = of_.Mask(head, first + r);
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t slot = c + t * kLanes;
          Floats scale = Splat(head.scale);
          if (a_.row_scale) scale *= Load<Floats>(scales_ + 2 * number * slots_ + slot);
          const Floats each = of_.Finished(sums[r * kGroup + t], scale, mask, slot);
          Store(scores + r * count + slot - low, each);
          tops[r] = Operands::Larger(each, tops[r]);
        }
      }
    }
    Weigh(number, first, rows, low, count, scores, tops);
  }

  // The weighted sums of the values, from scores of the slots [low, low + count) and the largest in
  // each lane.
  void Weigh(int64_t number, int64_t first, int64_t rows, int64_t low, int64_t count,
             const float* scores, const Floats* tops) {
    const Head head = of_.HeadOf(number);
    const int64_t steps = count / Steps::kDepth;
    X* weights = ThreadMemory<kWeights, X>(rows * steps);
    const float* scales = a_.row_scale ? scales_ + (2 * number + 1) * slots_ + low : nullptr;
    float factors[kBlockRows];
    for (int64_t r = 0; r < rows; ++r) {
      const float* own = scores + r * count;
      const float sink = of_.Sink(of_.QueryHead(head, first + r));
      const float top = std::max(sink, Operands::Largest(tops[r]));
      const float sum = of_.Weigh(own, count, top, scales, weights + r * steps);
      factors[r] = 1.0f / (a_.sinks ? sum + Exp(Splat(sink - top))[0] : sum);
    }
    const W* values = packed_ + number * (key_size_ + value_size_) + key_size_ +
                      low / Steps::kDepth * Steps::kStride;
    Floats sums[kMostRows * kGroup];
    for (int64_t w = 0; w < a_.width; w += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (a_.width - w + kLanes - 1) / kLanes);
      Products(weights, steps, values + w * slots_, kLanes * slots_, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          of_.StoreOut(head, of_.QueryHead(head, first + r), w + t * kLanes,
                       sums[r * kGroup + t] * factors[r]);
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

  const Attention& a_;
  Operands of_;
  const TaskPool& pool_;
  int64_t slots_;    // C in whole tiles
  int64_t queries_;  // of one head
  int64_t key_size_;
  int64_t value_size_;
  W* packed_ = nullptr;
  float* scales_ = nullptr;  // behind keys and values, [heads][2][C in whole tiles]
};

template <typename Steps>
void RunAttentionOf(const Attention& attention, const TaskPool& pool) {
  if (attention.active * attention.group() < kFewQueries) {
    return AttentionStep<Steps>(attention, pool).Run();
  }
  PackedAttention<Steps>(attention, pool).Run();
}

void RunAttention(const Attention& attention, const TaskPool& pool) {
  // Narrow numbers are widened to bf16 or to f32.
  if (attention.numbers != CacheNumbers::kPlain && attention.type == Type::kF16) {
    return RunAttentionOf<F32Steps>(attention, pool);
  }
  switch (attention.type) {
    case Type::kBf16: return RunAttentionOf<Bf16Steps>(attention, pool);
    case Type::kF16: return RunAttentionOf<F16Steps>(attention, pool);
    case Type::kF32: return RunAttentionOf<F32Steps>(attention, pool);
  }
}
