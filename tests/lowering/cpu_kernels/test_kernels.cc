// The kernels beside plain loops, for every instruction set that this CPU has, without Python.
//
// Buffers are of the exact size, so that a sanitizer sees a read or write beyond. Prints a line per
// instruction set; the exit status is 1 if a number is wrong.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "matrix_unit.h"
#include "test_support.h"

namespace graphgen {

#define DECLARE(isa)                                                   \
  namespace isa {                                                      \
  void RunLinear(const Linear& linear, const TaskPool& pool);          \
  void RunAttention(const Attention& attention, const TaskPool& pool); \
  void RunRotation(const Rotation& rotation, const TaskPool& pool);    \
  void RunNorm(const Norm& norm, const TaskPool& pool);                \
  void RunTopK(const TopK& top_k, const TaskPool& pool);               \
  }

#define VARIANT(isa) \
  Variant { \
    #isa, isa::RunLinear, isa::RunAttention, isa::RunRotation, isa::RunNorm, isa::RunTopK \
  }

DECLARE(baseline)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
DECLARE(avx512_bf16)
#elif defined(__aarch64__)
DECLARE(neon_dotprod)
DECLARE(neon_bf16)
#endif

#define DECLARE_TILES(unit)                                            \
  namespace unit {                                                     \
  bool RunLinear(const Linear& linear, const TaskPool& pool);          \
  bool RunAttention(const Attention& attention, const TaskPool& pool); \
  }

DECLARE_TILES(amx_emulated)
#if defined(__x86_64__)
DECLARE_TILES(amx)
#endif

namespace {

constexpr int64_t kTileRows = 16;

// A matrix unit, with the vectors of an instruction set for what it does not compute.
#define WITH_TILES(unit, isa)                                                                      \
  Variant {                                                                                        \
    #unit, [](const Linear& l, const TaskPool& p) { unit::RunLinear(l, p) || (isa::RunLinear(l, p), true); }, \
        [](const Attention& a, const TaskPool& p) {                                                \
          unit::RunAttention(a, p) || (isa::RunAttention(a, p), true);                             \
        },                                                                                         \
        isa::RunRotation, isa::RunNorm, isa::RunTopK, kTileRows                                    \
  }

std::vector<Variant> VariantsOfThisCpu() {
  std::vector<Variant> found = {
      {"dispatched", RunLinear, RunAttention, RunRotation, RunNorm, RunTopK, 0},
      VARIANT(baseline), WITH_TILES(amx_emulated, baseline)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.push_back(VARIANT(avx2));
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    found.push_back(VARIANT(avx512));
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
      found.push_back(VARIANT(avx512_bf16));
      const char* isa = std::getenv("GRAPHGEN_ISA");
      const bool asked = isa != nullptr && std::string(isa) == "amx";
      if (asked && WhyNoMatrixUnit().empty()) found.push_back(WITH_TILES(amx, avx512_bf16));
      else std::printf("amx: left out, since %s\n", asked ? WhyNoMatrixUnit().c_str() : "nobody asks for it");
    }
  }
#elif defined(__aarch64__)
  const std::string sets = " " + std::string(InstructionSets()) + " ";
  if (sets.find(" neon_dotprod ") != std::string::npos) found.push_back(VARIANT(neon_dotprod));
  if (sets.find(" neon_bf16 ") != std::string::npos) found.push_back(VARIANT(neon_bf16));
#endif
  return found;
}

// ---- a case -------------------------------------------------------------------------------------

struct Case {
  int64_t rows, depth, columns;
  Type type = Type::kF32;
  Type out_type = Type::kF32;
  bool norm = false, bias = false, residual = false;
  Activation activation = Activation::kNone;
  bool gated = false, offset = false;
  Narrow narrow = Narrow::kNone;
  bool scale = false, one_scale = false;
  int64_t group = 0;
  bool zero = false;
  Type scale_type = Type::kF32, zero_type = Type::kF32;  // of groups
  int64_t x_group = 0;
};

// A linear with the memory that it reads and writes.
struct Problem {
  Linear linear;
  Buffer x, flat, weight, norm, offset, scale, zero, bias, residual, out;
};

// Place of a number of 4 bits in its column's word of eight, in bits.
int64_t NibbleShift(int64_t k) { return k % 8 / 2 * 4 + k % 2 * 16; }

// [columns / 16][K / 8][16] words, from [columns][K] with a number a byte.
Buffer PackNibbles(const Linear& linear, const char* flat) {
  const int64_t tiles = (linear.product_columns() + kLanes - 1) / kLanes, words = (linear.depth + 7) / 8;
  Buffer packed(new char[tiles * kLanes * words * 4]());
  for (int64_t n = 0; n < linear.product_columns(); ++n) {
    for (int64_t k = 0; k < linear.depth; ++k) {
      const int64_t word = (n / kLanes * words + k / 8) * kLanes + n % kLanes;
      const int bits = (flat[n * linear.depth + k] & 15) << NibbleShift(k) % 8;
      packed.get()[word * 4 + NibbleShift(k) / 8] |= static_cast<char>(bits);
    }
  }
  return packed;
}

// [columns / 16][K][16], of bf16 and 8 bits [columns / 16][K / 2][16][2], from [columns][K].
Buffer Pack(const Linear& linear, const char* flat) {
  if (linear.narrow == Narrow::kS4) return PackNibbles(linear, flat);
  const bool narrow = linear.narrow != Narrow::kNone;
  const int64_t step = linear.type == Type::kBf16 || narrow ? 2 : 1;
  const int64_t size = narrow ? 1 : SizeOf(linear.type);
  const int64_t tiles = (linear.product_columns() + kLanes - 1) / kLanes;
  const int64_t steps = (linear.depth + step - 1) / step;
  Buffer packed(new char[tiles * kLanes * steps * step * size]());
  for (int64_t n = 0; n < linear.product_columns(); ++n) {
    for (int64_t k = 0; k < linear.depth; ++k) {
      const int64_t at = ((n / kLanes * steps + k / step) * kLanes + n % kLanes) * step + k % step;
      std::memcpy(packed.get() + at * size, flat + (n * linear.depth + k) * size, size);
    }
  }
  return packed;
}

Problem Make(const Case& of, std::mt19937& random) {
  Problem made;
  Linear& linear = made.linear;
  linear.rows = of.rows, linear.depth = of.depth, linear.columns = of.columns;
  linear.type = of.type, linear.out_type = of.out_type;
  linear.x_type = of.norm ? Type::kF32 : of.type;
  linear.activation = of.activation, linear.gated = of.gated;
  linear.narrow = of.narrow;
  made.x = Random(random, linear.x_type, of.rows * of.depth);
  const int64_t numbers = linear.product_columns() * of.depth;
  made.flat = of.narrow == Narrow::kNone ? Random(random, of.type, numbers)
                                         : RandomCodes(random, of.narrow, numbers);
  made.weight = Pack(linear, made.flat.get());
  made.out.reset(new char[of.rows * of.columns * SizeOf(of.out_type)]);
  linear.x = made.x.get(), linear.weight = made.weight.get(), linear.out = made.out.get();
  if (of.norm) {
    made.norm = Random(random, of.type, of.depth);
    linear.norm = made.norm.get(), linear.epsilon = 1e-5f;
    if (of.offset) {
      made.offset = Random(random, of.type, of.depth);
      linear.offset = made.offset.get();
    }
  }
  linear.group = of.group, linear.x_group = of.x_group;
  if (of.group) {
    const int64_t tiles = (linear.product_columns() + kLanes - 1) / kLanes;
    linear.scale_type = of.scale_type, linear.zero_type = of.zero_type;
    made.scale = Random(random, of.scale_type, tiles * linear.groups() * kLanes);
    linear.scale = made.scale.get();
    if (of.zero) {
      made.zero = Random(random, of.zero_type, tiles * linear.groups() * kLanes);
      linear.zero = made.zero.get();
    }
  } else if (of.scale) {
    made.scale = Random(random, Type::kF32, of.one_scale ? 1 : linear.product_columns());
    linear.scale = made.scale.get();
    linear.one_scale = of.one_scale;
  }
  if (of.bias) {
    made.bias = Random(random, Type::kF32, of.columns);
    linear.bias = reinterpret_cast<const float*>(made.bias.get());
  }
  if (of.residual) {
    made.residual = Random(random, Type::kF32, of.rows * of.columns);
    linear.residual = reinterpret_cast<const float*>(made.residual.get());
  }
  return made;
}

// ---- the plain loops ----------------------------------------------------------------------------

// A number and how far a right result may be from it.
struct Near {
  double value, error;
};

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kSilu: return x * Logistic(x);
    case Activation::kGelu: return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluSigmoid: return x * Logistic(1.702 * x);
    default: return x;
  }
}

