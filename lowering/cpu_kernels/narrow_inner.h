// Weights in 8 bits, widened inside of the product. Part of linear_inner.h.
//
// Every number of these types is exact in bf16, f16 and f32, so nothing is rounded here. A step is
// two depths of 16 columns, [16][2], of which a column's two numbers become a pair of bf16, or the
// lanes of two vectors of f32.

struct Two {
  Floats first, second;
};

// Pairs of bf16 that two vectors of bf16 values in f32 are: the first below the second.
inline Words PairsOf(Two two) { return AsWords(two.first) >> 16 | (AsWords(two.second) & 0xffff0000u); }

inline Two TwoOf(Words pairs) { return {AsFloats(pairs << 16), AsFloats(pairs & 0xffff0000u)}; }

// Two integers of a column in a word: the first in its low byte, the second above, with its sign.
inline Words S8ToWords(const uint8_t* w) {
  return (Words)Convert<Ints>(Load<Shorts>(w));
}

inline Two S8ToFloats(Words both) {
  return {Convert<Floats>((Ints)(both << 24) >> 24), Convert<Floats>((Ints)both >> 8)};
}

inline Words S8ToPairs(const uint8_t* w) {
#if defined(__AVX512BF16__)
  // Sixteen bytes are the pairs of eight columns.
  const auto floats = [](const uint8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(Load<__m128i>(from)));
  };
  return (Words)_mm512_cvtne2ps_pbh(floats(w + 16), floats(w));
#else
  return PairsOf(S8ToFloats(S8ToWords(w)));
#endif
}

// Floats of 8 bits: a sign, an exponent, kFraction bits of fraction. e4m3 has no infinities; its
// one NaN is all ones.
template <Narrow kNarrow>
struct F8 {
  static constexpr int kFraction = kNarrow == Narrow::kF8E4M3 ? 3 : 2;
  static constexpr int kBias = kNarrow == Narrow::kF8E4M3 ? 7 : 15;
  // The smallest code of a normal number, and of what is not finite.
  static constexpr uint32_t kNormal = 1u << kFraction;
  static constexpr uint32_t kSpecial = kNarrow == Narrow::kF8E4M3 ? 0x7f : 0x7c;
  // Bits of a NaN or an infinity in bf16.
  static constexpr uint32_t Special(uint32_t size) { return size == 0x7c ? 0x7f80 : 0x7fc0; }
};

#if defined(__AVX512BW__)
// The bf16 of each code without its sign.
template <Narrow kNarrow>
struct F8Table {
  alignas(64) uint16_t bits[128] = {};
  constexpr F8Table() {
    using Float = F8<kNarrow>;
    for (uint32_t code = 1; code < 128; ++code) {
      uint32_t exponent = code >> Float::kFraction, fraction = code & (Float::kNormal - 1);
      if (exponent == 0) {
        for (exponent = 1; fraction < Float::kNormal; --exponent) fraction <<= 1;
        fraction -= Float::kNormal;
      }
      bits[code] = static_cast<uint16_t>((exponent + 127 - Float::kBias) << 7 |
                                         fraction << (7 - Float::kFraction));
      if (code >= Float::kSpecial) bits[code] = static_cast<uint16_t>(Float::Special(code));
    }
  }
};

