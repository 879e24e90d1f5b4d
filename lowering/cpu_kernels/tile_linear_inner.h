// RunLinear in tiles, included inside of a namespace, after tile_forms_inner.h.

// Rows from which on a product is one of tiles. Below, memory that a weight is read from decides.
constexpr int64_t kFewestTileRows = 16;

// How a row is cut into tiles: each group of steps begins with one, and its last is filled with zeros.
struct TileDepth {
  Depth depth;
  int64_t of_group;  // tiles
  bool whole;        // whether all tiles are full

  explicit TileDepth(const Depth& all)
      : depth(all), of_group((std::min(all.of_group, all.steps) + kTileSteps - 1) / kTileSteps),
        whole(all.steps % kTileSteps == 0 && (all.groups == 1 || all.of_group % kTileSteps == 0)) {}

  int64_t first(int64_t group) const { return group * depth.of_group; }
  int64_t end(int64_t group) const { return std::min(depth.steps, (group + 1) * depth.of_group); }
  // Tiles of a group, of which the last may be short.
  int64_t tiles(int64_t group) const { return (end(group) - first(group) + kTileSteps - 1) / kTileSteps; }
  int64_t all_tiles() const { return (depth.groups - 1) * of_group + tiles(depth.groups - 1); }
};

// Rows of x, of which memory has whole tiles.
struct TileX {
  const char* rows;
  int64_t stride;  // bytes
  const float* sums;
  const float* scales;
};

// The rows where they are, or where tiles are not full, a copy in memory of the calling thread.
template <typename Steps>
TileX TileXOf(const XRows<Steps>& x, int64_t rows, const TileDepth& depth, const TaskPool& pool) {
  static_assert(sizeof(typename Steps::X) == kStepBytes);
  const char* from = reinterpret_cast<const char*>(x.steps);
  const int64_t from_stride = x.stride * kStepBytes;
  if (depth.whole && rows % kTileRows == 0) return {from, from_stride, x.sums, x.scales};
  const int64_t stride = depth.all_tiles() * TileUnit::kBytes, share = 8;
  char* made = ThreadMemory<kTileRowsOfX, char>(RoundUp(rows, kTileRows) * stride);
  ParallelFor(pool, (rows + share - 1) / share, [&](int64_t part) {
    for (int64_t row = part * share; row < std::min(rows, (part + 1) * share); ++row) {
      char* to = made + row * stride;
      for (int64_t group = 0; group < depth.depth.groups; ++group) {
        const int64_t first = depth.first(group), bytes = (depth.end(group) - first) * kStepBytes;
        const int64_t filled = depth.tiles(group) * TileUnit::kBytes;
        std::memcpy(to, from + row * from_stride + first * kStepBytes, bytes);
        std::memset(to + bytes, 0, filled - bytes);
        to += filled;
      }
    }
  });
  return {made, stride, x.sums, x.scales};
}

// sums[row][tile] of at most kMostTileRows rows from `row` on, from the tiles of a weight.
template <bool kIntegers>
void GroupSums(const TileX& x, int64_t row, int64_t rows, const TileDepth& depth,
               const Tile<char>* tiles, int64_t count, Floats* sums) {
  const int64_t groups = depth.depth.groups;
  const bool scaled = kIntegers || tiles->scale != nullptr;
  Floats made[kMostTileRows * kGroup];
  Floats* own = scaled ? made : sums;
  for (int64_t group = 0; group < groups; ++group) {
    const char* numbers[kGroup];
    const int64_t before = group * depth.of_group;
    for (int64_t t = 0; t < count; ++t) numbers[t] = tiles[t].numbers + before * kTileBytes;
    TileSums<kIntegers>(x.rows + row * x.stride + before * TileUnit::kBytes, x.stride, rows, numbers,
                        count, depth.tiles(group), own);
    if (!scaled) continue;
    const bool less = kIntegers ? tiles->zero != nullptr : x.sums != nullptr;
    for (int64_t t = 0; t < count; ++t) {
      const GroupFacts facts(tiles[t], depth.depth, group);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = (row + r) * groups + group, place = r * kGroup + t;
        Floats sum = own[place];
        if constexpr (kIntegers) sum = Convert<Floats>((Ints)sum);
        sums[place] = facts.Add(group ? sums[place] : Floats{}, sum, less ? x.sums + at : nullptr,
                                kIntegers ? x.scales + at : nullptr);
      }
    }
  }
}

// The tiles of a weight in their form, in memory of the calling thread.
template <typename Form>
void MakeTiles(const Linear& linear, const TileDepth& depth, const Tile<char>* tiles, int64_t count,
               Tile<char>* made) {
  const int64_t bytes = depth.all_tiles() * kTileBytes;
  char* memory = ThreadMemory<kWeightTiles, char>(count * bytes);
  for (int64_t t = 0; t < count; ++t) {
    char* to = memory + t * bytes;
    made[t] = {to, tiles[t].scale, tiles[t].zero};
    for (int64_t group = 0; group < depth.depth.groups; ++group) {
      const int64_t first = depth.first(group), end = depth.end(group);
      Form::Put(tiles[t].numbers, linear.depth, first, end, to);
      const int64_t put = (end - first) * TileUnit::kBytes, filled = depth.tiles(group) * kTileBytes;
      std::memset(to + put, 0, filled - put);
      to += filled;
    }
  }
}

