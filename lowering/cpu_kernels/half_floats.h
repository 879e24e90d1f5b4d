// 16-bit floats of one sign, five exponent and ten fraction bits, one at a time.
//
// Included once per instruction set, inside of its namespace.

// GCC has _Float16 in C++ from version 12 on, for ARM from 13 on: these do without.
#if defined(__F16C__)
inline float HalfToFloat(uint16_t bits) { return _cvtsh_ss(bits); }

inline uint16_t FloatToHalf(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__aarch64__)
inline float HalfToFloat(uint16_t bits) { return static_cast<float>(Load<__fp16>(&bits)); }

inline uint16_t FloatToHalf(float value) {
  const __fp16 half = static_cast<__fp16>(value);
  return Load<uint16_t>(&half);
}
#else
inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
  // Below the smallest normal number, a multiple of 2^-24.
  const float small = static_cast<float>(size) * 0x1p-24f;
  const uint32_t wide = size < 0x400u    ? Load<uint32_t>(&small)
                        : size < 0x7c00u ? (size << 13) + (112u << 23)
                                         : (size << 13) | 0x7f800000u;
  const uint32_t both = sign | wide;
  return Load<float>(&both);
}

// Round to nearest even; a NaN stays one.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = Load<uint32_t>(&value), size = bits & 0x7fffffffu;
  uint32_t half = 0x7c00u;
  if (size > 0x7f800000u) {
    half = 0x7e00u;
  } else if (size < (113u << 23)) {
    // The last place of 0.5 is 2^-24, so that the addition rounds.
    const float small = Load<float>(&size) + 0.5f;
    half = Load<uint32_t>(&small) - 0x3f000000u;
  } else if (size < (143u << 23)) {
    half = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | half);
}
#endif
