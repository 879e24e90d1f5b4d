// RunRotation, included once per instruction set, inside of its namespace, after linear_inner.h and
// cache_codes_inner.h.

// Elements of a task, below which another thread costs more than it takes over.
constexpr int64_t kRotationShare = 16384;

// A head of a row: its first elements in x, in the tables and in what it is turned into.
struct Turned {
  int64_t from, table;
  Type type;
  void* out;
  int64_t to;

  // Stores sixteen elements from `at` on, none from `end` on.
  void Store(int64_t at, int64_t end, Floats value) const {
    StoreWide(type, out, to + at, to + end, value);
  }
};

inline void TurnHalves(const Rotation& r, const Turned& of) {
  for (int64_t i = 0; i < r.half; i += kLanes) {
    const Floats cos = LoadWide(Type::kF32, r.cos, of.table + i, of.table + r.half);
    const Floats sin = LoadWide(Type::kF32, r.sin, of.table + i, of.table + r.half);
    const Floats first = LoadWide(r.x_type, r.x, of.from + i, of.from + r.half);
    const Floats second = LoadWide(r.x_type, r.x, of.from + r.half + i, of.from + 2 * r.half);
    of.Store(i, r.half, first * cos - second * sin);
    of.Store(r.half + i, 2 * r.half, second * cos + first * sin);
  }
}

inline void TurnNeighbors(const Rotation& r, const Turned& of) {
  for (int64_t i = 0; i < 2 * r.half; i += kLanes) {
    const Floats given = LoadWide(r.x_type, r.x, of.from + i, of.from + 2 * r.half);
    Floats turned = {};
    const int64_t lanes = std::min(kLanes, 2 * r.half - i);
    for (int64_t lane = 0; lane < lanes; lane += 2) {
      const float cos = r.cos[of.table + (i + lane) / 2], sin = r.sin[of.table + (i + lane) / 2];
      turned[lane] = given[lane] * cos - given[lane + 1] * sin;
      turned[lane + 1] = given[lane + 1] * cos + given[lane] * sin;
    }
    of.Store(i, 2 * r.half, turned);
  }
}

inline void TurnHead(const Rotation& r, const Turned& of) {
  if (r.neighbors) TurnNeighbors(r, of);
  else TurnHalves(r, of);
  for (int64_t i = 2 * r.half; i < r.size; i += kLanes) {
    of.Store(i, r.size, LoadWide(r.x_type, r.x, of.from + i, of.from + r.size));
  }
}

// What a head is divided by so that its largest number becomes the limit.
inline float RowScale(const Rotation& r, const float* head) {
  float largest = 0.0f;
  for (int64_t i = 0; i < r.size; ++i) {
    const float size = std::fabs(head[i]);
    // What is not a number is the largest: it compares with nothing.
    if (!(size <= largest) && largest == largest) largest = size;
  }
  const float scale = largest / r.limit;
  return scale < FLT_MIN ? FLT_MIN : scale;
}

// The codes of a turned head, and the scale behind them.
inline void WriteCodes(const Rotation& r, int64_t number, const float* turned, uint8_t* to) {
  const float row_scale = r.row_scale ? RowScale(r, turned) : 1.0f;
  const int64_t place = number * r.scale.per_head;
  const Floats limit = Splat(r.limit);
  bool zeros = true;
  for (int64_t i = 0; i < r.size; i += kLanes) {
    Floats value = LoadWide(Type::kF32, turned, i, r.size);
    if (r.row_scale) {
      for (int lane = 0; lane < kLanes; ++lane) zeros = zeros && value[lane] == 0.0f;
      value /= row_scale;
    } else if (r.scale.per_channel) {
      value /= LoadWide(Type::kF32, r.scale.data, place + i, place + r.size);
    } else if (r.scale.data) {
      value /= r.scale.data[place];
    }
    // What is not a number stays so: it compares with nothing.
    value = AsFloats(Choose((Words)(value > limit), AsWords(limit), AsWords(value)));
    value = AsFloats(Choose((Words)(value < -limit), AsWords(-limit), AsWords(value)));
    const Bytes codes = CacheCodes(r.numbers, value);
    std::memcpy(to + i, &codes, std::min(kLanes, r.size - i));
  }
  const float kept = zeros ? 0.0f : row_scale;
  if (r.row_scale) std::memcpy(to + r.size, &kept, sizeof kept);
}

// Turns a head in memory of its own, since a row of codes has one scale.
inline void RotateNarrow(const Rotation& r, Turned of, int64_t number, int64_t place) {
  float* turned = ThreadMemory<kTurnedHead, float>(r.size);
  of.type = Type::kF32, of.out = turned, of.to = 0;
  TurnHead(r, of);
  for (int64_t i = 0; i < r.size; i += kLanes) {
    const Floats value = Rounded(r.out_type, LoadWide(Type::kF32, turned, i, r.size));
    StoreWide(Type::kF32, turned, i, r.size, value);
  }
  const int64_t bytes = r.size + (r.row_scale ? sizeof(float) : 0);
  WriteCodes(r, number, turned, static_cast<uint8_t*>(r.out) + (place * r.heads + number) * bytes);
}

inline void RotateRow(const Rotation& r, int64_t row) {
  const int64_t place = r.place(row);
  if (place < 0) return;
  for (int64_t head = 0; head < r.heads; ++head) {
    const int64_t from = row * r.stride + r.offset + head * r.size;
    const Turned of{from, row * r.half, r.out_type, r.out, (place * r.heads + head) * r.size};
    if (r.numbers == CacheNumbers::kPlain) TurnHead(r, of);
    else RotateNarrow(r, of, head, place);
  }
}

void RunRotation(const Rotation& rotation, const TaskPool& pool) {
  const int64_t rows = rotation.batch * rotation.active;
  const int64_t elements = std::max<int64_t>(1, rotation.heads * rotation.size);
  const int64_t share = std::max<int64_t>(1, kRotationShare / elements);
  ParallelFor(pool, (rows + share - 1) / share, [&](int64_t part) {
    const int64_t end = std::min(rows, (part + 1) * share);
    for (int64_t row = part * share; row < end; ++row) RotateRow(rotation, row);
  });
}
