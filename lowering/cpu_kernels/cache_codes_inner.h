// Writes of numbers of 8 bits, included once per instruction set, inside of its namespace, after
// linear_inner.h.

// Adding it to a small number rounds that to an integer, half to even, in the low bits.
constexpr float kRoundingMagic = 12582912.0f;

// Integers, of numbers that one has room for; 0 for what is not a number.
inline Bytes FloatsToS8(Floats value) {
  const Words words = AsWords(value + kRoundingMagic) & (Words)(value == value);
  return Convert<Bytes>(words);
}

// Floats of 8 bits, rounded half to even, of numbers up to the largest one.
template <Narrow kNarrow>
inline Bytes FloatsToF8(Floats value) {
  using Float = F8<kNarrow>;
  constexpr int kDropped = 23 - Float::kFraction;
  const Words bits = AsWords(value), size = bits & 0x7fffffffu;
  const Words half = (1u << (kDropped - 1)) - 1 + (size >> kDropped & 1u);
  const Words normal =
      ((size + half) >> kDropped) - (static_cast<uint32_t>(127 - Float::kBias) << Float::kFraction);
  // Below the smallest normal number, a multiple of the smallest number.
  constexpr float kPerSmallest = kNarrow == Narrow::kF8E4M3 ? 0x1p9f : 0x1p16f;
  const Words small = AsWords(AsFloats(size) * kPerSmallest + kRoundingMagic) & 0xffu;
  const Words is_small = (Words)((Ints)size < (128 - Float::kBias) << 23);
  const Words nan = (Words)(value != value);
  const Words code = Choose(nan, Words{} + 0x7fu, Choose(is_small, small, normal));
  return Convert<Bytes>(code | (bits >> 24 & 0x80u));
}

// Codes of sixteen numbers within the range of the type.
inline Bytes CacheCodes(CacheNumbers numbers, Floats value) {
  switch (numbers) {
    case CacheNumbers::kS8: return FloatsToS8(value);
    case CacheNumbers::kF8E5M2: return FloatsToF8<Narrow::kF8E5M2>(value);
    default: return FloatsToF8<Narrow::kF8E4M3>(value);
  }
}