// A number of a row of x, what its roundings lose but for a factor, and the step of its integers.
struct Left {
  double x, lost, step;
};

// A row of x after the norm. A normalized row is rounded twice to the weight's type.
std::vector<Left> RowOf(const Linear& linear, int64_t row) {
  double squares = 0, mean = 0;
  for (int64_t k = 0; linear.offset && k < linear.depth; ++k) {
    mean += At(linear.x_type, linear.x, row * linear.depth + k) / linear.depth;
  }
  for (int64_t k = 0; linear.norm && k < linear.depth; ++k) {
    const double x = At(linear.x_type, linear.x, row * linear.depth + k) - mean;
    squares += x * x;
  }
  const double scale = 1 / std::sqrt(squares / linear.depth + linear.epsilon);
  std::vector<Left> found(linear.depth);
  for (int64_t k = 0; k < linear.depth; ++k) {
    double x = At(linear.x_type, linear.x, row * linear.depth + k), lost = 0;
    if (linear.norm) {
      const double factor = scale * At(linear.type, linear.norm, k);
      // The roundings of the mean and of the numbers that it is taken from.
      if (linear.offset) lost = std::fabs(factor) * (std::fabs(x) + std::fabs(mean));
      x = (x - mean) * factor;
      if (linear.offset) {
        const double offset = At(linear.type, linear.offset, k);
        lost += std::fabs(x) + std::fabs(offset);
        x += offset;
      }
    }
    found[k] = {x, lost, 0};
  }
  return found;
}

