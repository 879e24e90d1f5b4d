// The kernel of attention beside plain loops.

#include <algorithm>
#include <cmath>
#include <limits>

#include "test_support.h"

namespace graphgen {
namespace {

// An attention with the memory that it reads and writes.
struct Problem {
  Attention a{};
  Buffer query, key, value, mask, rows, sinks, out;
};

Problem Make(int index, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const Type types[] = {Type::kF32, Type::kBf16, Type::kF16};
  const int64_t sizes[] = {1, 3, 16, 32, 48, 64, 80}, active[] = {1, 1, 2, 5, 13, 30};
  Problem made;
  Attention& a = made.a;
  a.type = types[index % 3];
  a.batch = 1 + below(3), a.active = active[below(6)], a.kv_heads = 1 + below(3);
  a.heads = a.kv_heads * (1 + below(4));
  a.size = sizes[below(7)], a.width = sizes[below(7)];
  a.attended = 1 + below(60), a.cache_slots = a.attended + below(9), a.cache_rows = 3 + below(3);
  a.scale = 0.3f, a.softcap = below(3) ? 0.0f : 2.0f;
  made.query = Random(random, a.type, a.batch * a.active * a.heads * a.size);
  const int64_t slots = a.cache_rows * a.cache_slots * a.kv_heads;
  made.key = Random(random, a.type, slots * a.size);
  made.value = Random(random, a.type, slots * a.width);
  made.mask.reset(new char[a.batch * a.active * a.attended]);
  for (int64_t b = 0; b < a.batch; ++b) {
    // Some slots, none, or those before a place.
    const int64_t kind = below(4), start = below(a.attended);
    for (int64_t s = 0; s < a.active; ++s) {
      for (int64_t c = 0; c < a.attended; ++c) {
        const bool read = kind == 0 ? below(2) : kind == 1 ? false : c <= start + s;
        made.mask[(b * a.active + s) * a.attended + c] = read;
      }
    }
  }
  a.query = made.query.get(), a.key = made.key.get(), a.value = made.value.get();
  a.mask = reinterpret_cast<const uint8_t*>(made.mask.get());
  if (below(2)) {
    made.rows.reset(new char[4 * a.batch]);
    a.rows = reinterpret_cast<const int32_t*>(made.rows.get());
    for (int64_t b = 0; b < a.batch; ++b) {
      const int32_t row = static_cast<int32_t>(below(a.cache_rows + 2)) - 1;
      std::memcpy(made.rows.get() + 4 * b, &row, 4);
    }
  }
  if (below(2)) {
    made.sinks = Random(random, Type::kF32, a.heads);
    a.sinks = reinterpret_cast<const float*>(made.sinks.get());
  }
  made.out.reset(new char[a.batch * a.active * a.heads * a.width * SizeOf(a.type)]);
  a.out = made.out.get();
  return made;
}

// The weights of one query head over its slots.
std::vector<double> Weights(const Attention& a, int64_t b, int64_t s, int64_t h) {
  const int64_t query = (b * a.active + s) * a.heads + h, row = a.row(b);
  std::vector<double> scores(a.attended);
  double top = a.sinks ? a.sinks[h] : -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < a.attended; ++c) {
    const int64_t slot = (row * a.cache_slots + c) * a.kv_heads + h / a.group();
    double sum = 0;
    for (int64_t d = 0; d < a.size; ++d) {
      sum += At(a.type, a.query, query * a.size + d) * At(a.type, a.key, slot * a.size + d);
    }
    sum *= a.scale;
    if (a.softcap != 0) sum = a.softcap * std::tanh(sum / a.softcap);
    const bool read = a.mask[(b * a.active + s) * a.attended + c];
    scores[c] = read ? sum : -std::numeric_limits<float>::max();
    top = std::max(top, scores[c]);
  }
  double total = a.sinks ? std::exp(a.sinks[h] - top) : 0;
  for (double& score : scores) total += score = std::exp(score - top);
  for (double& score : scores) score /= total;
  return scores;
}

// How many elements of one query head are further off than roundings of weights and result allow.
int Wrong(const Attention& a, int64_t b, int64_t s, int64_t h) {
  const std::vector<double> weights = Weights(a, b, s, h);
  int wrong = 0;
  for (int64_t w = 0; w < a.width; ++w) {
    double sum = 0, size = 0;
    for (int64_t c = 0; c < a.attended; ++c) {
      const int64_t slot = (a.row(b) * a.cache_slots + c) * a.kv_heads + h / a.group();
      const double term = weights[c] * At(a.type, a.value, slot * a.width + w);
      sum += term, size += std::fabs(term);
    }
    const int64_t at = ((b * a.active + s) * a.heads + h) * a.width + w;
    // A score of f32 is off by some 2^-20, its weight relatively as much.
    const double allowed = (4 * StepOf(a.type) + 0x1p-18) * size + LeastOf(a.type);
    wrong += !(std::fabs(At(a.type, a.out, at) - sum) <= allowed);
  }
  return wrong;
}

}  // namespace

int CheckAttention(const Variant& variant, int cases) {
  std::mt19937 random(2);
  int wrong = 0;
  for (int index = 0; index < cases; ++index) {
    const Problem problem = Make(index, random);
    const Attention& a = problem.a;
    {
      Threads threads(index % 3);
      variant.attention(a, threads.pool);
    }
    for (int64_t b = 0; b < a.batch; ++b) {
      for (int64_t s = 0; s < a.active; ++s) {
        for (int64_t h = 0; h < a.heads; ++h) wrong += Wrong(a, b, s, h);
      }
    }
  }
  if (wrong) std::printf("%s: attention: %d elements\n", variant.name, wrong);
  return wrong;
}

}  // namespace graphgen
