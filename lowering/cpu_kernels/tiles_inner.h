// Products in tiles: 16 rows of x, of 64 bytes each, with 16 columns of a weight. Included inside of a
// namespace, after linear_inner.h and a TileUnit.
//
// A sum is taken 32 bf16 or 64 bytes at a time in the order of K, for any number of rows: a row of
// the result does not depend on the other rows. In a tile a row of a weight is a step of four bytes of
// 16 columns, which is the packed form of bf16.

// Bytes of a step, and steps of a tile.
constexpr int64_t kStepBytes = 4, kTileSteps = 16, kTileBytes = 1024;
// Rows of x that are multiplied together: two tiles of them with two of a weight, so that each tile
// that is loaded serves two instructions.
constexpr int64_t kTileRows = 16, kMostTileRows = 32;

// The calling thread may use tiles while this lives. Not longer: other code has forms of its own, and
// a switch of threads saves what is in tiles.
class TileScope {
 public:
  TileScope() { TileUnit::Configure(); }
  ~TileScope() { TileUnit::Release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <bool kIntegers, int kSums, int kA, int kB>
inline void AddTiles() {
  if constexpr (kIntegers) TileUnit::AddBytes<kSums, kA, kB>();
  else TileUnit::AddBf16<kSums, kA, kB>();
}

// sums[row][tile][16] = x[row] · tile, of kRowTiles times 16 rows of x, `x_stride` bytes apart, and
// kTiles tiles. Reads `count` tiles of x and of each column. Rows of sums are kGroup vectors apart.
template <bool kIntegers, int kRowTiles, int kTiles>
void TileBlock(const char* x, int64_t x_stride, const char* const* tiles, int64_t count, char* sums) {
  constexpr int64_t kSumStride = kGroup * TileUnit::kBytes;
  TileUnit::Zero<0>();
  if constexpr (kTiles > 1) TileUnit::Zero<1>();
  if constexpr (kRowTiles > 1) TileUnit::Zero<2>();
  if constexpr (kRowTiles > 1 && kTiles > 1) TileUnit::Zero<3>();
  for (int64_t at = 0; at < count; ++at) {
    TileUnit::Load<4>(x + at * TileUnit::kBytes, x_stride);
    TileUnit::Load<6>(tiles[0] + at * kTileBytes, TileUnit::kBytes);
    AddTiles<kIntegers, 0, 4, 6>();
    if constexpr (kTiles > 1) {
      TileUnit::Load<7>(tiles[1] + at * kTileBytes, TileUnit::kBytes);
      AddTiles<kIntegers, 1, 4, 7>();
    }
    if constexpr (kRowTiles > 1) {
      TileUnit::Load<5>(x + kTileRows * x_stride + at * TileUnit::kBytes, x_stride);
      AddTiles<kIntegers, 2, 5, 6>();
      if constexpr (kTiles > 1) AddTiles<kIntegers, 3, 5, 7>();
    }
  }
  TileUnit::Store<0>(sums, kSumStride);
  if constexpr (kTiles > 1) TileUnit::Store<1>(sums + TileUnit::kBytes, kSumStride);
  if constexpr (kRowTiles > 1) {
    TileUnit::Store<2>(sums + kTileRows * kSumStride, kSumStride);
    if constexpr (kTiles > 1) {
      TileUnit::Store<3>(sums + kTileRows * kSumStride + TileUnit::kBytes, kSumStride);
    }
  }
}

// The same of at most kMostTileRows rows, of which memory has whole tiles, and at most kGroup columns
// of tiles. Sums are floats or integers, of whole tiles of rows.
template <bool kIntegers>
void TileSums(const char* x, int64_t x_stride, int64_t rows, const char* const* tiles, int64_t of_group,
              int64_t count, Floats* sums) {
  static_assert(sizeof(Floats) == TileUnit::kBytes);
  const bool both = rows > kTileRows;
  for (int64_t tile = 0; tile < of_group; tile += 2) {
    char* to = reinterpret_cast<char*>(sums + tile);
    const auto run = of_group - tile == 1 ? both ? TileBlock<kIntegers, 2, 1> : TileBlock<kIntegers, 1, 1>
                     : both               ? TileBlock<kIntegers, 2, 2>
                                          : TileBlock<kIntegers, 1, 2>;
    run(x, x_stride, tiles + tile, count, to);
  }
}