// Rounds a row to integers, as the kernel does it where no norm stands before: in f32.
void RoundInGroups(const Linear& linear, std::vector<Left>& row) {
  for (int64_t first = 0; linear.x_group && first < linear.depth; first += linear.x_group) {
    const int64_t end = std::min(linear.depth, first + linear.x_group);
    float largest = 0;
    for (int64_t k = first; k < end; ++k) {
      largest = std::max(largest, std::fabs(static_cast<float>(row[k].x)));
    }
    const float scale = std::max(largest / 127.0f, 0x1p-126f);
    for (int64_t k = first; k < end; ++k) {
      row[k].x = static_cast<double>(std::nearbyint(static_cast<float>(row[k].x) / scale)) * scale;
      row[k].step = scale;
    }
  }
}

// One sum of products.
Near Product(const Problem& of, int64_t row, int64_t column) {
  const Linear& linear = of.linear;
  double sum = 0, size = 0, losses = 0;
  std::vector<Left> left = RowOf(linear, row);
  RoundInGroups(linear, left);
  // Of the group of a depth, packed.
  const auto fact = [&](Type type, const void* facts, int64_t k, double otherwise) -> double {
    const int64_t at = column / kLanes * linear.groups() + k / std::max<int64_t>(linear.group, 1);
    return linear.group && facts ? At(type, facts, at * kLanes + column % kLanes) : otherwise;
  };
  for (int64_t k = 0; k < linear.depth; ++k) {
    const double x = left[k].x;
    const int64_t at = column * linear.depth + k;
    const double weight = linear.narrow == Narrow::kNone
                              ? At(linear.type, of.flat.get(), at)
                              : CodeToDouble(linear.narrow, of.flat.get()[at]);
    const double zero = fact(linear.zero_type, linear.zero, k, 0);
    const double group_scale = fact(linear.scale_type, linear.scale, k, 1);
    sum += x * (weight - zero) * group_scale;
    const double sizes = std::fabs(group_scale) * (std::fabs(weight) + std::fabs(zero));
    size += std::fabs(x) * sizes;
    losses += left[k].lost * (linear.depth + 8) * 0x1p-24 * sizes;
    // A normalized number may be rounded to the other side.
    if (linear.norm) losses += left[k].step * sizes;
  }
  // Roundings of f32 that all go one way; those of a normalized row.
  const double sums = (linear.depth + 2 * linear.groups() + 10) * 0x1p-24;
  const double norms = linear.norm ? 2 * StepOf(linear.type) : 0;
  const Near product{sum, (sums + norms) * size + losses};
  if (!linear.scale || linear.group) return product;
  const double scale_of = At(Type::kF32, linear.scale, linear.one_scale ? 0 : column);
  return {sum * scale_of, std::fabs(scale_of) * (product.error + 0x1p-24 * std::fabs(sum))};
}

