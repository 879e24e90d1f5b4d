// Sixteen lanes of f32 as the compiler's vectors: one register, two or four, by instruction set.
//
// Included once per instruction set, inside of its namespace.

using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));

inline Floats Splat(float value) { return Floats{} + value; }

// A cast of vectors keeps the bits.
inline Floats AsFloats(Words bits) { return (Floats)bits; }

inline Words AsWords(Floats value) { return (Words)value; }

template <typename T, typename From>
inline T Load(const From* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T, typename To>
inline void Store(To* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline float Bf16ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  return Load<float>(&wide);
}

// Round to nearest even; a NaN stays one.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = Load<uint32_t>(&value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float HalfToFloat(uint16_t bits) { return static_cast<float>(Load<_Float16>(&bits)); }

inline uint16_t FloatToHalf(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  return Load<uint16_t>(&half);
}

inline Floats HalvesToFloats(const uint16_t* from) {
#if defined(__AVX512F__)
  return (Floats)_mm512_cvtph_ps(Load<__m256i>(from));
#elif defined(__F16C__)
  Floats wide;
  Store(&wide, _mm256_cvtph_ps(Load<__m128i>(from)));
  Store(reinterpret_cast<float*>(&wide) + 8, _mm256_cvtph_ps(Load<__m128i>(from + 8)));
  return wide;
#else
  Floats wide;
  for (int lane = 0; lane < 16; ++lane) wide[lane] = HalfToFloat(from[lane]);
  return wide;
#endif
}

// e^x, to 2 units in the last place, by 2^n · e^r with |r| <= ln(2) / 2.
inline Floats Exp(Floats x) {
  const Floats low = Splat(-87.3f), high = Splat(88.7f);
  const Words below = (Words)(x < low), above = (Words)(x > high), odd = (Words)(x != x);
  Floats bounded = AsFloats((AsWords(x) & ~below) | (AsWords(low) & below));
  bounded = AsFloats((AsWords(bounded) & ~above) | (AsWords(high) & above));
  // 1.5 · 2^23: adding it rounds to an integer.
  const Floats magic = Splat(12582912.0f);
  const Floats shifted = bounded * 1.44269504f + magic;
  const Floats n = shifted - magic;
  Floats r = bounded - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Floats p = Splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Words exponent = (AsWords(shifted) << 23);
  Floats result = AsFloats(AsWords(p) + exponent);
  result = AsFloats(AsWords(result) & ~below);
  result = AsFloats((AsWords(result) & ~above) | (AsWords(Splat(INFINITY)) & above));
  return AsFloats((AsWords(result) & ~odd) | (AsWords(x) & odd));
}
