// RunAttention in tiles, included inside of a namespace, after tiles_inner.h and attention_inner.h.

// Both products of an attention in tiles: 32 channels of a key, and 32 slots of values, at a time.
struct TileProducts {
  using Steps = Bf16Steps;
  using X = Steps::X;
  using W = Steps::W;
  static constexpr int64_t kRows = kMostTileRows, kDepth = kTileSteps * Steps::kDepth, kSlots = kDepth;

  void operator()(const X* x, int64_t x_stride, const W* tile, int64_t stride, int64_t tiles,
                  int64_t steps, int64_t rows, Floats* sums) const {
    const char* each[kGroup];
    for (int64_t t = 0; t < tiles; ++t) each[t] = reinterpret_cast<const char*>(tile + t * stride);
    TileSums<false>(reinterpret_cast<const char*>(x), x_stride * kStepBytes, rows, each, tiles,
                    steps / kTileSteps, sums);
  }

 private:
  TileScope scope_;
};

// Computes an attention of many queries a head; false if it is not one of bf16.
bool RunAttention(const Attention& attention, const TaskPool& pool) {
  if (attention.type != Type::kBf16 || attention.active * attention.group() < kFewQueries) return false;
  PackedAttention<TileProducts>(attention, pool).Run();
  return true;
}
