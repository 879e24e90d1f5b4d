// Attention of many queries, included once per instruction set, inside of its namespace, after
// attention_step_inner.h.
//
// Keys and values are packed like weights, so that both products are the blocks of a linear layer:
// scores[rows, C] = q · packed keys, out[rows, W] = weights · packed values. Rows are the queries
// that read one head of the cache, s · group + g.

// Products of both kinds by vectors. Sums are kGroup vectors a row apart.
template <typename Form>
struct VectorProducts {
  using Steps = Form;
  using X = typename Steps::X;
  using W = typename Steps::W;
  // Rows of a block; depths and slots that sums are taken in.
  static constexpr int64_t kRows = kMostRows, kDepth = Steps::kDepth, kSlots = kLanes;

  // sums[row][tile] of `rows` rows, of which memory has kRows, and tiles that lie `stride` apart.
  void operator()(const X* x, int64_t x_stride, const W* tile, int64_t stride, int64_t tiles,
                  int64_t steps, int64_t rows, Floats* sums) const {
    Tile<W> each[kGroup];
    for (int64_t t = 0; t < tiles; ++t) each[t] = {tile + t * stride, nullptr, nullptr};
    const XRows<Steps> all = {x, x_stride, nullptr};
    for (int64_t row = 0; row < rows;) {
      const auto [taken, run] = RunnerFor<Steps>(rows - row);
      run(all.from(row, 1), each, tiles, {steps, steps, 1}, sums + row * kGroup);
      row += taken;
    }
  }
};

template <typename Products>
class PackedAttention {
 public:
  using Steps = typename Products::Steps;
  using X = typename Steps::X;
  using W = typename Steps::W;
  using Operands = AttentionOperands<Steps>;
  using Head = typename Operands::Head;

  PackedAttention(const Attention& attention, const TaskPool& pool)
      : a_(attention),
        of_(attention),
        pool_(pool),
        slots_(RoundUp(a_.attended, Products::kSlots)),
        queries_(a_.active * a_.group()),
        depth_(RoundUp(a_.size, Products::kDepth)),
        key_size_(RoundUp(a_.attended, kLanes) * depth_),
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
  static constexpr int64_t kBlockRows = Products::kRows;

  // Tiles of the keys and the values of a head, and the scales of their slots.
  void Pack(int64_t number) {
    const Head head = of_.HeadOf(number);
    W* keys = packed_ + number * (key_size_ + value_size_);
    W* values = keys + key_size_;
    const int64_t packed = RoundUp(a_.size, Steps::kDepth);
    for (int64_t c = 0; c < a_.attended; c += kLanes) {
      const int64_t count = std::min(kLanes, a_.attended - c);
      W* tile = keys + c * depth_;
      PackKeys<Steps>(of_.Read(a_.key, head, c, count, a_.size), count, a_.size, tile);
      std::fill(tile + packed * kLanes, tile + depth_ * kLanes, W());
      PackValues<Steps>(of_.Read(a_.value, head, c, count, a_.width), count, a_.width, slots_,
                        values + c / Steps::kDepth * Steps::kStride);
      if (!a_.row_scale) continue;
      float* scales = scales_ + 2 * number * slots_ + c;
      Store(scales, of_.ScalesOf(a_.key, head, c, a_.size));
      Store(scales + slots_, of_.ScalesOf(a_.value, head, c, a_.width));
    }
    const int64_t last = RoundUp(a_.attended, kLanes);
    for (int64_t w = 0; last < slots_ && w < a_.width; w += kLanes) {
      std::fill(values + w * slots_ + last * kLanes, values + (w + kLanes) * slots_, W());
    }
  }

  void Block(int64_t number, int64_t first, int64_t rows) {
    const Products products{};
    const Head head = of_.HeadOf(number);
    const int64_t group = a_.group();
    const auto [seen, high] = of_.Visible(head.b, first / group, (first + rows - 1) / group + 1);
    // Sums of slots begin at the same ones whatever the rows of a block see.
    const int64_t low = seen / Products::kSlots * Products::kSlots, count = high - low;
    const int64_t steps = depth_ / Steps::kDepth, wide = RoundUp(a_.size, kLanes);
    const X* queries = of_.LoadQueries(head, first, rows, kBlockRows, wide);
    float* scores = ThreadMemory<kScores, float>(rows * count);
    const W* keys = packed_ + number * (key_size_ + value_size_);
    Floats sums[kBlockRows * kGroup], tops[kBlockRows];
    for (int64_t r = 0; r < rows; ++r) tops[r] = Splat(-FLT_MAX);
    for (int64_t c = low; c < high; c += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (high - c) / kLanes);
      products(queries, wide, keys + c * depth_, kLanes * depth_, tiles, steps, rows, sums);
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
    Weigh(products, number, first, rows, low, count, scores, tops);
  }

  // The weighted sums of the values, from scores of the slots [low, low + count) and the largest in
  // each lane.
  void Weigh(const Products& products, int64_t number, int64_t first, int64_t rows, int64_t low,
             int64_t count, const float* scores, const Floats* tops) {
    const Head head = of_.HeadOf(number);
    const int64_t steps = RoundUp(count, Products::kSlots) / Steps::kDepth;
    X* weights = ThreadMemory<kWeights, X>(kBlockRows * steps);
    const float* scales = a_.row_scale ? scales_ + (2 * number + 1) * slots_ + low : nullptr;
    float factors[kBlockRows];
    for (int64_t r = 0; r < rows; ++r) {
      const float* own = scores + r * count;
      const float sink = of_.Sink(of_.QueryHead(head, first + r));
      const float top = std::max(sink, Operands::Largest(tops[r]));
      const float sum = of_.Weigh(own, count, top, scales, weights + r * steps);
      std::fill(weights + r * steps + count / Steps::kDepth, weights + (r + 1) * steps, X());
      factors[r] = 1.0f / (a_.sinks ? sum + Exp(Splat(sink - top))[0] : sum);
    }
    const W* values = packed_ + number * (key_size_ + value_size_) + key_size_ +
                      low / Steps::kDepth * Steps::kStride;
    Floats sums[kBlockRows * kGroup];
    for (int64_t w = 0; w < a_.width; w += kGroup * kLanes) {
      const int64_t tiles = std::min<int64_t>(kGroup, (a_.width - w + kLanes - 1) / kLanes);
      products(weights, steps, values + w * slots_, kLanes * slots_, tiles, steps, rows, sums);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
          of_.StoreOut(head, of_.QueryHead(head, first + r), w + t * kLanes,
                       sums[r * kGroup + t] * factors[r]);
        }
      }
    }
  }

  const Attention& a_;
  Operands of_;
  const TaskPool& pool_;
  int64_t slots_;    // C in whole tiles
  int64_t queries_;  // of one head
  int64_t depth_;    // D in whole tiles
  int64_t key_size_;
  int64_t value_size_;
  W* packed_ = nullptr;
  float* scales_ = nullptr;  // behind keys and values, [heads][2][C in whole tiles]
};
