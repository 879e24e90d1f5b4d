// The kernel of rotary positions and of writes into a cache beside plain loops.

#include <cmath>

#include "test_support.h"

namespace graphgen {
namespace {

// A rotation with the memory that it reads and writes.
struct Problem {
  Rotation r{};
  Buffer x, cos, sin, ids, slots, scale, out;
  int64_t places;  // rows of the result
};

Buffer Integers(std::mt19937& random, int64_t count, int64_t least, int64_t below) {
  Buffer made(new char[4 * count]);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t value = static_cast<int32_t>(least + static_cast<int64_t>(random() % (below - least)));
    std::memcpy(made.get() + 4 * i, &value, 4);
  }
  return made;
}

// Of a head of a place.
int64_t BytesOf(const Rotation& r) {
  if (r.numbers == CacheNumbers::kPlain) return r.size * SizeOf(r.out_type);
  return r.size + (r.row_scale ? 4 : 0);
}

Problem Make(int index, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const Type types[] = {Type::kF32, Type::kBf16, Type::kF16};
  const int64_t sizes[] = {1, 2, 7, 16, 40, 64, 80};
  Problem made;
  Rotation& r = made.r;
  r.batch = 1 + below(3), r.active = 1 + below(index % 10 ? 4 : 300), r.heads = 1 + below(5);
  r.size = sizes[below(7)], r.half = below(r.size / 2 + 1);
  r.offset = below(9), r.stride = r.offset + r.heads * r.size + below(9);
  r.neighbors = below(2), r.x_type = types[below(3)], r.out_type = types[index % 3];
  const int64_t rows = r.batch * r.active;
  made.x = Random(random, r.x_type, rows * r.stride), r.x = made.x.get();
  made.cos = Random(random, Type::kF32, rows * r.half);
  made.sin = Random(random, Type::kF32, rows * r.half);
  r.cos = reinterpret_cast<const float*>(made.cos.get());
  r.sin = reinterpret_cast<const float*>(made.sin.get());
  made.places = rows;
  if (below(2)) {
    r.cache_rows = 1 + below(4), r.cache_slots = r.active + below(5);
    made.places = r.cache_rows * r.cache_slots;
    made.ids = Integers(random, r.batch, -1, r.cache_rows + 1);
    made.slots = Integers(random, rows, -1, r.cache_slots + 1);
    r.ids = reinterpret_cast<const int32_t*>(made.ids.get());
    r.slots = reinterpret_cast<const int32_t*>(made.slots.get());
    // A slot is written once, by one row.
    int32_t* ids = reinterpret_cast<int32_t*>(made.ids.get());
    for (int64_t b = 1; b < r.batch; ++b) ids[b] = -1;
    int32_t* slots = reinterpret_cast<int32_t*>(made.slots.get());
    for (int64_t s = 0; s < r.active; ++s) slots[s] = static_cast<int32_t>(s + (slots[s] < 0 ? -1 : 0));
    for (int64_t s = 1; s < r.active; ++s) {
      if (slots[s] == slots[s - 1]) slots[s - 1] = -1;
    }
  }
  if (r.ids && index / 3 % 2) {
    r.numbers = kNumbers[below(4)], r.row_scale = below(3) == 0;
    r.limit = r.numbers == CacheNumbers::kS8 ? 127.0f : below(2) ? 240.0f : 2.0f;
    if (!r.row_scale) made.scale = RandomScale(random, r.numbers, r.heads, r.size, &r.scale);
  }
  made.out.reset(new char[BytesOf(r) * made.places * r.heads]);
  r.out = made.out.get();
  return made;
}

// An element of what was written, and how far it may be from the right one, which it is given.
double Written(const Rotation& r, int64_t head_at, int64_t head, int64_t i, double right,
               double* allowed) {
  const char* at = static_cast<const char*>(r.out) + head_at * BytesOf(r);
  if (r.numbers == CacheNumbers::kPlain) {
    *allowed = 2 * StepOf(r.out_type) * std::fabs(right) + 0x1p-20;
    return At(r.out_type, at, i);
  }
  const double scale = r.row_scale     ? At(Type::kF32, at + r.size, 0)
                       : !r.scale.data ? 1
                                       : r.scale.data[head * r.scale.per_head +
                                                      i * r.scale.per_channel];
  const double most = r.limit * scale;
  const double step = r.numbers == CacheNumbers::kS8       ? 0
                      : r.numbers == CacheNumbers::kF8E5M2 ? 0x1p-3
                                                           : 0x1p-4;
  const double least = r.numbers == CacheNumbers::kS8 ? 0.5 : 0x1p-10;
  *allowed = std::fabs(right) * (step + 3 * StepOf(r.out_type)) + 1.001 * least * scale + 0x1p-20;
  if (std::fabs(right) > most) *allowed += std::fabs(right) - most;
  return scale * CodeToDouble(r.numbers, at[i]);
}

// Element i of a turned head of a row.
double Turned(const Rotation& r, int64_t row, int64_t head, int64_t i) {
  const int64_t start = row * r.stride + r.offset + head * r.size;
  const auto x = [&](int64_t at) { return At(r.x_type, r.x, start + at); };
  if (i >= 2 * r.half) return x(i);
  const int64_t pair = r.neighbors ? i / 2 : i % r.half;
  const int64_t first = r.neighbors ? 2 * pair : pair, second = r.neighbors ? first + 1 : first + r.half;
  const double cos = r.cos[row * r.half + pair], sin = r.sin[row * r.half + pair];
  return i == first ? x(first) * cos - x(second) * sin : x(second) * cos + x(first) * sin;
}

int Wrong(const Problem& problem) {
  const Rotation& r = problem.r;
  const int64_t width = r.heads * r.size;
  std::vector<double> expected(problem.places * width, 0.0);
  for (int64_t row = 0; row < r.batch * r.active; ++row) {
    const int64_t place = r.place(row);
    for (int64_t i = 0; place >= 0 && i < width; ++i) {
      expected[place * width + i] = Turned(r, row, i / r.size, i % r.size);
    }
  }
  int wrong = 0;
  for (int64_t i = 0; i < problem.places * width; ++i) {
    const int64_t head_at = i / r.size;
    double allowed;
    const double actual =
        Written(r, head_at, head_at % r.heads, i % r.size, expected[i], &allowed);
    wrong += !(std::fabs(actual - expected[i]) <= allowed);
  }
  return wrong;
}

}  // namespace

int CheckRotation(const Variant& variant, int cases) {
  std::mt19937 random(3);
  int wrong = 0;
  for (int index = 0; index < cases; ++index) {
    const Problem problem = Make(index, random);
    const Rotation& r = problem.r;
    std::memset(problem.out.get(), 0, problem.places * r.heads * BytesOf(r));
    {
      Threads threads(index % 3);
      variant.rotation(r, threads.pool);
    }
    wrong += Wrong(problem);
  }
  if (wrong) std::printf("%s: rotation: %d elements\n", variant.name, wrong);
  return wrong;
}

}  // namespace graphgen
