// Rows and weights of products in tiles, by element type. Included inside of a namespace, after
// tiles_inner.h.
//
// A form has the rows of x and writes steps of a packed weight as rows of a tile, 16 columns of four
// bytes: pairs of bf16, or four integers of 8 bits.

// Rows of x as integers, four a step.
struct QuadSteps {
  using X = uint32_t;
  using Sum = Ints;
  using W = uint8_t;
  static constexpr int64_t kDepth = 4;
  static constexpr int64_t kStride = 64;
  static X Ordered(const int8_t* bytes) { return Load<X>(bytes); }
};

struct Bf16Tiles {
  using RowsOfX = Rows<Bf16Steps>;
  // Whether a packed weight has the form of tiles.
  static constexpr bool kPacked = true;
  // Bytes of a packed tile.
  static int64_t BytesOf(int64_t depth) { return (depth + 1) / 2 * TileUnit::kBytes; }
  static void Put(const char* tile, int64_t, int64_t first, int64_t end, char* to) {
    std::memcpy(to, tile + first * TileUnit::kBytes, (end - first) * TileUnit::kBytes);
  }
};

// Numbers of 8 or 4 bits, widened to bf16. What Put writes behind `end` are zeros.
template <typename Narrow>
struct WidenedTiles {
  using RowsOfX = Rows<Bf16Steps>;
  static constexpr bool kPacked = false;
  static constexpr int64_t kParts = Narrow::kDepth / Bf16Steps::kDepth;
  static int64_t BytesOf(int64_t depth) {
    return (depth + Narrow::kDepth - 1) / Narrow::kDepth * Narrow::kStride;
  }
  static void Put(const char* tile, int64_t, int64_t first, int64_t end, char* to) {
    const auto* numbers = reinterpret_cast<const uint8_t*>(tile);
    for (int64_t step = first; step < end; step += kParts, to += kParts * TileUnit::kBytes) {
      Narrow::Widen(numbers + step / kParts * Narrow::kStride, reinterpret_cast<uint16_t*>(to));
    }
  }
};

// Integers of 8 bits, two depths of 16 columns side by side: four are of two such rows.
struct ByteTiles {
  using RowsOfX = IntegerRows<QuadSteps>;
  static constexpr bool kPacked = false;
  static int64_t BytesOf(int64_t depth) { return (depth + 1) / 2 * 32; }
  static void Put(const char* tile, int64_t depth, int64_t first, int64_t end, char* to) {
    const int64_t pairs = (depth + 1) / 2;
    const auto row = [&](int64_t at) {
      return at < pairs ? Convert<Words>(Load<Halves>(tile + at * 32)) : Words{};
    };
    for (int64_t step = first; step < end; ++step, to += TileUnit::kBytes) {
      Store(to, row(2 * step) | row(2 * step + 1) << 16);
    }
  }
};

// Integers of 4 bits, as nibbles_inner.h has them: a word has two steps.
struct NibbleTiles {
  using RowsOfX = IntegerRows<QuadSteps>;
  static constexpr bool kPacked = false;
  static int64_t BytesOf(int64_t depth) { return (depth + 7) / 8 * 64; }
  static void Put(const char* tile, int64_t, int64_t first, int64_t end, char* to) {
    for (int64_t step = first; step < end; ++step, to += TileUnit::kBytes) {
      const Words word = Load<Words>(tile + step / 2 * 64) >> (step % 2 * 8);
      // The numbers 0 and 1 of a step are at the bits 0 and 16, 2 and 3 at 4 and 20.
      Store(to, Signed((word & 0xfu) | (word >> 8 & 0xf00u) | (word << 12 & 0xf0000u) |
                       (word << 4 & 0xf000000u)));
    }
  }

 private:
  // Each byte's low four bits with their sign.
  static Words Signed(Words numbers) { return numbers | (numbers & 0x08080808u) * 0x1eu; }
};
