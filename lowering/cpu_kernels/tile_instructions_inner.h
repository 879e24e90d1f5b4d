// The tile instructions of AMX (Intel, Software Developer's Manual, volume 2: LDTILECFG, TDPBF16PS,
// TDPBSSD, TILELOADD, TILERELEASE, TILESTORED, TILEZERO), included inside of a namespace.
//
// Not the intrinsics: GCC 12's take the number of a tile as text, so that a template cannot name it,
// and _tile_loadconfig reads eight bytes for the compiler, which then drops the stores before it.

struct TileUnit {
  // Of each of the eight tiles: 16 rows of 64 bytes.
  static constexpr int64_t kRows = 16, kBytes = 64;

  // Loads the form of the tiles, and zeros; for the calling thread.
  static void Configure() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } form;
    static_assert(sizeof form == 64);
    for (int tile = 0; tile < 8; ++tile) form.bytes[tile] = kBytes, form.rows[tile] = kRows;
    __asm__ volatile("ldtilecfg %0" : : "m"(form) : "memory");
  }

  static void Release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  static void Zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  // Rows lie `stride` bytes apart.
  template <int kTile>
  static void Load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }

  template <int kTile>
  static void Store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }

  // sums[m][n] += Σ a[m][k] · b[k / 2][n][k % 2] of 32 bf16.
  template <int kSums, int kA, int kB>
  static void AddBf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }

  // sums[m][n] += Σ a[m][k] · b[k / 4][n][k % 4] of 64 signed bytes.
  template <int kSums, int kA, int kB>
  static void AddBytes() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
