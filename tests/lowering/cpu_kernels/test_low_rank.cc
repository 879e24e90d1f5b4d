// Low-rank terms beside a product, beside plain loops.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "test_support.h"

namespace graphgen {
namespace {

constexpr Type kTypes[] = {Type::kF32, Type::kBf16, Type::kF16};

// A product with terms, and the memory that it reads and writes.
struct Adapted {
  Linear linear;
  LowRank low_rank;
  Buffer x, flat, packed, ids, residual, out;
  std::vector<Buffer> matrices;
  // Of each term: its columns, and B as [slots][columns][rank].
  struct Columns {
    int64_t start, count;
    const char* b;
  };
  std::vector<Columns> terms;
};

// [columns / 16][K][16], of bf16 [columns / 16][K / 2][16][2], from [columns][K], behind `front`
// columns of zeros.
void Pack(Type type, int64_t front, int64_t columns, int64_t depth, const char* flat, char* packed) {
  const int64_t size = SizeOf(type), step = type == Type::kBf16 ? 2 : 1;
  const int64_t steps = (depth + step - 1) / step;
  for (int64_t n = 0; n < columns; ++n) {
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t tile = (front + n) / kLanes, lane = (front + n) % kLanes;
      const int64_t at = ((tile * steps + k / step) * kLanes + lane) * step + k % step;
      std::memcpy(packed + at * size, flat + (n * depth + k) * size, size);
    }
  }
}

// Bytes of that.
int64_t PackedBytes(Type type, int64_t columns, int64_t depth) {
  const int64_t step = type == Type::kBf16 ? 2 : 1;
  return (columns + kLanes - 1) / kLanes * kLanes * ((depth + step - 1) / step * step) * SizeOf(type);
}

// Terms of some columns each, with gaps in between, for rows of any slot and of none.
void DrawTerms(Adapted* made, int index, std::mt19937& random) {
  LowRank& all = made->low_rank;
  const Linear& l = made->linear;
  all.slots = 1 + random() % 4, all.rank = 1 + random() % (index % 7 ? 9 : 40), all.count = 0;
  made->ids.reset(new char[all.rows * sizeof(int32_t)]);
  int32_t* ids = reinterpret_cast<int32_t*>(made->ids.get());
  const bool none = index % 11 == 0;
  for (int64_t row = 0; row < all.rows; ++row) {
    ids[row] = none ? -1 : static_cast<int32_t>(random() % (all.slots + 2)) - 1;
  }
  all.ids = ids;
  int64_t at = random() % 2 ? 0 : random() % l.product_columns();
  while (all.count == 0 || (at < l.product_columns() && all.count < kMostTerms)) {
    LowRankTerm& term = all.terms[all.count++];
    const int64_t columns = 1 + random() % (l.product_columns() - at), front = at % kLanes;
    made->matrices.push_back(Random(random, l.type, all.slots * all.rank * l.depth));
    term.a = made->matrices.back().get();
    made->matrices.push_back(Random(random, l.type, all.slots * columns * all.rank));
    const char* flat = made->matrices.back().get();
    made->terms.push_back({at, columns, flat});
    const int64_t bytes = PackedBytes(l.type, front + columns, all.rank);
    made->matrices.emplace_back(new char[all.slots * bytes]());
    for (int64_t slot = 0; slot < all.slots; ++slot) {
      Pack(l.type, front, columns, all.rank, flat + slot * columns * all.rank * SizeOf(l.type),
           made->matrices.back().get() + slot * bytes);
    }
    term.b = made->matrices.back().get();
    term.tile = at / kLanes, term.tiles = (front + columns + kLanes - 1) / kLanes;
    at += columns + (random() % 2 ? 0 : random() % 20);
  }
}

void Draw(Adapted* made, int index, std::mt19937& random) {
  Linear& l = made->linear;
  l = {};
  LowRank& all = made->low_rank;
  all.rows = 1 + random() % 5;
  l.rows = all.rows * (index % 3 ? 1 : 1 + random() % 40);
  l.depth = 1 + random() % 70, l.type = l.x_type = kTypes[index % 3], l.out_type = Type::kF32;
  l.gated = index % 5 == 0;
  l.activation = l.gated ? Activation::kRelu : Activation::kNone;
  l.columns = l.gated ? kLanes * (1 + random() % 4) : 1 + random() % 150;
  made->x = Random(random, l.type, l.rows * l.depth);
  made->flat = Random(random, l.type, l.product_columns() * l.depth);
  made->packed.reset(new char[PackedBytes(l.type, l.product_columns(), l.depth)]());
  Pack(l.type, 0, l.product_columns(), l.depth, made->flat.get(), made->packed.get());
  made->out.reset(new char[l.rows * l.columns * sizeof(float)]);
  if (!l.gated && random() % 2) made->residual = Random(random, Type::kF32, l.rows * l.columns);
  l.x = made->x.get(), l.weight = made->packed.get(), l.out = made->out.get();
  l.residual = reinterpret_cast<const float*>(made->residual.get());
  DrawTerms(made, index, random);
  l.low_rank = &all;
}

// A number, and how far another order of its sums may be from it.
struct Bounded {
  double value = 0, error = 0;
};

Bounded Column(const Adapted& of, int64_t row, int64_t column) {
  const Linear& l = of.linear;
  const LowRank& all = of.low_rank;
  const auto x = [&](int64_t k) { return At(l.type, l.x, row * l.depth + k); };
  Bounded sum;
  for (int64_t k = 0; k < l.depth; ++k) {
    const double product = x(k) * At(l.type, of.flat.get(), column * l.depth + k);
    sum.value += product, sum.error += std::fabs(product) * 1e-5;
  }
  const int64_t slot = all.ids[row / (l.rows / all.rows)];
  if (slot < 0 || slot >= all.slots) return sum;
  for (int64_t t = 0; t < all.count; ++t) {
    const Adapted::Columns& term = of.terms[t];
    if (column < term.start || column >= term.start + term.count) continue;
    for (int64_t r = 0; r < all.rank; ++r) {
      Bounded low;
      for (int64_t k = 0; k < l.depth; ++k) {
        const double product = x(k) * At(l.type, all.terms[t].a, (slot * all.rank + r) * l.depth + k);
        low.value += product, low.error += std::fabs(product) * 1e-5;
      }
      const double b = At(l.type, term.b, (slot * term.count + column - term.start) * all.rank + r);
      // What B is multiplied by is rounded to its type.
      const double rounded = l.type == Type::kF32 ? 1e-5 : 1.1 * StepOf(l.type);
      sum.value += low.value * b, sum.error += std::fabs(b) * (low.error + std::fabs(low.value) * rounded);
    }
  }
  return sum;
}

int Wrong(const Adapted& of) {
  const Linear& l = of.linear;
  int wrong = 0;
  for (int64_t row = 0; row < l.rows; ++row) {
    for (int64_t column = 0; column < l.columns; ++column) {
      Bounded expected = Column(of, row, column);
      const int64_t at = row * l.columns + column;
      if (l.gated) {
        const Bounded right = Column(of, row, column + l.columns);
        const double left = std::max(expected.value, 0.0);
        expected = {left * right.value, expected.error * (std::fabs(right.value) + right.error) +
                                            left * right.error};
      }
      if (l.residual) expected.value += l.residual[at];
      const double found = At(Type::kF32, l.out, at);
      wrong += !(std::fabs(found - expected.value) <= expected.error + 1e-5 * std::fabs(expected.value) + 1e-6);
    }
  }
  return wrong;
}

// A number that is not finite in a slot reaches the rows of that slot alone.
int WrongNotFinite(const Variant& variant, std::mt19937& random) {
  int wrong = 0;
  for (int index = 1; index < 4; ++index) {
    Adapted of;
    Draw(&of, index, random);
    const Type type = of.linear.type;
    Put(type, const_cast<void*>(of.low_rank.terms[0].a), 0, std::numeric_limits<double>::quiet_NaN());
    variant.linear(of.linear, TaskPool{});
    const float* out = static_cast<const float*>(of.linear.out);
    for (int64_t row = 0; row < of.linear.rows; ++row) {
      const bool own = of.low_rank.ids[row / (of.linear.rows / of.low_rank.rows)] == 0;
      const float first = out[row * of.linear.columns + of.terms[0].start];
      wrong += std::isnan(first) != own;
    }
  }
  return wrong;
}

}  // namespace

