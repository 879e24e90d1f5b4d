// The kernel of rotary positions and of writes into a cache beside plain loops.

#include <cmath>

#include "test_support.h"

namespace graphgen {
namespace {

// A rotation with the memory that it reads and writes.
struct Problem {
  Rotation r{};
  Buffer x, cos, sin, ids, slots, out;
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
  made.out.reset(new char[made.places * r.heads * r.size * SizeOf(r.out_type)]);
  r.out = made.out.get();
  return made;
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
    const double allowed = 2 * StepOf(r.out_type) * std::fabs(expected[i]) + 0x1p-20;
    wrong += !(std::fabs(At(r.out_type, r.out, i) - expected[i]) <= allowed);
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
    std::memset(problem.out.get(), 0, problem.places * r.heads * r.size * SizeOf(r.out_type));
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