// Computes at most a group of tiles for some rows; they stand in the result from `column` on.
template <bool kIntegers>
void RunTileRows(const Linear& linear, const TileX& x, RowRange range, const TileDepth& depth,
                 const Tile<char>* tiles, int64_t count, int64_t column) {
  Floats sums[kMostTileRows * kGroup];
  for (int64_t row = range.first; row < range.end; row += kMostTileRows) {
    const int64_t rows = std::min(kMostTileRows, range.end - row);
    FetchEnds(linear, {row, row + rows}, column, count);
    GroupSums<kIntegers>(x, row, rows, depth, tiles, count, sums);
    for (int64_t r = 0; r < rows; ++r) FinishGroup(linear, row + r, column, count, sums + r * kGroup);
  }
}

// Computes `count` tiles of the result from `first` on, at most a group, for some rows.
template <typename Form>
void TileGroup(const Linear& linear, const TileX& x, const TileDepth& depth, RowRange rows,
               int64_t first, int64_t count) {
  constexpr bool kIntegers = kOfIntegers<typename Form::RowsOfX::Steps>;
  const TileScope scope;
  const bool gated = linear.gated;
  const int64_t half = linear.columns / kLanes, all = gated ? 2 * count : count;
  const int64_t facts = depth.depth.groups * kLanes;
  Tile<char> tiles[kGroup];
  for (int64_t t = 0; t < all; ++t) {
    // Gated, the tiles of the left and of the right half alternate.
    const int64_t number = gated ? first + t / 2 + t % 2 * half : first + t;
    const auto of_groups = [&](const void* from, Type type) -> const void* {
      if (!linear.group || !from) return nullptr;
      return static_cast<const char*>(from) + number * facts * SizeOf(type);
    };
    tiles[t] = {static_cast<const char*>(linear.weight) + number * Form::BytesOf(linear.depth),
                of_groups(linear.scale, linear.scale_type), of_groups(linear.zero, linear.zero_type)};
  }
  if (Form::kPacked && depth.whole) {
    return RunTileRows<kIntegers>(linear, x, rows, depth, tiles, all, first * kLanes);
  }
  const int64_t fit = kScratchBytes / (depth.all_tiles() * kTileBytes);
  const int64_t most = std::max<int64_t>(2, fit / 2 * 2);
  for (int64_t t = 0; t < all; t += most) {
    const int64_t some = std::min(most, all - t);
    Tile<char> made[kGroup];
    MakeTiles<Form>(linear, depth, tiles + t, some, made);
    RunTileRows<kIntegers>(linear, x, rows, depth, made, some, (first + (gated ? t / 2 : t)) * kLanes);
  }
}

template <typename Form>
void RunTiles(const Linear& linear, const TaskPool& pool) {
  const typename Form::RowsOfX rows(linear, pool);
  const TileDepth depth(rows.depth());
  const TileX x = TileXOf(rows.rows(), linear.rows, depth, pool);
  RunParts(linear, rows, Reads{}, kTileRows, pool,
           [&](const Linear& l, RowRange range, int64_t first, int64_t count) {
             TileGroup<Form>(l, x, depth, range, first, count);
           });
}

// Computes a product of many rows; false if it is not one of bf16 or of integers.
bool RunLinear(const Linear& linear, const TaskPool& pool) {
  if (linear.rows < kFewestTileRows || linear.depth < 1) return false;
  if (linear.x_group) {
    // Groups begin with a step.
    if (linear.groups() > 1 && linear.x_group % QuadSteps::kDepth) return false;
    if (linear.narrow == Narrow::kS4) RunTiles<NibbleTiles>(linear, pool);
    else RunTiles<ByteTiles>(linear, pool);
    return true;
  }
  if (linear.type != Type::kBf16) return false;
  switch (linear.narrow) {
    case Narrow::kNone: RunTiles<Bf16Tiles>(linear, pool); break;
    case Narrow::kS8: RunTiles<WidenedTiles<NarrowBf16Steps<Narrow::kS8>>>(linear, pool); break;
    case Narrow::kF8E4M3: RunTiles<WidenedTiles<NarrowBf16Steps<Narrow::kF8E4M3>>>(linear, pool); break;
    case Narrow::kF8E5M2: RunTiles<WidenedTiles<NarrowBf16Steps<Narrow::kF8E5M2>>>(linear, pool); break;
    case Narrow::kS4: RunTiles<WidenedTiles<NibbleBf16Steps>>(linear, pool); break;
  }
  return true;
}
