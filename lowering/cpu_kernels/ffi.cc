// The kernels as custom calls of XLA.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "attention.h"
#include "linear.h"
#include "matrix_unit.h"
#include "norm.h"
#include "rotation.h"
#include "top_k.h"
#include "xla/ffi/api/ffi.h"

namespace graphgen {
namespace {

namespace ffi = xla::ffi;

TaskPool PoolOf(ffi::ThreadPool threads) {
  // XLA counts none where it has no pool.
  return {std::max<int64_t>(threads.num_threads(), 1) - 1,
          [threads](std::function<void()> task) mutable { threads.Schedule(std::move(task)); }};
}

bool TypeOf(ffi::DataType type, Type* found) {
  switch (type) {
    case ffi::DataType::F32: *found = Type::kF32; return true;
    case ffi::DataType::BF16: *found = Type::kBf16; return true;
    case ffi::DataType::F16: *found = Type::kF16; return true;
    default: return false;
  }
}

bool NarrowOf(ffi::DataType type, Narrow* found) {
  switch (type) {
    // Two numbers of 4 bits a byte.
    case ffi::DataType::U8: *found = Narrow::kS4; return true;
    case ffi::DataType::S8: *found = Narrow::kS8; return true;
    case ffi::DataType::F8E4M3FN: *found = Narrow::kF8E4M3; return true;
    case ffi::DataType::F8E5M2: *found = Narrow::kF8E5M2; return true;
    default: return false;
  }
}

bool ActivationOf(std::string_view name, Activation* found) {
  if (name == "none") *found = Activation::kNone;
  else if (name == "relu") *found = Activation::kRelu;
  else if (name == "silu") *found = Activation::kSilu;
  else if (name == "gelu") *found = Activation::kGelu;
  else if (name == "gelu_tanh") *found = Activation::kGeluTanh;
  else if (name == "gelu_sigmoid") *found = Activation::kGeluSigmoid;
  else return false;
  return true;
}

// Columns of the packed product.
int64_t PackedColumns(const Linear& linear) {
  return (linear.product_columns() + kLanes - 1) / kLanes * kLanes;
}

// Elements of a packed weight; two numbers of 4 bits are one.
int64_t PackedSize(const Linear& linear) {
  const int64_t step = linear.step();
  const int64_t numbers = PackedColumns(linear) * ((linear.depth + step - 1) / step * step);
  return step == 8 ? numbers / 2 : numbers;
}

// The tiles at which low-rank terms start, separated by commas; none for no text.
bool StartsOf(std::string_view text, LowRank* found) {
  found->count = 0;
  while (!text.empty()) {
    int64_t start = 0;
    size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
      start = 10 * start + (text[digits] - '0');
    }
    const bool more = digits < text.size();
    if (!digits || digits > 12 || (more && text[digits] != ',') || found->count == kMostTerms) return false;
    found->terms[found->count++].tile = start;
    text.remove_prefix(digits + more);
  }
  return true;
}

// The operands of low-rank terms from `next` on: ids[R], then of each term A[slots, rank, K] and the
// packed B[slots, tiles, ...], of the product's type.
bool ReadLowRank(const ffi::RemainingArgs& operands, size_t next, ffi::DataType type,
                 const Linear& linear, LowRank* found) {
  const auto operand = [&](size_t i) { return *operands.get<ffi::AnyBuffer>(i); };
  const ffi::AnyBuffer ids = operand(next);
  found->rows = static_cast<int64_t>(ids.element_count());
  found->ids = static_cast<const int32_t*>(ids.untyped_data());
  if (ids.element_type() != ffi::DataType::S32 || found->rows < 1 || linear.rows % found->rows != 0) {
    return false;
  }
  for (int64_t t = 0; t < found->count; ++t) {
    const ffi::AnyBuffer a = operand(next + 1 + 2 * t), b = operand(next + 2 + 2 * t);
    const auto left = a.dimensions(), right = b.dimensions();
    if (a.element_type() != type || b.element_type() != type || left.size() != 3 || right.size() < 2) {
      return false;
    }
    if (t == 0) found->slots = left[0], found->rank = left[1];
    const int64_t step = linear.type == Type::kBf16 ? 2 : 1;
    const int64_t of_tile = (found->rank + step - 1) / step * step * kLanes;
    LowRankTerm& term = found->terms[t];
    term.a = a.untyped_data(), term.b = b.untyped_data(), term.tiles = right[1];
    const bool fits = left[0] == found->slots && left[1] == found->rank && left[2] == linear.depth &&
                      right[0] == found->slots &&
                      static_cast<int64_t>(b.element_count()) == found->slots * term.tiles * of_tile &&
                      (term.tile + term.tiles) * kLanes <= PackedColumns(linear);
    if (!fits) return false;
  }
  return true;
}

// Operands: x, weight, then norm[K], offset[K] of the norm, scale of each column of the product or of all or of groups, zero
// points of groups, bias[N] and residual[M, N] where the attributes say so, then those of the low-rank
// terms. With a narrow weight the product's type is the norm's; without a norm x's.
ffi::Error AdaptedLinearCall(ffi::ThreadPool threads, ffi::RemainingArgs operands,
                             ffi::RemainingRets results, int64_t columns, bool has_norm,
                             bool has_offset, float epsilon, bool has_scale, int64_t group,
                             int64_t x_group, bool has_zero, bool has_bias, bool has_residual,
                             std::string_view activation, bool gated, std::string_view terms) {
  const auto operand = [&](size_t i) { return *operands.get<ffi::AnyBuffer>(i); };
  LowRank low_rank;
  if (!StartsOf(terms, &low_rank)) {
    return ffi::Error::InvalidArgument("graphgen.linear: tiles of low-rank terms do not fit");
  }
  const size_t expected = 2 + has_norm + has_offset + has_scale + has_zero + has_bias + has_residual +
                          (low_rank.count ? 1 + 2 * low_rank.count : 0);
  if (operands.size() != expected || results.size() != 1) {
    return ffi::Error::InvalidArgument("graphgen.linear: operands do not match the attributes");
  }
  const ffi::AnyBuffer x = operand(0), weight = operand(1);
  ffi::AnyBuffer out = **results.get<ffi::AnyBuffer>(0);
  Linear linear;
  const bool narrow = NarrowOf(weight.element_type(), &linear.narrow);
  const ffi::DataType type = (narrow ? has_norm ? operand(2) : x : weight).element_type();
  if (!TypeOf(x.element_type(), &linear.x_type) || !TypeOf(type, &linear.type) ||
      !TypeOf(out.element_type(), &linear.out_type) ||
      !ActivationOf(activation, &linear.activation)) {
    return ffi::Error::InvalidArgument("graphgen.linear: unknown type or activation");
  }
  linear.columns = columns;
  if (x.dimensions().size() == 0 || columns < 1 ||
      (gated && (columns % kLanes != 0 || linear.activation == Activation::kNone)) ||
      (has_offset && !has_norm)) {
    return ffi::Error::InvalidArgument("graphgen.linear: no rows, or half a tile of columns");
  }
  linear.gated = gated;
  linear.depth = x.dimensions().back();
  linear.rows = linear.depth ? static_cast<int64_t>(x.element_count()) / linear.depth : 0;
  if (static_cast<int64_t>(out.element_count()) != linear.rows * columns) {
    return ffi::Error::InvalidArgument("graphgen.linear: the result has another size");
  }
  linear.group = group;
  const bool whole = group % linear.step() == 0 || group >= linear.depth;
  if (group < 0 || !whole || (group > 0 && !has_scale) || (group == 0 && has_zero)) {
    return ffi::Error::InvalidArgument("graphgen.linear: groups do not fit the weight");
  }
  linear.x_group = x_group;
  const bool integers = linear.narrow == Narrow::kS8 || linear.narrow == Narrow::kS4;
  if (x_group && (!integers || x_group < 0 || (group && group != x_group) ||
                  (x_group % linear.step() && x_group < linear.depth))) {
    return ffi::Error::InvalidArgument("graphgen.linear: groups of x do not fit the weight");
  }
  linear.x = x.untyped_data();
  linear.weight = weight.untyped_data();
  linear.out = out.untyped_data();
  linear.epsilon = epsilon;
  size_t next = 2;
  bool fits = static_cast<int64_t>(weight.element_count()) == PackedSize(linear);
  const auto data = [&](ffi::DataType type, int64_t count) {
    const ffi::AnyBuffer each = operand(next++);
    fits = fits && each.element_type() == type &&
           static_cast<int64_t>(each.element_count()) == count;
    return each.untyped_data();
  };
  const auto floats = [&](int64_t count) {
    return static_cast<const float*>(data(ffi::DataType::F32, count));
  };
  if (has_norm) linear.norm = data(type, linear.depth);
  if (has_offset) linear.offset = data(type, linear.depth);
  const auto of_groups = [&](Type* type) {
    const ffi::DataType given = operand(next).element_type();
    fits = fits && TypeOf(given, type);
    return data(given, PackedColumns(linear) * linear.groups());
  };
  if (has_scale) {
    linear.one_scale = !group && operand(next).element_count() == 1;
    linear.scale = group ? of_groups(&linear.scale_type)
                         : floats(linear.one_scale ? 1 : linear.product_columns());
  }
  if (has_zero) linear.zero = of_groups(&linear.zero_type);
  if (has_bias) linear.bias = floats(columns);
  if (has_residual) linear.residual = floats(linear.rows * columns);
  if (low_rank.count) {
    fits = fits && !x_group && ReadLowRank(operands, next, type, linear, &low_rank);
    linear.low_rank = &low_rank;
  }
  if (!fits) return ffi::Error::InvalidArgument("graphgen.linear: an operand has another size");
  RunLinear(linear, PoolOf(threads));
  return ffi::Error::Success();
}

ffi::Error LinearCall(ffi::ThreadPool threads, ffi::RemainingArgs operands, ffi::RemainingRets results,
                      int64_t columns, bool has_norm, bool has_offset, float epsilon, bool has_scale,
                      int64_t group, int64_t x_group, bool has_zero, bool has_bias, bool has_residual,
                      std::string_view activation, bool gated) {
  return AdaptedLinearCall(threads, operands, results, columns, has_norm, has_offset, epsilon,
                           has_scale, group, x_group, has_zero, has_bias, has_residual, activation, gated,
                           "");
}

bool NumbersNamed(std::string_view name, CacheNumbers* found) {
  if (name.empty()) *found = CacheNumbers::kPlain;
  else if (name == "s8") *found = CacheNumbers::kS8;
  else if (name == "f8e4m3") *found = CacheNumbers::kF8E4M3;
  else if (name == "f8e4m3fn") *found = CacheNumbers::kF8E4M3Fn;
  else if (name == "f8e5m2") *found = CacheNumbers::kF8E5M2;
  else return false;
  return true;
}

// The scale of a cache that has `heads` of `size` channels; false for another number of factors.
bool ScaleOf(const ffi::AnyBuffer& operand, int64_t heads, int64_t size, CacheScale* found) {
  const int64_t count = static_cast<int64_t>(operand.element_count());
  found->per_head = count == 1 ? 0 : count / heads;
  found->per_channel = count > 1 && count == heads * size && size > 1;
  if (operand.element_type() != ffi::DataType::F32) return false;
  found->data = static_cast<const float*>(operand.untyped_data());
  return count == 1 || count == heads || found->per_channel;
}

// Operands: query, key, value and mask, then rows, sinks and the scales of keys and of values where
// the attributes say so. A cache may hold the bits of its elements as integers.
ffi::Error AttentionCall(ffi::ThreadPool threads, ffi::RemainingArgs operands,
                         ffi::RemainingRets results, float scale, float softcap, int64_t attended,
                         bool has_rows, bool has_sinks, std::string_view numbers, bool has_key_scale,
                         bool has_value_scale, bool row_scale) {
  const auto operand = [&](size_t i) { return *operands.get<ffi::AnyBuffer>(i); };
  const size_t expected = 4 + has_rows + has_sinks + has_key_scale + has_value_scale;
  if (operands.size() != expected || results.size() != 1) {
    return ffi::Error::InvalidArgument("graphgen.attention: operands do not match the attributes");
  }
  const ffi::AnyBuffer query = operand(0), key = operand(1), value = operand(2);
  const auto q = query.dimensions(), k = key.dimensions(), v = value.dimensions();
  Attention a;
  if (!TypeOf(query.element_type(), &a.type) || !NumbersNamed(numbers, &a.numbers) ||
      q.size() != 4 || k.size() != 4 || v.size() != 4) {
    return ffi::Error::InvalidArgument("graphgen.attention: unknown type or rank");
  }
  a.batch = q[0], a.active = q[1], a.heads = q[2], a.size = q[3];
  a.row_scale = row_scale;
  const int64_t behind = row_scale ? 4 : 0;
  a.cache_rows = k[0], a.cache_slots = k[1], a.kv_heads = k[2], a.width = v[3] - behind;
  a.attended = attended;
  a.scale = scale, a.softcap = softcap;
  bool fits = k[3] == a.size + behind && a.width >= 0 &&
              (!row_scale || a.numbers != CacheNumbers::kPlain) && v[0] == k[0] && v[1] == k[1] && v[2] == k[2] &&
              attended <= a.cache_slots && a.kv_heads > 0 && a.heads % a.kv_heads == 0 &&
              (has_rows || a.batch <= a.cache_rows);
  const auto check = [&](const ffi::AnyBuffer& each, int64_t bytes) {
    fits = fits && static_cast<int64_t>(each.size_bytes()) == bytes;
    return each.untyped_data();
  };
  const int64_t bytes = a.type == Type::kF32 ? 4 : 2, queries = a.batch * a.active;
  const int64_t slots = a.cache_rows * a.cache_slots * a.kv_heads;
  const int64_t kept = a.numbers == CacheNumbers::kPlain ? bytes : 1;
  a.query = query.untyped_data();
  a.key = check(key, slots * (a.size + behind) * kept);
  a.value = check(value, slots * (a.width + behind) * kept);
  a.mask = static_cast<const uint8_t*>(check(operand(3), queries * attended));
  size_t next = 4;
  if (has_rows) a.rows = static_cast<const int32_t*>(check(operand(next++), a.batch * 4));
  if (has_sinks) a.sinks = static_cast<const float*>(check(operand(next++), a.heads * 4));
  fits = fits && (!has_key_scale || ScaleOf(operand(next++), a.kv_heads, a.size, &a.key_scale)) &&
         (!has_value_scale || ScaleOf(operand(next++), a.kv_heads, a.width, &a.value_scale));
  a.out = check(**results.get<ffi::AnyBuffer>(0), queries * a.heads * a.width * bytes);
  if (!fits) return ffi::Error::InvalidArgument("graphgen.attention: an operand has another size");
  RunAttention(a, PoolOf(threads));
  return ffi::Error::Success();
}

bool TypeNamed(std::string_view name, Type* found) {
  if (name == "f32") *found = Type::kF32;
  else if (name == "bf16") *found = Type::kBf16;
  else if (name == "f16") *found = Type::kF16;
  else return false;
  return true;
}

// What `rope` and `cache_write` share: x[B, S, ...] and the tables at `next`, if it is turned, before
// `more` operands.
bool ReadRotation(ffi::RemainingArgs operands, size_t x_at, size_t next, size_t more,
                  std::string_view type, std::string_view pairs, Rotation* r) {
  const ffi::AnyBuffer x = *operands.get<ffi::AnyBuffer>(x_at);
  const auto dims = x.dimensions();
  r->neighbors = pairs == "neighbors";
  if (dims.size() < 3 || !TypeOf(x.element_type(), &r->x_type) || !TypeNamed(type, &r->out_type)) {
    return false;
  }
  r->batch = dims[0], r->active = dims[1], r->x = x.untyped_data();
  r->stride = 1;
  for (size_t i = 2; i < dims.size(); ++i) r->stride *= dims[i];
  if (r->offset < 0 || r->heads < 0 || r->size < 0 ||
      r->offset + r->heads * r->size > r->stride || operands.size() != next + (r->half ? 2 : 0) + more) {
    return false;
  }
  const int64_t table = r->batch * r->active * r->half;
  for (size_t i = 0; r->half && i < 2; ++i) {
    const ffi::AnyBuffer each = *operands.get<ffi::AnyBuffer>(next + i);
    if (each.element_type() != ffi::DataType::F32 || r->half < 0 || 2 * r->half > r->size ||
        static_cast<int64_t>(each.element_count()) != table) {
      return false;
    }
    (i ? r->sin : r->cos) = static_cast<const float*>(each.untyped_data());
  }
  return true;
}

// Operands: x[B, S, ...], then the tables of cosines and sines.
ffi::Error RopeCall(ffi::ThreadPool threads, ffi::RemainingArgs operands,
                    ffi::RemainingRets results, int64_t offset, int64_t heads, int64_t size,
                    int64_t half, std::string_view pairs, std::string_view type) {
  Rotation r;
  r.offset = offset, r.heads = heads, r.size = size, r.half = half;
  const bool fits = operands.size() > 0 && results.size() == 1 &&
                    ReadRotation(operands, 0, 1, 0, type, pairs, &r);
  if (!fits) return ffi::Error::InvalidArgument("graphgen.rope: an operand does not fit");
  ffi::AnyBuffer out = **results.get<ffi::AnyBuffer>(0);
  const int64_t bytes = r.out_type == Type::kF32 ? 4 : 2;
  if (static_cast<int64_t>(out.size_bytes()) != r.batch * r.active * heads * size * bytes) {
    return ffi::Error::InvalidArgument("graphgen.rope: the result has another size");
  }
  r.out = out.untyped_data();
  RunRotation(r, PoolOf(threads));
  return ffi::Error::Success();
}

// The largest number of a type of 8 bits, as far below zero as above.
float LargestOf(CacheNumbers numbers) {
  switch (numbers) {
    case CacheNumbers::kS8: return 127.0f;
    case CacheNumbers::kF8E4M3: return 240.0f;
    case CacheNumbers::kF8E4M3Fn: return 448.0f;
    case CacheNumbers::kF8E5M2: return 57344.0f;
    case CacheNumbers::kPlain: break;
  }
  return 0.0f;
}

// Operands: the cache[R, M, K, D], which is the result, x[B, S, ...], rows[B] and slots[B, S], then
// the tables of cosines and sines where keys are turned, and the scale of a cache of 8 bits.
ffi::Error CacheWriteCall(ffi::ThreadPool threads, ffi::RemainingArgs operands,
                          ffi::RemainingRets results, int64_t offset, int64_t heads, int64_t size,
                          int64_t half, std::string_view pairs, std::string_view type,
                          std::string_view numbers, float limit, bool has_scale, bool row_scale) {
  Rotation r;
  r.offset = offset, r.heads = heads, r.size = size, r.half = half, r.limit = limit, r.row_scale = row_scale;
  const bool read = operands.size() > 3 && results.size() == 1 && NumbersNamed(numbers, &r.numbers) &&
                    (r.numbers == CacheNumbers::kPlain || limit > 0) &&
                    limit <= LargestOf(r.numbers) &&
                    ReadRotation(operands, 1, 4, has_scale, type, pairs, &r);
  if (!read) return ffi::Error::InvalidArgument("graphgen.cache_write: an operand does not fit");
  const ffi::AnyBuffer cache = *operands.get<ffi::AnyBuffer>(0);
  const ffi::AnyBuffer ids = *operands.get<ffi::AnyBuffer>(2), slots = *operands.get<ffi::AnyBuffer>(3);
  ffi::AnyBuffer out = **results.get<ffi::AnyBuffer>(0);
  const auto dims = cache.dimensions();
  const bool plain = r.numbers == CacheNumbers::kPlain;
  const int64_t bytes = !plain ? 1 : r.out_type == Type::kF32 ? 4 : 2;
  const bool fits = dims.size() == 4 && dims[2] == heads && dims[3] == size + (row_scale ? 4 : 0) &&
                    static_cast<int64_t>(cache.size_bytes()) ==
                        static_cast<int64_t>(cache.element_count()) * bytes &&
                    static_cast<int64_t>(ids.size_bytes()) == 4 * r.batch &&
                    static_cast<int64_t>(slots.size_bytes()) == 4 * r.batch * r.active &&
                    !(row_scale && (plain || has_scale)) &&
                    (!has_scale || (!plain && heads > 0 &&
                                    ScaleOf(*operands.get<ffi::AnyBuffer>(operands.size() - 1),
                                            heads, size, &r.scale))) &&
                    out.untyped_data() == cache.untyped_data();
  if (!fits) return ffi::Error::InvalidArgument("graphgen.cache_write: an operand has another size");
  r.cache_rows = dims[0], r.cache_slots = dims[1];
  r.ids = static_cast<const int32_t*>(ids.untyped_data());
  r.slots = static_cast<const int32_t*>(slots.untyped_data());
  r.out = out.untyped_data();
  RunRotation(r, PoolOf(threads));
  return ffi::Error::Success();
}

// Operands: x[..., K], norm[K] and, of a layer norm, offset[K].
ffi::Error NormCall(ffi::ThreadPool threads, ffi::RemainingArgs operands, ffi::RemainingRets results,
                    bool has_offset, float epsilon) {
  const auto operand = [&](size_t i) { return *operands.get<ffi::AnyBuffer>(i); };
  if (operands.size() != static_cast<size_t>(2 + has_offset) || results.size() != 1) {
    return ffi::Error::InvalidArgument("graphgen.norm: operands do not match the attributes");
  }
  const ffi::AnyBuffer x = operand(0), factor = operand(1);
  ffi::AnyBuffer out = **results.get<ffi::AnyBuffer>(0);
  Norm norm;
  if (x.dimensions().size() == 0 || !TypeOf(x.element_type(), &norm.x_type) ||
      !TypeOf(factor.element_type(), &norm.type)) {
    return ffi::Error::InvalidArgument("graphgen.norm: unknown type, or no rows");
  }
  norm.depth = x.dimensions().back();
  norm.rows = norm.depth ? static_cast<int64_t>(x.element_count()) / norm.depth : 0;
  bool fits = out.element_type() == factor.element_type() && out.element_count() == x.element_count();
  for (size_t i = 1; i < operands.size(); ++i) {
    fits = fits && operand(i).element_type() == factor.element_type() &&
           static_cast<int64_t>(operand(i).element_count()) == norm.depth;
  }
  if (!fits) return ffi::Error::InvalidArgument("graphgen.norm: an operand has another size");
  norm.x = x.untyped_data(), norm.norm = factor.untyped_data();
  norm.offset = has_offset ? operand(2).untyped_data() : nullptr;
  norm.epsilon = epsilon;
  norm.out = out.untyped_data();
  RunNorm(norm, PoolOf(threads));
  return ffi::Error::Success();
}

// Operand: x[..., N]; results: values[..., k] and ids[..., k].
ffi::Error TopKCall(ffi::ThreadPool threads, ffi::RemainingArgs operands, ffi::RemainingRets results,
                    int64_t k) {
  if (operands.size() != 1 || results.size() != 2) {
    return ffi::Error::InvalidArgument("graphgen.top_k: it has one operand and two results");
  }
  const ffi::AnyBuffer x = *operands.get<ffi::AnyBuffer>(0);
  ffi::AnyBuffer values = **results.get<ffi::AnyBuffer>(0), ids = **results.get<ffi::AnyBuffer>(1);
  TopK top_k;
  if (x.dimensions().size() == 0 || !TypeOf(x.element_type(), &top_k.type)) {
    return ffi::Error::InvalidArgument("graphgen.top_k: unknown type, or no rows");
  }
  top_k.size = x.dimensions().back();
  top_k.rows = top_k.size ? static_cast<int64_t>(x.element_count()) / top_k.size : 0;
  top_k.k = k;
  const int64_t count = top_k.rows * k;
  const bool fits = k > 0 && k <= top_k.size && values.element_type() == x.element_type() &&
                    static_cast<int64_t>(values.element_count()) == count &&
                    ids.element_type() == ffi::DataType::S32 &&
                    static_cast<int64_t>(ids.element_count()) == count;
  if (!fits) return ffi::Error::InvalidArgument("graphgen.top_k: a result has another size");
  top_k.x = x.untyped_data();
  top_k.values = values.untyped_data();
  top_k.ids = static_cast<int32_t*>(ids.untyped_data());
  RunTopK(top_k, PoolOf(threads));
  return ffi::Error::Success();
}

}  // namespace
}  // namespace graphgen