Near Expected(const Problem& of, int64_t row, int64_t column) {
  const Linear& linear = of.linear;
  Near found = Product(of, row, column);
  if (linear.gated) {
    const Near right = Product(of, row, column + linear.columns);
    const double left = Activate(linear.activation, found.value);
    // The slope of an activation is below 1.2.
    const double error = 1.2 * found.error + 32 * 0x1p-24 * std::fabs(found.value);
    found = {left * right.value,
             error * (std::fabs(right.value) + right.error) + std::fabs(left) * right.error};
  }
  const auto add = [&](double added) {
    found.error += 0x1p-24 * (std::fabs(found.value) + std::fabs(added));
    found.value += added;
  };
  if (linear.bias) add(linear.bias[column]);
  if (!linear.gated && linear.activation != Activation::kNone) {
    found.error = 1.2 * found.error + 32 * 0x1p-24 * std::fabs(found.value);
    found.value = Activate(linear.activation, found.value);
  }
  if (linear.residual) add(linear.residual[row * linear.columns + column]);
  found.error += (StepOf(linear.out_type) + 2 * 0x1p-24) * (std::fabs(found.value) + found.error);
  found.error += LeastOf(linear.out_type);
  return found;
}

// ---- checks -------------------------------------------------------------------------------------

int failures = 0;

void Fail(const char* variant, const Linear& linear, const char* what) {
  std::printf("%s: rows %lld depth %lld columns %lld type %d narrow %d out %d activation %d: %s\n", variant,
              static_cast<long long>(linear.rows), static_cast<long long>(linear.depth),
              static_cast<long long>(linear.columns), static_cast<int>(linear.type),
              static_cast<int>(linear.narrow), static_cast<int>(linear.out_type),
              static_cast<int>(linear.activation), what);
  ++failures;
}

void Check(const Variant& variant, const Problem& problem, const TaskPool& pool) {
  const Linear& linear = problem.linear;
  // What is not written is not a number.
  std::memset(linear.out, 0xff, linear.rows * linear.columns * SizeOf(linear.out_type));
  variant.linear(linear, pool);
  for (int64_t row = 0; row < linear.rows; ++row) {
    for (int64_t column = 0; column < linear.columns; ++column) {
      const Near expected = Expected(problem, row, column);
      const double actual = At(linear.out_type, linear.out, row * linear.columns + column);
      if (!(std::fabs(actual - expected.value) <= expected.error)) {
        char text[200];
        std::snprintf(text, sizeof text, "[%lld, %lld] is %.9g, not %.9g ± %.2g",
                      static_cast<long long>(row), static_cast<long long>(column), actual,
                      expected.value, expected.error);
        return Fail(variant.name, linear, text);
      }
    }
  }
}

// A row is bit for bit the same beside fewer rows, as long as its sums are of vectors, or of tiles.
void CheckRowsAlone(const Variant& variant, Problem& problem, const TaskPool& pool) {
  Linear& linear = problem.linear;
  const int64_t size = linear.columns * SizeOf(linear.out_type), all = linear.rows;
  const std::string whole(problem.out.get(), all * size);
  const auto in_tiles = [&](int64_t rows) { return variant.tile_rows && rows >= variant.tile_rows; };
  for (linear.rows = 1; linear.rows < all && linear.rows < 36; ++linear.rows) {
    if (in_tiles(linear.rows) != in_tiles(all)) continue;
    Buffer few(new char[linear.rows * size]);
    linear.out = few.get();
    variant.linear(linear, pool);
    if (std::memcmp(few.get(), whole.data(), linear.rows * size) != 0) {
      Fail(variant.name, linear, "a row depends on the others");
    }
  }
  linear.rows = all, linear.out = problem.out.get();
}

