// RunRotation, included once per instruction set, inside of its namespace, after linear_inner.h.

// Elements of a task, below which another thread costs more than it takes over.
constexpr int64_t kRotationShare = 16384;

// One head, from element `from` of x to element `to` of the result.
inline void TurnHalves(const Rotation& r, int64_t from, int64_t to, int64_t table) {
  for (int64_t i = 0; i < r.half; i += kLanes) {
    const Floats cos = LoadWide(Type::kF32, r.cos, table + i, table + r.half);
    const Floats sin = LoadWide(Type::kF32, r.sin, table + i, table + r.half);
    const Floats first = LoadWide(r.x_type, r.x, from + i, from + r.half);
    const Floats second = LoadWide(r.x_type, r.x, from + r.half + i, from + 2 * r.half);
    StoreWide(r.out_type, r.out, to + i, to + r.half, first * cos - second * sin);
    StoreWide(r.out_type, r.out, to + r.half + i, to + 2 * r.half, second * cos + first * sin);
  }
}

inline void TurnNeighbors(const Rotation& r, int64_t from, int64_t to, int64_t table) {
  for (int64_t i = 0; i < 2 * r.half; i += kLanes) {
    const Floats given = LoadWide(r.x_type, r.x, from + i, from + 2 * r.half);
    Floats turned = {};
    const int64_t lanes = std::min(kLanes, 2 * r.half - i);
    for (int64_t lane = 0; lane < lanes; lane += 2) {
      const float cos = r.cos[table + (i + lane) / 2], sin = r.sin[table + (i + lane) / 2];
      turned[lane] = given[lane] * cos - given[lane + 1] * sin;
      turned[lane + 1] = given[lane + 1] * cos + given[lane] * sin;
    }
    StoreWide(r.out_type, r.out, to + i, to + 2 * r.half, turned);
  }
}

inline void RotateRow(const Rotation& r, int64_t row) {
  const int64_t place = r.place(row);
  if (place < 0) return;
  for (int64_t head = 0; head < r.heads; ++head) {
    const int64_t from = row * r.stride + r.offset + head * r.size;
    const int64_t to = (place * r.heads + head) * r.size;
    if (r.neighbors) TurnNeighbors(r, from, to, row * r.half);
    else TurnHalves(r, from, to, row * r.half);
    for (int64_t i = 2 * r.half; i < r.size; i += kLanes) {
      StoreWide(r.out_type, r.out, to + i, to + r.size,
                LoadWide(r.x_type, r.x, from + i, from + r.size));
    }
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