int CheckLowRank(const Variant& variant, int cases) {
  std::mt19937 random(6);
  int wrong = 0, alone = 0;
  for (int index = 0; index < cases; ++index) {
    Adapted of;
    Draw(&of, index, random);
    Threads threads(index % 3);
    variant.linear(of.linear, threads.pool);
    wrong += Wrong(of);
    // One row of the call gives the same as among others, to the bit.
    const int64_t values = of.linear.rows / of.low_rank.rows, last = of.low_rank.rows - 1;
    std::vector<float> whole(of.linear.columns);
    const int64_t at = last * values * of.linear.columns;
    std::memcpy(whole.data(), static_cast<float*>(of.linear.out) + at, whole.size() * sizeof(float));
    of.linear.rows = of.low_rank.rows = 1, of.low_rank.ids += last;
    of.linear.x = of.x.get() + last * values * of.linear.depth * SizeOf(of.linear.type);
    if (of.linear.residual) of.linear.residual += at;
    variant.linear(of.linear, TaskPool{});
    alone += std::memcmp(whole.data(), of.linear.out, whole.size() * sizeof(float)) != 0;
  }
  const int not_finite = WrongNotFinite(variant, random);
  if (wrong + alone + not_finite) {
    std::printf("%s: low rank: %d elements, %d rows alone, %d not finite\n", variant.name, wrong, alone,
                not_finite);
  }
  return wrong + alone + not_finite;
}

}  // namespace graphgen