#define GRAPHGEN_LINEAR_OPERANDS            \
  xla::ffi::Ffi::Bind()                     \
      .Ctx<xla::ffi::ThreadPool>()          \
      .RemainingArgs()                      \
      .RemainingRets()                      \
      .Attr<int64_t>("columns")             \
      .Attr<bool>("norm")                   \
      .Attr<bool>("offset")                 \
      .Attr<float>("epsilon")               \
      .Attr<bool>("scale")                  \
      .Attr<int64_t>("group")               \
      .Attr<int64_t>("x_group")             \
      .Attr<bool>("zero")                   \
      .Attr<bool>("bias")                   \
      .Attr<bool>("residual")               \
      .Attr<std::string_view>("activation") \
      .Attr<bool>("gated")

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_linear, graphgen::LinearCall, GRAPHGEN_LINEAR_OPERANDS);

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_adapted_linear, graphgen::AdaptedLinearCall,
                              GRAPHGEN_LINEAR_OPERANDS.Attr<std::string_view>("terms"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_attention, graphgen::AttentionCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<float>("scale")
                                  .Attr<float>("softcap")
                                  .Attr<int64_t>("attended")
                                  .Attr<bool>("rows")
                                  .Attr<bool>("sinks")
                                  .Attr<std::string_view>("numbers")
                                  .Attr<bool>("key_scale")
                                  .Attr<bool>("value_scale")
                                  .Attr<bool>("row_scale"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_rope, graphgen::RopeCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("offset")
                                  .Attr<int64_t>("heads")
                                  .Attr<int64_t>("size")
                                  .Attr<int64_t>("half")
                                  .Attr<std::string_view>("pairs")
                                  .Attr<std::string_view>("type"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_cache_write, graphgen::CacheWriteCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("offset")
                                  .Attr<int64_t>("heads")
                                  .Attr<int64_t>("size")
                                  .Attr<int64_t>("half")
                                  .Attr<std::string_view>("pairs")
                                  .Attr<std::string_view>("type")
                                  .Attr<std::string_view>("numbers")
                                  .Attr<float>("limit")
                                  .Attr<bool>("scale")
                                  .Attr<bool>("row_scale"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_norm, graphgen::NormCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<bool>("offset")
                                  .Attr<float>("epsilon"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(graphgen_top_k, graphgen::TopKCall,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("k"));

// The instruction set that the kernels use on this CPU.
extern "C" const char* graphgen_instruction_set() { return graphgen::InstructionSet(); }

// Those that this CPU can run, the best first, with spaces between.
extern "C" const char* graphgen_instruction_sets() { return graphgen::InstructionSets(); }

// Has the kernels use one of them; returns the one that is used.
extern "C" const char* graphgen_use_instruction_set(const char* name) {
  return graphgen::UseInstructionSet(name);
}

// Why this process cannot use the matrix unit; empty if it can. The first asks the system for it.
extern "C" const char* graphgen_why_no_matrix_unit() { return graphgen::WhyNoMatrixUnit().c_str(); }
extern "C" const char* graphgen_why_machine_has_no_matrix_unit() {
  return graphgen::WhyMachineHasNoMatrixUnit().c_str();
}

// The digest of the sources that this library was built from.
extern "C" const char* graphgen_sources() { return GRAPHGEN_SOURCES; }
