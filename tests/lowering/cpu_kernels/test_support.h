// Numbers, memory of the exact size, threads and the kernels of each instruction set, for the tests.

#ifndef GRAPHGEN_TEST_SUPPORT_H_
#define GRAPHGEN_TEST_SUPPORT_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "attention.h"
#include "cache_numbers.h"
#include "linear.h"
#include "norm.h"
#include "rotation.h"
#include "top_k.h"

namespace graphgen {

// The kernels of one instruction set.
struct Variant {
  const char* name;
  void (*linear)(const Linear&, const TaskPool&);
  void (*attention)(const Attention&, const TaskPool&);
  void (*rotation)(const Rotation&, const TaskPool&);
  void (*norm)(const Norm&, const TaskPool&);
  void (*top_k)(const TopK&, const TaskPool&);
  // Rows from which on a product is one of tiles, which sum in another order; 0 for none.
  int64_t tile_rows = 0;
};

// Compares the attention of one instruction set with plain loops; returns how many are wrong.
int CheckAttention(const Variant& variant, int cases);

// The same of rotary positions and writes into a cache.
int CheckRotation(const Variant& variant, int cases);

// The same of norms and of the largest elements.
int CheckRows(const Variant& variant, int cases);

// The same of products with low-rank terms.
int CheckLowRank(const Variant& variant, int cases);

// When a matrix unit is used; returns how many answers are wrong.
int CheckMatrixUnit();

// Loops over helpers; returns how many left out an index or called it twice.
int CheckTaskPool();

// ---- numbers ------------------------------------------------------------------------------------


// Half a unit in the last place, relative, and the smallest number.
inline double StepOf(Type type) {
  return type == Type::kF32 ? 0x1p-24 : type == Type::kBf16 ? 0x1p-8 : 0x1p-11;
}

inline double LeastOf(Type type) { return type == Type::kF16 ? 0x1p-24 : 0x1p-126; }

inline double HalfToDouble(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                     : std::ldexp(fraction, -24);
  return bits >> 15 ? -size : size;
}

inline double At(Type type, const void* from, int64_t i) {
  if (type == Type::kF32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(from) + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, static_cast<const char*>(from) + 2 * i, 2);
  if (type == Type::kF16) return HalfToDouble(half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

constexpr Narrow kNarrow[] = {Narrow::kS8, Narrow::kF8E4M3, Narrow::kF8E5M2, Narrow::kS4};

// The number that 8 bits mean, by the definition of OCP's formats; one of 4 bits has its sign in 8.
inline double CodeToDouble(Narrow narrow, char code) {
  if (narrow == Narrow::kS8 || narrow == Narrow::kS4) return static_cast<signed char>(code);
  const int bits = static_cast<unsigned char>(code), size = bits & 127;
  if (narrow == Narrow::kF8E5M2) return HalfToDouble(static_cast<uint16_t>(bits << 8));
  const int exponent = size >> 3, fraction = size & 7;
  const double value = size == 127 ? NAN
                       : exponent  ? std::ldexp(8 + fraction, exponent - 10)
                                   : std::ldexp(fraction, -9);
  return bits >> 7 ? -value : value;
}

// Bits of a random number of the type, up to about 2 in size, or of a given number of few bits.
inline void Put(Type type, void* to, int64_t i, double value) {
  char* place = static_cast<char*>(to) + SizeOf(type) * i;
  const float single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, 4);
  if (type == Type::kF32) {
    std::memcpy(place, &bits, 4);
    return;
  }
  uint16_t half = static_cast<uint16_t>(bits >> 16);
  if (type == Type::kF16) {
    const int exponent = static_cast<int>(bits >> 23 & 255) - 127 + 15;
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t size = exponent >= 31  ? 0x7c00u | (std::isnan(value) ? 0x200u : 0u)
                          : exponent <= 0 ? 0u
                                          : static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023);
    half = static_cast<uint16_t>(sign | size);
  }
  std::memcpy(place, &half, 2);
}

// Memory of the exact size.
using Buffer = std::unique_ptr<char[]>;

inline Buffer Random(std::mt19937& random, Type type, int64_t count) {
  Buffer made(new char[count * SizeOf(type)]);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < count; ++i) Put(type, made.get(), i, normal(random));
  return made;
}

// Codes of finite numbers, any integers and floats up to about 2.
inline Buffer RandomCodes(std::mt19937& random, Narrow narrow, int64_t count) {
  Buffer made(new char[count]);
  if (narrow == Narrow::kS4) {
    for (int64_t i = 0; i < count; ++i) made.get()[i] = static_cast<char>(random() % 16) - 8;
    return made;
  }
  const int most = narrow == Narrow::kS8 ? 128 : narrow == Narrow::kF8E4M3 ? 0x40 : 0x41;
  for (int64_t i = 0; i < count; ++i) {
    made.get()[i] = static_cast<char>(random() % most | (random() % 2) << 7);
  }
  return made;
}

constexpr CacheNumbers kNumbers[] = {CacheNumbers::kS8, CacheNumbers::kF8E4M3,
                                     CacheNumbers::kF8E4M3Fn, CacheNumbers::kF8E5M2};

inline Narrow NarrowOf(CacheNumbers numbers) {
  return numbers == CacheNumbers::kS8       ? Narrow::kS8
         : numbers == CacheNumbers::kF8E5M2 ? Narrow::kF8E5M2
                                            : Narrow::kF8E4M3;
}

// The number that 8 bits of a cache mean.
inline double CodeToDouble(CacheNumbers numbers, char code) {
  const int size = code & 127;
  if (numbers == CacheNumbers::kF8E4M3 && size >= 0x78) {
    return size > 0x78 ? NAN : code & 128 ? -INFINITY : INFINITY;
  }
  return CodeToDouble(NarrowOf(numbers), code);
}

// No scale, one, one of each head or one of each channel; about as large as numbers are small.
inline Buffer RandomScale(std::mt19937& random, CacheNumbers numbers, int64_t heads, int64_t size,
                          CacheScale* scale) {
  const int kind = static_cast<int>(random() % 4);
  if (kind == 0 && numbers != CacheNumbers::kS8) return nullptr;
  scale->per_head = kind < 2 ? 0 : kind == 2 ? 1 : size;
  scale->per_channel = kind == 3;
  const int64_t count = kind < 2 ? 1 : kind == 2 ? heads : heads * size;
  Buffer made = Random(random, Type::kF32, count);
  float* data = reinterpret_cast<float*>(made.get());
  for (int64_t i = 0; i < count; ++i) {
    data[i] = (0.5f + std::fabs(data[i])) / (numbers == CacheNumbers::kS8 ? 64 : 1);
  }
  scale->data = data;
  return made;
}

// Threads that start with their task, and end here.
class Threads {
 public:
  explicit Threads(int64_t helpers) {
    pool.helpers = helpers;
    pool.schedule = [this](std::function<void()> task) { made_.emplace_back(std::move(task)); };
  }
  ~Threads() {
    for (std::thread& thread : made_) thread.join();
  }
  TaskPool pool;

 private:
  std::vector<std::thread> made_;
};

}  // namespace graphgen

#endif  // GRAPHGEN_TEST_SUPPORT_H_
