// RunNorm, included once per instruction set, inside of its namespace, after elements_inner.h.

// Elements of a task, below which another thread costs more than it takes over.
constexpr int64_t kNormShare = 16384;

// A row of a norm; reads nothing where there is no factor.
class NormedRow {
 public:
  NormedRow(const Norm& norm, int64_t row)
      : norm_(norm), start_(row * norm.depth), end_(start_ + norm.depth) {
    if (!norm.norm) return;
    if (norm.offset) mean_ = Mean();
    scale_ = Scale();
  }

  // Sixteen elements from `at` on, not yet rounded to the norm's type.
  Floats At(int64_t at) const {
    const Floats value = LoadWide(norm_.x_type, norm_.x, start_ + at, end_);
    const Floats factor = LoadWide(norm_.type, norm_.norm, at, norm_.depth);
    if (!norm_.offset) return Rounded(norm_.type, value * scale_) * factor;
    const Floats offset = LoadWide(norm_.type, norm_.offset, at, norm_.depth);
    return MultiplyAdd((value - mean_) * scale_, factor, offset);
  }

 private:
  float Mean() const {
    Floats sums = {};
    for (int64_t at = start_; at < end_; at += kLanes) sums += LoadWide(norm_.x_type, norm_.x, at, end_);
    return Total(sums) / static_cast<float>(norm_.depth);
  }

  // 1 / sqrt(mean((x - mean)²) + epsilon)
  float Scale() const {
    Floats sums = {};
    for (int64_t at = start_; at < end_; at += kLanes) {
      Floats value = LoadWide(norm_.x_type, norm_.x, at, end_) - mean_;
      // What is beyond the end is zero, not as far from the mean.
      for (int64_t lane = end_ - at; lane < kLanes; ++lane) value[lane] = 0.0f;
      sums = MultiplyAdd(value, value, sums);
    }
    return 1.0f / std::sqrt(Total(sums) / static_cast<float>(norm_.depth) + norm_.epsilon);
  }

  const Norm& norm_;
  int64_t start_, end_;
  float mean_ = 0.0f;
  float scale_ = 1.0f;
};

void RunNorm(const Norm& norm, const TaskPool& pool) {
  const int64_t share = std::max<int64_t>(1, kNormShare / std::max<int64_t>(1, norm.depth));
  ParallelFor(pool, (norm.rows + share - 1) / share, [&](int64_t part) {
    const int64_t end = std::min(norm.rows, (part + 1) * share);
    for (int64_t row = part * share; row < end; ++row) {
      const NormedRow normed(norm, row);
      const int64_t start = row * norm.depth;
      for (int64_t at = 0; at < norm.depth; at += kLanes) {
        StoreWide(norm.type, norm.out, start + at, start + norm.depth, normed.At(at));
      }
    }
  });
}
