// Rows of x as integers of 8 bits with a scale a group. Part of linear_inner.h.

// Bytes that are asked for before the thread reads them where it reads one tile after the other.
constexpr int64_t kBytesAhead = 8192;

// The rows in the form of the blocks, zero beyond K, with the scale and the sum of each group. The
// memory is the thread's: one at a time. Few rows are made by each thread for itself, as of Rows.
template <typename Form>
class IntegerRows {
 public:
  using Steps = Form;
  using X = typename Steps::X;

  IntegerRows(const Linear& linear, const TaskPool& pool) : linear_(linear) {
    const int64_t steps = (linear.depth + Steps::kDepth - 1) / Steps::kDepth;
    depth_ = {steps, linear.x_group / Steps::kDepth, linear.groups(), linear.scale_type,
              linear.zero_type};
    if (depth_.groups == 1) depth_.of_group = steps;
    depth_.ahead = Ahead<Steps>(linear, steps);
    if (linear.rows == 1) {
      const int64_t tile = std::max<int64_t>(1, steps * Steps::kStride);
      depth_.ahead *= (kBytesAhead + tile - 1) / tile;
    }
    const int64_t share = 8;
    if (linear.rows <= share) {
      call_ = NextCall();
      return;
    }
    const Made made = {ThreadMemory<kRowsOfX, X>(linear.rows * steps),
                       ThreadMemory<kSumsOfX, float>(linear.rows * depth_.groups),
                       ThreadMemory<kScalesOfX, float>(linear.rows * depth_.groups)};
    ParallelFor(pool, (linear.rows + share - 1) / share, [&](int64_t part) {
      MakeRows(part * share, std::min(linear.rows, (part + 1) * share), made);
    });
    made_ = made;
  }

  // Those of the calling thread.
  XRows<Steps> rows() const {
    if (!call_) return Of(made_);
    const Made made = {ThreadMemory<kOwnIntegersOfX, X>(linear_.rows * depth_.steps),
                       ThreadMemory<kOwnIntegerSums, float>(linear_.rows * depth_.groups),
                       ThreadMemory<kOwnScalesOfX, float>(linear_.rows * depth_.groups)};
    if (LastCall() != call_) MakeRows(0, linear_.rows, made);
    LastCall() = call_;
    return Of(made);
  }

  const Depth& depth() const { return depth_; }

 private:
  struct Made {
    X* steps;
    float* sums;
    float* scales;
  };

  XRows<Steps> Of(const Made& made) const {
    return {made.steps, depth_.steps, made.sums, made.scales};
  }

  void MakeRows(int64_t first, int64_t end, const Made& made) const {
    for (int64_t row = first; row < end; ++row) Make(row, made);
  }

  void Make(int64_t row, const Made& made) const {
    const Linear& l = linear_;
    const Norm norm = {l.rows, l.depth, l.x_type, l.type, l.x, l.norm, l.offset, l.epsilon};
    const NormedRow normed(norm, row);
    const int64_t start = row * l.depth;
    // Whole vectors, so that what is beyond K can be stored.
    const int64_t padded = (l.depth + kLanes - 1) / kLanes * kLanes;
    float* floats = ThreadMemory<kFloatsOfX, float>(padded);
    for (int64_t at = 0; at < l.depth; at += kLanes) {
      const Floats value = l.norm ? normed.At(at)
                                  : LoadWide(l.x_type, l.x, start + at, start + l.depth);
      Store(floats + at, Rounded(l.type, value));
    }
    for (int64_t group = 0; group < depth_.groups; ++group) {
      const int64_t first = group * l.x_group, end = std::min(l.depth, first + l.x_group);
      const int64_t at = row * depth_.groups + group;
      made.scales[at] = ScaleOf(floats, first, end);
      X* to = made.steps + row * depth_.steps + first / Steps::kDepth;
      made.sums[at] = static_cast<float>(Numbers(floats, first, end, made.scales[at], to));
    }
  }

  // Sixteen numbers from `at` on, zeros from `end` on.
  static Floats Part(const float* floats, int64_t at, int64_t end) {
    return end - at >= kLanes ? Load<Floats>(floats + at) : LoadWide(Type::kF32, floats, at, end);
  }

  // The largest magnitude / 127; a NaN where there is one.
  static float ScaleOf(const float* floats, int64_t first, int64_t end) {
    Ints largest = {};
    for (int64_t at = first; at < end; at += kLanes) {
      // Without a sign, numbers are in the order of their bits, NaNs last.
      const Ints size = (Ints)(AsWords(Part(floats, at, end)) & 0x7fffffffu);
      largest = (Ints)Choose((Words)(size > largest), (Words)size, (Words)largest);
    }
#if defined(__AVX512F__)
    const int32_t most = _mm512_reduce_max_epi32((__m512i)largest);
#else
    int32_t most = 0;
    for (int lane = 0; lane < kLanes; ++lane) most = std::max<int32_t>(most, largest[lane]);
#endif
    const float scale = Load<float>(&most) / 127.0f;
    return scale < FLT_MIN ? FLT_MIN : scale;
  }

  // Stores the numbers of a group, and returns their sum; zeros with a scale that is not finite.
  static int32_t Numbers(const float* floats, int64_t first, int64_t end, float scale, X* to) {
    const bool finite = std::isfinite(scale);
    // 1.5 · 2^23: adding it rounds to an integer, to the nearest even one.
    const float magic = 12582912.0f;
    Ints sums = {};
    for (int64_t at = first; at < end; at += kLanes) {
      Ints numbers = {};
      if (finite) {
        const Floats steps = Part(floats, at, end) / Splat(scale);
        numbers = (Ints)(AsWords(steps + magic) - AsWords(Splat(magic)));
      }
      sums += numbers;
      int8_t bytes[kLanes];
      Store(bytes, Convert<Bytes>((Words)numbers));
      const int64_t lanes = std::min(kLanes, end - at);
      for (int64_t lane = 0; lane < lanes; lane += Steps::kDepth) *to++ = Steps::Ordered(bytes + lane);
    }
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)sums);
#else
    int32_t sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
    return sum;
#endif
  }

  const Linear& linear_;
  Depth depth_;
  Made made_ = {};
  // Of few rows, the number of the call.
  uint64_t call_ = 0;
};
