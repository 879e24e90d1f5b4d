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
  Buffer query, key, value, mask, rows, sinks, out, key_scale, value_scale;
};

// Element `channel` of a slot of a head, as the attention reads it.
double Kept(const Attention& a, bool key, int64_t slot, int64_t head, int64_t channel) {
  const int64_t size = key ? a.size : a.width;
  const void* cache = key ? a.key : a.value;
  if (a.numbers == CacheNumbers::kPlain) return At(a.type, cache, slot * size + channel);
  const char* codes = static_cast<const char*>(cache) + slot * (size + (a.row_scale ? 4 : 0));
  const double number = CodeToDouble(a.numbers, codes[channel]);
  if (a.row_scale) return number * At(Type::kF32, codes + size, 0);
  const CacheScale& scale = key ? a.key_scale : a.value_scale;
  if (!scale.data) return number;
  return number * scale.data[head * scale.per_head + channel * scale.per_channel];
}

// Slots of codes, with a scale behind each.
Buffer CodesOfRows(std::mt19937& random, CacheNumbers numbers, int64_t slots, int64_t size) {
  const Buffer codes = RandomCodes(random, NarrowOf(numbers), slots * size);
  Buffer made(new char[slots * (size + 4)]);
  for (int64_t slot = 0; slot < slots; ++slot) {
    char* to = made.get() + slot * (size + 4);
    std::memcpy(to, codes.get() + slot * size, size);
    const float scale = (1.0f + random() % 100 / 50.0f) / (numbers == CacheNumbers::kS8 ? 64 : 1);
    std::memcpy(to + size, &scale, 4);
  }
  return made;
}

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
  // Of few queries sometimes several pieces.
  a.attended = 1 + below(a.active <= 2 && below(2) ? 400 : 60);
  a.cache_slots = a.attended + below(9), a.cache_rows = 3 + below(3);
  a.scale = 0.3f, a.softcap = below(3) ? 0.0f : 2.0f;
  made.query = Random(random, a.type, a.batch * a.active * a.heads * a.size);
  const int64_t slots = a.cache_rows * a.cache_slots * a.kv_heads;
  if (index / 3 % 2) {
    a.numbers = kNumbers[below(4)], a.row_scale = below(4) == 0;
    for (bool key : {true, false}) {
      const int64_t size = key ? a.size : a.width;
      Buffer& cache = key ? made.key : made.value;
      if (a.row_scale) {
        cache = CodesOfRows(random, a.numbers, slots, size);
        continue;
      }
      cache = RandomCodes(random, NarrowOf(a.numbers), slots * size);
      (key ? made.key_scale : made.value_scale) = RandomScale(
          random, a.numbers, a.kv_heads, size, key ? &a.key_scale : &a.value_scale);
    }
  } else {
    made.key = Random(random, a.type, slots * a.size);
    made.value = Random(random, a.type, slots * a.width);
  }
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
      sum += At(a.type, a.query, query * a.size + d) *
             Kept(a, true, slot, h / a.group(), d);
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
      const double term = weights[c] * Kept(a, false, slot, h / a.group(), w);
      sum += term, size += std::fabs(term);
    }
    const int64_t at = ((b * a.active + s) * a.heads + h) * a.width + w;
    // A score of f32 is off by some 2^-20, its weight relatively as much.
    const double allowed = (4 * StepOf(a.type) + 0x1p-18) * size + LeastOf(a.type);
    wrong += !(std::fabs(At(a.type, a.out, at) - sum) <= allowed);
  }
  return wrong;
}

// How many of the 256 codes are another number; of one slot, for few queries and for many.
int WrongCodes(const Variant& variant, Type type, CacheNumbers numbers, int64_t active) {
  Attention a{};
  a.batch = a.heads = a.kv_heads = a.size = a.attended = a.cache_rows = a.cache_slots = 1;
  a.active = active, a.width = 256, a.type = type, a.numbers = numbers, a.scale = 1.0f;
  const std::vector<uint8_t> mask(active, 1), key(1, 0);
  std::vector<uint8_t> codes(256);
  for (int code = 0; code < 256; ++code) codes[code] = static_cast<uint8_t>(code);
  const std::vector<char> query(active * SizeOf(type), 0);
  std::vector<char> out(active * a.width * SizeOf(type));
  a.query = query.data(), a.key = key.data(), a.value = codes.data(), a.mask = mask.data();
  a.out = out.data();
  variant.attention(a, TaskPool{});
  int wrong = 0;
  for (int64_t i = 0; i < active * a.width; ++i) {
    const double expected = CodeToDouble(numbers, static_cast<char>(codes[i % a.width]));
    const double actual = At(type, out.data(), i);
    wrong += !(actual == expected || (std::isnan(actual) && std::isnan(expected)));
  }
  return wrong;
}

}  // namespace

int CheckAttention(const Variant& variant, int cases) {
  std::mt19937 random(2);
  int wrong = 0;
  for (Type type : {Type::kF32, Type::kBf16, Type::kF16}) {
    for (CacheNumbers numbers : kNumbers) {
      for (int64_t active : {1, 20}) wrong += WrongCodes(variant, type, numbers, active);
    }
  }
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
