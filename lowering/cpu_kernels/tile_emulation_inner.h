// What the tile instructions of AMX compute, bit for bit, on any CPU; included inside of a namespace in
// the place of tile_instructions_inner.h. After the operations in Intel's Software Developer's Manual,
// volume 2, of tiles of 16 rows of 64 bytes.

// A number, zero with its sign where it is below the normal ones, as with DAZ and FTZ. A result is
// that if it is too small after it was rounded with any exponent (volume 1, 4.9.1.5).
inline float WithoutDenormals(double value) {
  constexpr double kScale = 0x1p64;
  if (std::fabs(value) < 0x1p-125) {
    const float rounded = static_cast<float>(value * kScale);
    const bool small = std::fabs(rounded) < static_cast<float>(FLT_MIN * kScale);
    if (small) return std::signbit(value) ? -0.0f : 0.0f;
  }
  return static_cast<float>(value);
}

// a · b + sum, rounded once to nearest even. The product of two bf16 has 16 bits, so a double holds it.
// Their sum may be rounded to a double before it is to a float: then the smaller of both is below 2^-28
// of the larger, which is a float, and the nearest float is that one either way.
inline float MultiplyAddOnce(float a, float b, float sum) {
  return WithoutDenormals(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(sum));
}

inline float Bf16At(const uint8_t* from) {
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  return WithoutDenormals(Load<float>(&bits));
}

struct TileUnit {
  static constexpr int64_t kRows = 16, kBytes = 64;

  static void Configure() {
    Registers& own = OfThread();
    std::memset(&own, 0, sizeof own);
    own.configured = true;
  }

  static void Release() { OfThread().configured = false; }

  template <int kTile>
  static void Zero() {
    std::memset(Tile<kTile>(), 0, kRows * kBytes);
  }

  template <int kTile>
  static void Load(const void* from, int64_t stride) {
    uint8_t* tile = Tile<kTile>();
    for (int64_t row = 0; row < kRows; ++row) {
      std::memcpy(tile + row * kBytes, static_cast<const char*>(from) + row * stride, kBytes);
    }
  }

  template <int kTile>
  static void Store(void* to, int64_t stride) {
    const uint8_t* tile = Tile<kTile>();
    for (int64_t row = 0; row < kRows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, tile + row * kBytes, kBytes);
    }
  }

  // The first of the pairs and the second are summed apart, from zero on; then they are added, and
  // then that to the sum.
  template <int kSums, int kA, int kB>
  static void AddBf16() {
    uint8_t *sums = Tile<kSums>(), *a = Tile<kA>(), *b = Tile<kB>();
    float right[16][32];
    for (int64_t k = 0; k < 16; ++k) {
      for (int64_t n = 0; n < 32; ++n) right[k][n] = Bf16At(b + k * kBytes + 2 * n);
    }
    for (int64_t m = 0; m < kRows; ++m) {
      float parts[32] = {};
      for (int64_t k = 0; k < 16; ++k) {
        const float left[2] = {Bf16At(a + m * kBytes + 4 * k), Bf16At(a + m * kBytes + 4 * k + 2)};
        for (int64_t n = 0; n < 32; ++n) parts[n] = MultiplyAddOnce(left[n % 2], right[k][n], parts[n]);
      }
      for (int64_t n = 0; n < 16; ++n) {
        float sum;
        std::memcpy(&sum, sums + m * kBytes + 4 * n, 4);
        const float part = WithoutDenormals(static_cast<double>(parts[2 * n]) + parts[2 * n + 1]);
        sum = WithoutDenormals(static_cast<double>(WithoutDenormals(sum)) + part);
        std::memcpy(sums + m * kBytes + 4 * n, &sum, 4);
      }
    }
  }

  template <int kSums, int kA, int kB>
  static void AddBytes() {
    uint8_t *sums = Tile<kSums>(), *a = Tile<kA>(), *b = Tile<kB>();
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t n = 0; n < 16; ++n) {
        // Without a sign: what is too large wraps.
        uint32_t sum;
        std::memcpy(&sum, sums + m * kBytes + 4 * n, 4);
        for (int64_t k = 0; k < kBytes; ++k) {
          const int left = static_cast<int8_t>(a[m * kBytes + k]);
          sum += static_cast<uint32_t>(left * static_cast<int8_t>(b[k / 4 * kBytes + 4 * n + k % 4]));
        }
        std::memcpy(sums + m * kBytes + 4 * n, &sum, 4);
      }
    }
  }

 private:
  struct Registers {
    bool configured;
    uint8_t tiles[8][kRows * kBytes];
  };

  static Registers& OfThread() {
    thread_local Registers own = {};
    return own;
  }

  // Without a configuration an instruction is one that the CPU does not know.
  template <int kTile>
  static uint8_t* Tile() {
    Registers& own = OfThread();
    if (!own.configured) std::abort();
    return own.tiles[kTile];
  }
};
