// Reads of caches, included once per instruction set, inside of its namespace, after
// linear_inner.h.

// Slots of one head, in elements of a product: `stride` from one to the next, `size` of each.
template <typename W>
struct Slots {
  const W* first;
  int64_t stride;
  int64_t size;
};

// Elements that are widened at a time.
constexpr int64_t kWidened = 32;

#if defined(__AVX512F__)
// Exchanges blocks of kSize x kSize words besides the diagonal of blocks twice as large.
template <int kSize>
inline void ExchangeBlocks(Words* rows) {
  Words low, high;
  for (int lane = 0; lane < kLanes; ++lane) {
    low[lane] = lane & kSize ? kLanes + lane - kSize : lane;
    high[lane] = lane & kSize ? kLanes + lane : lane + kSize;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (i & kSize) continue;
    const __m512i first = (__m512i)rows[i], second = (__m512i)rows[i + kSize];
    rows[i] = (Words)_mm512_permutex2var_epi32(first, (__m512i)low, second);
    rows[i + kSize] = (Words)_mm512_permutex2var_epi32(first, (__m512i)high, second);
  }
}
#endif

// Transposes sixteen rows of sixteen words.
inline void Transpose(Words* rows) {
#if defined(__AVX512F__)
  ExchangeBlocks<8>(rows);
  ExchangeBlocks<4>(rows);
  ExchangeBlocks<2>(rows);
  ExchangeBlocks<1>(rows);
#else
  uint32_t words[kLanes][kLanes];
  for (int i = 0; i < kLanes; ++i) Store(words[i], rows[i]);
  for (int i = 0; i < kLanes; ++i) {
    uint32_t turned[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) turned[lane] = words[lane][i];
    rows[i] = Load<Words>(turned);
  }
#endif
}

// Pairs of elements of two rows, those of the first before those of the second, of kTiles times
// sixteen columns.
template <int kTiles>
inline void PairRows(const uint16_t* first, const uint16_t* second, Words* pairs) {
#if defined(__AVX512BW__)
  if constexpr (kTiles % 2 == 0) {
    Whole<uint16_t> low;
    for (int i = 0; i < 32; ++i) low[i] = i / 2 + i % 2 * 32;
    const Whole<uint16_t> high = low + 16;
    for (int t = 0; t < kTiles; t += 2) {
      const __m512i a = Load<__m512i>(first + t * kLanes), b = Load<__m512i>(second + t * kLanes);
      pairs[t] = (Words)_mm512_permutex2var_epi16(a, (__m512i)low, b);
      pairs[t + 1] = (Words)_mm512_permutex2var_epi16(a, (__m512i)high, b);
    }
    return;
  }
#endif
  for (int t = 0; t < kTiles; ++t, first += kLanes, second += kLanes) {
    pairs[t] = Convert<Words>(Load<Halves>(first)) | Convert<Words>(Load<Halves>(second)) << 16;
  }
}

// Pairs of bf16 from 32 codes, in order.
template <CacheNumbers kNumbers>
inline Words CachePairs(const uint8_t* codes) {
  if constexpr (kNumbers == CacheNumbers::kS8) return S8ToPairs(codes);
  if constexpr (kNumbers == CacheNumbers::kF8E5M2) return F8ToPairs<Narrow::kF8E5M2>(codes);
  const Words pairs = F8ToPairs<Narrow::kF8E4M3>(codes);
  if constexpr (kNumbers == CacheNumbers::kF8E4M3Fn) return pairs;
  // OCP's 256 is infinity, what is larger not a number: all bits of the exponent are set.
  using Bits = Whole<uint16_t>;
  const Bits bits = (Bits)pairs;
  const Bits special = (Bits)((bits & 0x7fff) >= 0x4380);
  return (Words)(bits | (special & 0x3c00));
}

inline void StorePairs(Words pairs, uint16_t* to) { Store(to, pairs); }

inline void StorePairs(Words pairs, float* to) {
  uint16_t each[kWidened];
  Store(each, pairs);
  Store(to, Bf16ToFloats(Load<Halves>(each)));
  Store(to + kLanes, Bf16ToFloats(Load<Halves>(each + kLanes)));
}

// Widens slots of `size` codes, `from_stride` apart, to whole times 32 elements, `stride` apart.
template <CacheNumbers kNumbers, typename W>
void WidenSlots(const uint8_t* from, int64_t from_stride, int64_t count, int64_t size, W* to,
                int64_t stride) {
  const int64_t whole = size / kWidened * kWidened;
  for (int64_t i = 0; i < count; ++i, from += from_stride, to += stride) {
    for (int64_t at = 0; at < whole; at += kWidened) {
      StorePairs(CachePairs<kNumbers>(from + at), to + at);
    }
    if (whole < size) {
      uint8_t rest[kWidened] = {};
      std::memcpy(rest, from + whole, size - whole);
      StorePairs(CachePairs<kNumbers>(rest), to + whole);
    }
  }
}

// The scales behind the codes of at most sixteen slots; 0 beyond.
inline Floats RowScales(const uint8_t* from, int64_t from_stride, int64_t count, int64_t size) {
  float scales[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(scales + i, from + i * from_stride + size, sizeof(float));
  }
  return Load<Floats>(scales);
}

template <typename W>
using SlotWidener = void (*)(const uint8_t*, int64_t, int64_t, int64_t, W*, int64_t);

// What widens numbers of 8 bits to bf16, or to f32.
template <typename W>
SlotWidener<W> WidenerOf(CacheNumbers numbers) {
  switch (numbers) {
    case CacheNumbers::kS8: return WidenSlots<CacheNumbers::kS8, W>;
    case CacheNumbers::kF8E4M3: return WidenSlots<CacheNumbers::kF8E4M3, W>;
    case CacheNumbers::kF8E4M3Fn: return WidenSlots<CacheNumbers::kF8E4M3Fn, W>;
    case CacheNumbers::kF8E5M2: return WidenSlots<CacheNumbers::kF8E5M2, W>;
    case CacheNumbers::kPlain: break;
  }
  return nullptr;
}
