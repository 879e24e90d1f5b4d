// Products of weights in 8 and 4 bits with x in 8: sums of integers. Part of linear_inner.h.

// A sum and the products of four bytes of each lane, those of w from 0 to 127, with four signed ones.
inline Ints AddBytes(Ints sum, Words w, uint32_t x) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(static_cast<int>(x)));
#elif defined(__AVX512BW__)
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)w, _mm512_set1_epi32(static_cast<int>(x)));
  return sum + (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__AVX2__)
  const auto half = [x](Ints::Half sum, auto w) {
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(static_cast<int>(x)));
    return sum + (Ints::Half)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  };
  return {half(sum.low, w.low), half(sum.high, w.high)};
#elif defined(__ARM_FEATURE_DOTPROD)
  return EachRegister(sum, w, SplatAs<Words>(x), [](auto sum, auto w, auto x) {
    return (decltype(sum))vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x);
  });
#else
  for (int byte = 0; byte < 4; ++byte) {
    const int value = static_cast<int8_t>(x >> 8 * byte);
    sum += (Ints)(w >> 8 * byte & 0xffu) * SplatAs<Ints>(value);
  }
  return sum;
#endif
}

// Weights in 4 bits. Eight more than each is without a sign: what is too much is eight times the sum
// of x, which a sum begins with.
struct NibbleIntegerSteps {
  // Of eight depths of x those that a word has at its bits 0, 8, 16 and 24, and those four further.
  struct X {
    uint32_t first, second;
  };
  struct Wide {
    Words first, second;
  };
  using Sum = Ints;
  using W = uint8_t;
  static constexpr int64_t kDepth = 8;
  static constexpr int64_t kStride = 64;
  static Wide Read(const W* w) {
    const Words words = Load<Words>(w) ^ 0x88888888u;
    return {words & 0x0f0f0f0fu, words >> 4 & 0x0f0f0f0fu};
  }
  static Ints Start(float x_sum) { return SplatAs<Ints>(-8 * static_cast<int>(x_sum)); }
  static Ints Add(Ints sum, Wide w, X x) {
    return AddBytes(AddBytes(sum, w.first, x.first), w.second, x.second);
  }
  // Eight bytes side by side, in the order of the depths: 0, 4, 1, 5 and 2, 6, 3, 7.
  static X Ordered(const int8_t* bytes) {
    const auto spread = [](uint64_t four) {
      four = (four | four << 16) & 0x0000ffff0000ffffu;
      return (four | four << 8) & 0x00ff00ff00ff00ffu;
    };
    uint64_t all;
    std::memcpy(&all, bytes, sizeof all);
    const uint64_t made = spread(all & 0xffffffffu) | spread(all >> 32) << 8;
    return {static_cast<uint32_t>(made), static_cast<uint32_t>(made >> 32)};
  }
};

// Weights in 8 bits: pairs of 16-bit integers.
struct ByteIntegerSteps {
  // Two depths, each in 16 bits.
  using X = uint32_t;
  using Wide = Words;
  using Sum = Ints;
  using W = uint8_t;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kStride = 32;
#if defined(__AVX512BW__)
  static Wide Read(const W* w) { return (Words)_mm512_cvtepi8_epi16(Load<__m256i>(w)); }
#elif defined(__AVX2__)
  static Wide Read(const W* w) {
    const auto half = [](const W* from) {
      return (Words::Half)_mm256_cvtepi8_epi16(Load<__m128i>(from));
    };
    return {half(w), half(w + 16)};
  }
#else
  static Wide Read(const W* w) { return S8ToWords(w); }
#endif
  static Ints Start(float) { return Ints{}; }
  static Ints Add(Ints sum, Wide w, X x) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(static_cast<int>(x)));
#elif defined(__AVX512BW__)
    return sum + (Ints)_mm512_madd_epi16((__m512i)w, _mm512_set1_epi32(static_cast<int>(x)));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_set1_epi32(static_cast<int>(x));
    return sum + Ints((Ints::Half)_mm256_madd_epi16((__m256i)w.low, pairs),
                      (Ints::Half)_mm256_madd_epi16((__m256i)w.high, pairs));
#else
    const int first = static_cast<int16_t>(x), second = static_cast<int16_t>(x >> 16);
    sum += ((Ints)(w << 24) >> 24) * SplatAs<Ints>(first);
    return sum + ((Ints)w >> 8) * SplatAs<Ints>(second);
#endif
  }
  static X Ordered(const int8_t* bytes) {
    const auto half = [](int8_t byte) { return static_cast<uint32_t>(static_cast<uint16_t>(byte)); };
    return half(bytes[0]) | half(bytes[1]) << 16;
  }
};
