// Norms and the largest elements of rows beside plain loops.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "test_support.h"

namespace graphgen {
namespace {

constexpr Type kTypes[] = {Type::kF32, Type::kBf16, Type::kF16};

// ---- norms --------------------------------------------------------------------------------------

double Normed(const Norm& n, int64_t row, int64_t i) {
  const auto x = [&](int64_t k) { return At(n.x_type, n.x, row * n.depth + k); };
  double mean = 0, square = 0;
  for (int64_t k = 0; n.offset && k < n.depth; ++k) mean += x(k) / n.depth;
  for (int64_t k = 0; k < n.depth; ++k) square += (x(k) - mean) * (x(k) - mean) / n.depth;
  const double normal = (x(i) - mean) / std::sqrt(square + n.epsilon);
  return normal * At(n.type, n.norm, i) + (n.offset ? At(n.type, n.offset, i) : 0.0);
}

int WrongNorms(const Variant& variant, int index, std::mt19937& random) {
  Norm n;
  n.rows = random() % 40, n.depth = 1 + random() % 90;
  n.type = kTypes[index % 3], n.x_type = random() % 2 ? Type::kF32 : n.type;
  n.epsilon = 1e-3f;
  const Buffer x = Random(random, n.x_type, n.rows * n.depth), norm = Random(random, n.type, n.depth),
               offset = Random(random, n.type, n.depth), out(new char[n.rows * n.depth * SizeOf(n.type)]);
  n.x = x.get(), n.norm = norm.get(), n.offset = random() % 2 ? offset.get() : nullptr, n.out = out.get();
  {
    Threads threads(index % 3);
    variant.norm(n, threads.pool);
  }
  int wrong = 0;
  for (int64_t i = 0; i < n.rows * n.depth; ++i) {
    const double expected = Normed(n, i / n.depth, i % n.depth), found = At(n.type, n.out, i);
    // Two roundings, of which the first is multiplied; f32 sums, of which a mean may leave little.
    const double size = std::fabs(expected) + (n.offset ? 4.0 : 0.0);
    const double allowed = (2.1 * StepOf(n.type) + 1e-5) * size + 8 * LeastOf(n.type);
    wrong += !(std::fabs(found - expected) <= allowed);
  }
  return wrong;
}

// ---- the largest elements -----------------------------------------------------------------------

// The bits of an element as an integer of the order.
int64_t Order(Type type, const void* from, int64_t i) {
  if (type == Type::kF32) {
    int32_t bits;
    std::memcpy(&bits, static_cast<const char*>(from) + 4 * i, 4);
    return bits < 0 ? bits ^ INT32_MAX : bits;
  }
  int16_t bits;
  std::memcpy(&bits, static_cast<const char*>(from) + 2 * i, 2);
  return bits < 0 ? bits ^ INT16_MAX : bits;
}

int WrongLargest(const Variant& variant, int index, std::mt19937& random) {
  TopK t;
  t.rows = random() % 5, t.type = kTypes[index % 3];
  t.size = 1 + random() % (index % 4 ? 200 : 6000);
  t.k = index % 5 == 0 ? 1 : index % 5 == 1 ? t.size : 1 + static_cast<int64_t>(random() % t.size);
  const Buffer x = Random(random, t.type, t.rows * t.size), values(new char[t.rows * t.k * SizeOf(t.type)]);
  const Buffer ids(new char[t.rows * t.k * sizeof(int32_t)]);
  // Any bits at all, and many equal ones.
  for (int64_t i = 0; i < t.rows * t.size * SizeOf(t.type); ++i) {
    if (index % 2) x[i] = static_cast<char>(random());
    else if (i % SizeOf(t.type) == 0) x[i] = 0;
  }
  t.x = x.get(), t.values = values.get(), t.ids = reinterpret_cast<int32_t*>(ids.get());
  {
    Threads threads(index % 3);
    variant.top_k(t, threads.pool);
  }
  int wrong = 0;
  for (int64_t row = 0; row < t.rows; ++row) {
    std::vector<int64_t> places(t.size);
    for (int64_t i = 0; i < t.size; ++i) places[i] = i;
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
      return Order(t.type, t.x, row * t.size + a) > Order(t.type, t.x, row * t.size + b);
    });
    for (int64_t i = 0; i < t.k; ++i) {
      const int64_t bytes = SizeOf(t.type), at = row * t.k + i, from = row * t.size + places[i];
      wrong += t.ids[at] != places[i] ||
               std::memcmp(values.get() + at * bytes, x.get() + from * bytes, bytes) != 0;
    }
  }
  return wrong;
}

}  // namespace

int CheckRows(const Variant& variant, int cases) {
  std::mt19937 random(4);
  int norms = 0, largest = 0;
  for (int index = 0; index < cases; ++index) {
    norms += WrongNorms(variant, index, random);
    largest += WrongLargest(variant, index, random);
  }
  if (norms + largest) {
    std::printf("%s: norms: %d elements, largest: %d elements\n", variant.name, norms, largest);
  }
  return norms + largest;
}

}  // namespace graphgen