// NaN and infinity in one row of x leave the others alone.
void CheckNotFinite(const Variant& variant, Type type, Narrow narrow, const TaskPool& pool,
                    int64_t group = 0) {
  std::mt19937 random(7);
  Case of{5, 19, 37, type};
  of.narrow = narrow, of.group = of.x_group = group;
  Problem problem = Make(of, random);
  Put(type, problem.x.get(), 1 * 19 + 18, NAN);
  Put(type, problem.x.get(), 3 * 19 + 0, INFINITY);
  std::memset(problem.out.get(), 0, of.rows * of.columns * SizeOf(of.out_type));
  variant.linear(problem.linear, pool);
  for (int64_t i = 0; i < of.rows * of.columns; ++i) {
    const double actual = At(of.out_type, problem.out.get(), i);
    const int64_t row = i / of.columns;
    const bool right = row == 1   ? std::isnan(actual)
                       : row == 3 ? std::isinf(actual) || std::isnan(actual)
                                  : std::isfinite(actual);
    if (!right) return Fail(variant.name, problem.linear, "what is not finite is misplaced");
  }
}

// Each of the 256 codes is the number that it means, for few rows and for many.
void CheckCodes(const Variant& variant, Type type, Narrow narrow) {
  std::mt19937 random(9);
  for (int64_t rows : {1, 14, 16}) {
    Case of{rows, 1, 256, type};
    of.narrow = narrow;
    Problem problem = Make(of, random);
    for (int64_t row = 0; row < rows; ++row) Put(type, problem.x.get(), row, 1.0);
    const auto number = [&](int code) {
      return static_cast<char>(narrow == Narrow::kS4 ? code % 16 - 8 : code);
    };
    for (int code = 0; code < 256; ++code) problem.flat.get()[code] = number(code);
    problem.weight = Pack(problem.linear, problem.flat.get());
    problem.linear.weight = problem.weight.get();
    variant.linear(problem.linear, TaskPool{});
    for (int64_t i = 0; i < rows * 256; ++i) {
      const double expected = CodeToDouble(narrow, number(i % 256));
      const double actual = At(Type::kF32, problem.out.get(), i);
      if (!(actual == expected || (std::isnan(actual) && std::isnan(expected)))) {
        return Fail(variant.name, problem.linear, "a code is another number");
      }
    }
  }
}

// ---- threads ------------------------------------------------------------------------------------

// A helper that comes when all is done, and all memory returned, touches none of it.
void CheckLateHelpers(const Variant& variant) {
  std::vector<std::function<void()>> late;
  const TaskPool pool{3, [&](std::function<void()> task) { late.push_back(std::move(task)); }};
  std::mt19937 random(8);
  {
    Case of{3, 40, 700, Type::kF32};
    const Problem problem = Make(of, random);
    Check(variant, problem, pool);
  }
  if (late.empty()) std::printf("%s: no helper was asked\n", variant.name), ++failures;
  for (const std::function<void()>& task : late) task();
}

