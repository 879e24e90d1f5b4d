// Sixteen lanes: of f32 they are one register, two or four, by instruction set.
//
// Included once per instruction set, inside of its namespace.

#include "wide_vectors.h"

// Whether an instruction takes products of pairs of bf16.
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define GRAPHGEN_BF16_PAIRS
#endif

using Floats = Lanes<float>;
using Words = Lanes<uint32_t>;
using Ints = Lanes<int32_t>;
using Halves = Lanes<uint16_t>;
using Shorts = Lanes<int16_t>;
using Bytes = Lanes<uint8_t>;

inline Floats Splat(float x) { return SplatAs<Floats>(x); }

// A cast of vectors keeps the bits.
inline Floats AsFloats(Words bits) { return (Floats)bits; }

inline Words AsWords(Floats value) { return (Words)value; }

// Where `which` is all ones a, elsewhere b.
inline Words Choose(Words which, Words a, Words b) { return (a & which) | (b & ~which); }

// Lane by lane a where a comparison holds, elsewhere b.
template <typename Flags, typename T>
inline T Where(Flags which, T a, T b) {
  if constexpr (kIsWide<T>) return {Where(which.low, a.low, b.low), Where(which.high, a.high, b.high)};
  else return which ? a : b;
}

// Lane by lane a where a byte is not 0, elsewhere b. The compiler would widen bytes one by one.
inline Floats WhereBytes(Bytes which, Floats a, Floats b) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const __mmask16 flags = _mm_test_epi8_mask((__m128i)which, (__m128i)which);
  return (Floats)_mm512_mask_blend_ps(flags, (__m512)b, (__m512)a);
#else
  return Where(Convert<Words>(which) != 0u, a, b);
#endif
}

#if defined(__aarch64__)
// each(register of a, of b, of c) for the registers of a vector.
template <typename A, typename B, typename C, typename Each>
inline A EachRegister(A a, B b, C c, const Each& each) {
  if constexpr (kIsWide<A>) {
    return {EachRegister(a.low, b.low, c.low, each), EachRegister(a.high, b.high, c.high, each)};
  } else {
    return each(a, b, c);
  }
}
#endif

// a * b + sum, rounded once where the instruction is there. Written as `a * b + sum` it is rounded once
// in some copies of a function and twice in others, as the compiler joins the two only where they stand
// in one block of its code: a row of few would be another number than the same row of many.
inline Floats MultiplyAdd(Floats a, Floats b, Floats sum) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__FMA__)
  return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
#elif defined(__aarch64__)
  return EachRegister(sum, a, b, [](auto sum, auto a, auto b) {
    return (decltype(sum))vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
  });
#else
  return a * b + sum;
#endif
}

