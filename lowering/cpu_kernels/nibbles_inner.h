// Weights in 4 bits with a sign, widened inside of the product. Part of linear_inner.h.
//
// A step is eight depths of 16 columns, a word of 32 bits each. A word has the numbers of the depths
// 0, 2, 4 and 6 in its low half, lowest bits first, and those of 1, 3, 5 and 7 in its high half: so
// its halves, moved down by 4 · i bits, end with the pair i.

#if defined(__AVX512BW__)
// What each code means, as bf16 and as f32. A look-up reads one bit more than a code has, so the
// first table holds everything twice.
struct NibbleTable {
  alignas(64) uint16_t halves[32] = {};
  alignas(64) float floats[16] = {};
  constexpr NibbleTable() {
    for (int code = 0; code < 16; ++code) {
      const int value = code >= 8 ? code - 16 : code;
      floats[code] = static_cast<float>(value);
      uint32_t size = value < 0 ? -value : value, exponent = 134;
      for (; size && size < 128; size <<= 1) --exponent;
      const uint32_t bits = (value < 0 ? 0x8000 : 0) | (size ? exponent << 7 | (size & 127) : 0);
      halves[code] = halves[code + 16] = static_cast<uint16_t>(bits);
    }
  }
};

// Not constant for the compiler, as the tables of narrow_inner.h.
inline NibbleTable& Nibbles() {
  static NibbleTable table;
  return table;
}

inline Words NibblePairs(Words words, int pair) {
  const __m512i table = Load<__m512i>(Nibbles().halves);
  return (Words)_mm512_permutexvar_epi16((__m512i)(words >> 4 * pair), table);
}

inline Two NibbleFloats(Words words, int pair) {
  const __m512 table = Load<__m512>(Nibbles().floats);
  const auto found = [&](int shift) {
    return (Floats)_mm512_permutexvar_ps((__m512i)(words >> shift), table);
  };
  return {found(4 * pair), found(4 * pair + 16)};
}
#else
inline Two NibbleFloats(Words words, int pair) {
  const auto found = [&](int shift) {
    return Convert<Floats>((Ints)(words << (28 - shift)) >> 28);
  };
  return {found(4 * pair), found(4 * pair + 16)};
}

inline Words NibblePairs(Words words, int pair) {
  return PairsOf(NibbleFloats(words, pair));
}
#endif

// A product with x in f32 or f16: eight sums a step, in the order of K.
struct NibbleF32Steps {
  struct X {
    PairOfFloats pairs[4];
  };
  using Sum = Floats;
  static constexpr int64_t kDepth = 8;
  static constexpr int64_t kStride = 64;
  using W = uint8_t;
  using Wide = Words;
  using Plain = F32Steps;
  static Wide Read(const W* w) { return Load<Words>(w); }
  static Floats Add(Floats sum, Wide w, X x) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      const Two two = NibbleFloats(w, pair);
      sum = MultiplyAdd(two.first, Splat(x.pairs[pair].first), sum);
      sum = MultiplyAdd(two.second, Splat(x.pairs[pair].second), sum);
    }
    return sum;
  }
  static void Widen(const W* w, float* to) {
    for (int pair = 0; pair < 4; ++pair, to += 2 * kLanes) {
      const Two two = NibbleFloats(Read(w), pair);
      Store(to, two.first);
      Store(to + kLanes, two.second);
    }
  }
};

// A product with x in bf16: what Bf16Steps computes of the pairs.
struct NibbleBf16Steps {
  struct X {
    Bf16Steps::X pairs[4];
  };
  using Sum = Floats;
  static constexpr int64_t kDepth = 8;
  static constexpr int64_t kStride = 64;
  using W = uint8_t;
  using Wide = Words;
  using Plain = Bf16Steps;
  static Wide Read(const W* w) { return Load<Words>(w); }
  static Floats Add(Floats sum, Wide w, X x) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
#if defined(GRAPHGEN_BF16_PAIRS)
      sum = Bf16Steps::Add(sum, NibblePairs(w, pair), x.pairs[pair]);
#else
      const uint32_t first = x.pairs[pair] << 16, second = x.pairs[pair] & 0xffff0000u;
      const Two two = NibbleFloats(w, pair);
      sum = MultiplyAdd(two.first, Splat(Load<float>(&first)), sum);
      sum = MultiplyAdd(two.second, Splat(Load<float>(&second)), sum);
#endif
    }
    return sum;
  }
  static void Widen(const W* w, Plain::W* to) {
    for (int pair = 0; pair < 4; ++pair, to += 2 * kLanes) {
      Store(to, NibblePairs(Read(w), pair));
    }
  }
};