Case Drawn(int index, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  const Type types[] = {Type::kF32, Type::kBf16, Type::kF16};
  Case of{};
  of.rows = index % 25 == 24 ? 100 + below(30) : 1 + below(27);
  of.depth = 1 + below(index % 4 ? 90 : 4);
  of.type = types[index % 3];
  of.out_type = below(2) ? of.type : Type::kF32;
  of.norm = below(3) == 0;
  of.offset = of.norm && below(2);
  of.activation = static_cast<Activation>(below(2) ? below(6) : 0);
  const bool gated = of.activation != Activation::kNone && below(3);
  of.gated = gated;
  of.columns = gated ? kLanes * (1 + below(20)) : 1 + below(300);
  of.bias = !gated && below(3) == 0;
  of.residual = !gated && below(3) == 0;
  if (index % 2) {
    of.narrow = kNarrow[index / 2 % 4];
    // Products of integers are beyond f16.
    if (of.narrow == Narrow::kS8 && of.out_type == Type::kF16) of.out_type = Type::kF32;
    of.scale = below(3) != 0;
    of.one_scale = below(2);
    if (below(2)) {
      of.group = 8 * (1 + below(4));
      of.zero = below(2);
      of.scale_type = static_cast<Type>(below(3)), of.zero_type = static_cast<Type>(below(3));
    }
    if (of.narrow == Narrow::kS8 || of.narrow == Narrow::kS4) {
      // A weight in 4 bits is multiplied with integers of its own groups.
      const bool integers = below(2) && (of.group || of.narrow == Narrow::kS8);
      if (integers) of.x_group = of.group ? of.group : 2 * (1 + below(20));
    }
  }
  return of;
}

}  // namespace

int CheckMatrixUnit() {
  static int asked;
  asked = 0;
  const RequestUnit granted = [] { return ++asked, 0; }, refused = [] { return ++asked, EPERM; };
  int wrong = !WhyNoMatrixUnit(true, true, granted).empty();
  wrong += WhyNoMatrixUnit(true, true, refused).find(std::strerror(EPERM)) == std::string::npos;
  wrong += asked != 2;
  for (const bool has : {false, true}) wrong += WhyNoMatrixUnit(has, false, granted).empty();
  wrong += WhyNoMatrixUnit(false, true, granted).empty();
  // What there is not is not asked for.
  wrong += asked != 2;
  wrong += !WhyTrialFails(amx_emulated::RunTileTrial).empty();
  const RunTrial off = [](TileTrial* trial) {
    amx_emulated::RunTileTrial(trial);
    trial->sums[1][64] ^= 1;
  };
  wrong += WhyTrialFails(off).find("products") == std::string::npos;
  for (const int number : {SIGILL, SIGSEGV}) {
    static int raised;
    raised = number;
    const RunTrial ends = [](TileTrial*) { std::raise(raised); };
    wrong += WhyTrialFails(ends).find(strsignal(number)) == std::string::npos;
  }
  return wrong;
}

namespace {

void CheckVariant(const Variant& variant, int cases) {
  const int before = failures;
  std::mt19937 random(1);
  for (int index = 0; index < cases; ++index) {
    const Case of = Drawn(index, random);
    Problem problem = Make(of, random);
    Threads threads(index % 3);
    Check(variant, problem, threads.pool);
    if (index % 5 == 0) CheckRowsAlone(variant, problem, threads.pool);
  }
  for (Type type : {Type::kF32, Type::kBf16, Type::kF16}) {
    CheckNotFinite(variant, type, Narrow::kNone, TaskPool{});
    for (Narrow narrow : kNarrow) {
      CheckNotFinite(variant, type, narrow, TaskPool{});
      const bool integers = narrow == Narrow::kS8 || narrow == Narrow::kS4;
      if (integers) CheckNotFinite(variant, type, narrow, TaskPool{}, 8);
      CheckCodes(variant, type, narrow);
    }
    Check(variant, Make({0, 3, 5, type}, random), TaskPool{});
  }
  CheckLateHelpers(variant);
  failures += CheckAttention(variant, cases);
  failures += CheckRotation(variant, cases);
  failures += CheckRows(variant, cases);
  failures += CheckLowRank(variant, cases);
  std::printf("%s: %d cases, %d wrong\n", variant.name, cases, failures - before);
}

}  // namespace
}  // namespace graphgen

int main(int count, char** words) {
  const int cases = count > 1 ? std::atoi(words[1]) : 200;
  const int wrong = graphgen::CheckTaskPool();
  const int of_unit = graphgen::CheckMatrixUnit();
  graphgen::failures += wrong + of_unit;
  std::printf("matrix unit: %d wrong\n", of_unit);
  std::printf("loops: %d wrong\n", wrong);
  for (const auto& variant : graphgen::VariantsOfThisCpu()) graphgen::CheckVariant(variant, cases);
  return graphgen::failures != 0;
}