// The sum of the lanes.
inline float Total(Floats value) {
  using Four = float __attribute__((vector_size(16)));
  float lanes[16];
  Store(lanes, value);
  const Four sums = Load<Four>(lanes) + Load<Four>(lanes + 4) +
                    (Load<Four>(lanes + 8) + Load<Four>(lanes + 12));
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

#if defined(__AVX512F__)
// Sums of neighbours at distance kHalf, of a before those of b.
template <int kHalf>
inline Floats Fold(Floats a, Floats b) {
  Words first;
  for (int lane = 0; lane < 16; ++lane) first[lane] = lane / kHalf * 2 * kHalf + lane % kHalf;
  const __m512i low = (__m512i)first, high = (__m512i)(first + kHalf);
  return (Floats)_mm512_permutex2var_ps((__m512)a, low, (__m512)b) +
         (Floats)_mm512_permutex2var_ps((__m512)a, high, (__m512)b);
}

template <int kHalf, typename Each>
__attribute__((always_inline)) inline Floats FoldAll(const Each& each, int from) {
  if constexpr (kHalf == 16) {
    return each(from);
  } else {
    return Fold<kHalf>(FoldAll<2 * kHalf>(each, from), FoldAll<2 * kHalf>(each, from + 8 / kHalf));
  }
}
#endif

// Lane i is the sum of the lanes of each(i), of sixteen.
template <typename Each>
inline Floats Totals(const Each& each) {
#if defined(__AVX512F__)
  return FoldAll<1>(each, 0);
#else
  Floats sums;
  for (int lane = 0; lane < 16; ++lane) sums[lane] = Total(each(lane));
  return sums;
#endif
}

inline Floats Bf16ToFloats(Halves bits) {
  return AsFloats(Convert<Words>(bits) << 16);
}

// Round to nearest even; a NaN stays one. As in products of bf16, numbers below the normal ones may
// become zeros.
inline Halves FloatsToBf16(Floats value) {
#if defined(__AVX512BF16__)
  return (Halves)_mm512_cvtneps_pbh((__m512)value);
#else
  const Words bits = AsWords(value);
  const Words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const Words nan = (Words)(value != value);
  return Convert<Halves>(Choose(nan, bits | 0x400000u, rounded) >> 16);
#endif
}

#include "half_floats.h"

inline Floats F16ToFloats(Halves bits) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps((__m256i)bits);
#elif defined(__F16C__)
  return {_mm256_cvtph_ps((__m128i)bits.low), _mm256_cvtph_ps((__m128i)bits.high)};
#elif defined(__aarch64__)
  uint16_t halves[16];
  Store(halves, bits);
  const auto four = [&](int at) { return vcvt_f32_f16((float16x4_t)vld1_u16(halves + at)); };
  float floats[16];
  for (int at = 0; at < 16; at += 4) vst1q_f32(floats + at, four(at));
  return Load<Floats>(floats);
#else
  Floats wide;
  for (int lane = 0; lane < 16; ++lane) wide[lane] = HalfToFloat(bits[lane]);
  return wide;
#endif
}

inline Halves FloatsToF16(Floats value) {
#if defined(__AVX512F__)
  return (Halves)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__F16C__)
  const auto half = [](auto part) {
    return (Halves::Half)_mm256_cvtps_ph(part, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  };
  return {half(value.low), half(value.high)};
#elif defined(__aarch64__)
  float floats[16];
  Store(floats, value);
  uint16_t halves[16];
  for (int at = 0; at < 16; at += 4) {
    vst1_u16(halves + at, (uint16x4_t)vcvt_f16_f32(vld1q_f32(floats + at)));
  }
  return Load<Halves>(halves);
#else
  Halves halves;
  for (int lane = 0; lane < 16; ++lane) halves[lane] = FloatToHalf(value[lane]);
  return halves;
#endif
}

// e^x, to 2 units in the last place, by 2^n · e^r with |r| <= ln(2) / 2; 0 below e^-87.3.
__attribute__((always_inline)) inline Floats Exp(Floats x) {
  const Floats low = Splat(-87.3f);
#if defined(__AVX512F__)
  // A NaN stays one, here and in the power: a minimum is its second operand where they do not compare.
  const Floats bounded = (Floats)_mm512_min_ps((__m512)Splat(89.0f), (__m512)x);
#else
  const Floats high = Splat(88.7f);
  const auto below = x < low, above = x > high;
  const Floats bounded = Where(above, high, Where(below, low, x));
#endif
  // 1.5 · 2^23: adding it rounds to an integer.
  const Floats magic = Splat(12582912.0f);
  const Floats shifted = MultiplyAdd(bounded, Splat(1.44269504f), magic);
  const Floats n = shifted - magic;
  Floats r = MultiplyAdd(n, Splat(-0.693359375f), bounded);
  r = MultiplyAdd(n, Splat(2.12194440e-4f), r);
  Floats p = Splat(1.9875691500e-4f);
  for (float next : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                     5.0000001201e-1f}) {
    p = MultiplyAdd(p, r, Splat(next));
  }
  p = MultiplyAdd(p * r, r, r) + 1.0f;
#if defined(__AVX512F__)
  const __mmask16 kept = _mm512_cmp_ps_mask((__m512)x, (__m512)low, _CMP_NLT_UQ);
  return (Floats)_mm512_maskz_scalef_ps(kept, (__m512)p, (__m512)n);
#else
  const Floats power = AsFloats(AsWords(p) + (AsWords(shifted) << 23));
  const Floats finite = Where(above, Splat(INFINITY), Where(below, Floats{}, power));
  return Where(x != x, x, finite);
#endif
}