template <Narrow kNarrow>
inline Words F8ToPairs(const uint8_t* w) {
  // Not constant for the compiler: GCC 12 reads zeros where it folds loads of the first numbers.
  static F8Table<kNarrow> table;
  const auto part = [](int at) { return Load<__m512i>(table.bits + 32 * at); };
  const __m512i codes = _mm512_cvtepu8_epi16(Load<__m256i>(w));
  // Six bits of a code choose among 64 numbers, the seventh between two halves of the table.
  const __mmask32 high = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
  const __m512i low = _mm512_permutex2var_epi16(part(0), codes, part(1));
  const __m512i size =
      _mm512_mask_mov_epi16(low, high, _mm512_permutex2var_epi16(part(2), codes, part(3)));
  const __m512i sign = _mm512_and_si512(_mm512_slli_epi16(codes, 8), _mm512_set1_epi16(-0x8000));
  return (Words)_mm512_or_si512(size, sign);
}
#else
// The f32 of codes, one a word.
template <Narrow kNarrow>
inline Floats F8ToFloats(Words code) {
  using Float = F8<kNarrow>;
  const Words size = code & 0x7fu;
  const Words normal = (size << (23 - Float::kFraction)) + ((127u - Float::kBias) << 23);
  // Below the smallest normal number, a multiple of the smallest number.
  constexpr float kSmallest = kNarrow == Narrow::kF8E4M3 ? 0x1p-9f : 0x1p-16f;
  const Floats small = Convert<Floats>((Ints)size) * kSmallest;
  const Words is_small = (Words)((Ints)size < static_cast<int>(Float::kNormal));
  const Words is_special = (Words)((Ints)size >= static_cast<int>(Float::kSpecial));
  const Words nan = (Words)((Ints)size > 0x7c);
  const Words special = Choose(nan, Words{} + 0x7fc00000u, Words{} + 0x7f800000u);
  const Words finite = Choose(is_small, AsWords(small), normal);
  return AsFloats(Choose(is_special, special, finite) | (code & 0x80u) << 24);
}

template <Narrow kNarrow>
inline Words F8ToPairs(const uint8_t* w) {
  const Words both = Convert<Words>(Load<Halves>(w));
  return PairsOf({F8ToFloats<kNarrow>(both & 0xffu), F8ToFloats<kNarrow>(both >> 8)});
}
#endif

// Two depths of x.
struct PairOfFloats {
  float first, second;
};

// A product with x in f32 or f16: two sums a step, in the order of K.
template <Narrow kNarrow>
struct NarrowF32Steps {
  using X = PairOfFloats;
  using Sum = Floats;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
  using W = uint8_t;
  using Wide = Words;
  // Of tiles that are widened for many rows.
  using Plain = F32Steps;
  static Wide Read(const W* w) {
    if constexpr (kNarrow == Narrow::kS8) return S8ToWords(w);
    else return F8ToPairs<kNarrow>(w);
  }
  static Two Floating(Wide w) {
    if constexpr (kNarrow == Narrow::kS8) return S8ToFloats(w);
    else return TwoOf(w);
  }
  static Floats Add(Floats sum, Wide w, X x) {
    const Two two = Floating(w);
    sum = MultiplyAdd(two.first, Splat(x.first), sum);
    return MultiplyAdd(two.second, Splat(x.second), sum);
  }
  static void Widen(const W* w, float* to) {
    const Two wide = Floating(Read(w));
    Store(to, wide.first);
    Store(to + kLanes, wide.second);
  }
};

// A product with x in bf16: what Bf16Steps computes of the pairs.
template <Narrow kNarrow>
struct NarrowBf16Steps {
  using X = Bf16Steps::X;
  using Sum = Floats;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
  using W = uint8_t;
  using Plain = Bf16Steps;
  static Words Pairs(const W* w) {
    if constexpr (kNarrow == Narrow::kS8) return S8ToPairs(w);
    else return F8ToPairs<kNarrow>(w);
  }
  using Wide = Words;
#if defined(GRAPHGEN_BF16_PAIRS)
  static Wide Read(const W* w) { return Pairs(w); }
  static Floats Add(Floats sum, Wide w, X x) { return Bf16Steps::Add(sum, w, x); }
#else
  static Wide Read(const W* w) { return NarrowF32Steps<kNarrow>::Read(w); }
  static Floats Add(Floats sum, Wide w, X x) {
    const uint32_t first = x << 16, second = x & 0xffff0000u;
    return NarrowF32Steps<kNarrow>::Add(sum, w, {Load<float>(&first), Load<float>(&second)});
  }
#endif
  static void Widen(const W* w, Plain::W* to) { Store(to, Pairs(w)); }
};
