// Sixteen elements of a type in memory, activations, and memory of a thread; included once per
// instruction set, inside of its namespace.

inline Halves Narrowed(Type type, Floats value) {
  return type == Type::kBf16 ? FloatsToBf16(value) : FloatsToF16(value);
}

// Stores fewer than sixteen elements.
__attribute__((noinline)) inline void StorePart(Type type, void* to, int64_t lanes, Floats value) {
  if (type == Type::kF32) {
    std::memcpy(to, &value, lanes * sizeof(float));
    return;
  }
  const Halves halves = Narrowed(type, value);
  std::memcpy(to, &halves, lanes * sizeof(uint16_t));
}

// Stores sixteen elements from `at` on, none from `end` on. Without a call where all are stored.
__attribute__((always_inline)) inline void StoreWide(Type type, void* to, int64_t at, int64_t end,
                                                     Floats value) {
  char* out = static_cast<char*>(to) + at * SizeOf(type);
  if (end - at < kLanes) return StorePart(type, out, end - at, value);
  if (type == Type::kF32) Store(out, value);
  else if (type == Type::kBf16) Store(out, FloatsToBf16(value));
  else Store(out, FloatsToF16(value));
}

// Fewer than sixteen elements, then zeros.
__attribute__((noinline)) inline Floats LoadPart(Type type, const void* from, int64_t lanes) {
  if (type == Type::kF32) {
    Floats value = {};
    std::memcpy(&value, from, lanes * sizeof(float));
    return value;
  }
  Halves value = {};
  std::memcpy(&value, from, lanes * sizeof(uint16_t));
  return type == Type::kBf16 ? Bf16ToFloats(value) : F16ToFloats(value);
}

// Sixteen elements from `at` on; zeros from `end` on. Without a call where all are loaded.
__attribute__((always_inline)) inline Floats LoadWide(Type type, const void* from, int64_t at,
                                                      int64_t end) {
  const char* start = static_cast<const char*>(from) + at * SizeOf(type);
  if (end - at < kLanes) return LoadPart(type, start, end - at);
  if (type == Type::kF32) return Load<Floats>(start);
  if (type == Type::kBf16) return Bf16ToFloats(Load<Halves>(start));
  return F16ToFloats(Load<Halves>(start));
}

inline Floats Rounded(Type type, Floats value) {
  if (type == Type::kF32) return value;
  const Halves halves = Narrowed(type, value);
  return type == Type::kBf16 ? Bf16ToFloats(halves) : F16ToFloats(halves);
}

inline Floats Logistic(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

// The formulas of graphgen/composites/basics.py.
inline Floats Activate(Activation activation, Floats x) {
  switch (activation) {
    // A NaN stays one.
    case Activation::kRelu: return AsFloats(AsWords(x) & ~(Words)(x < 0.0f));
    case Activation::kSilu: return x * Logistic(x);
    case Activation::kGeluTanh: return x * Logistic(1.59576912f * (x + 0.044715f * x * x * x));
    case Activation::kGeluSigmoid: return x * Logistic(1.702f * x);
    default: break;
  }
  Floats share;
  for (int lane = 0; lane < kLanes; ++lane) share[lane] = std::erf(x[lane] * 0.707106781f);
  return x * ((share + 1.0f) * 0.5f);
}

// What memory of a thread is for: each use has its own.
enum MemoryUse {
  kRowsOfX, kSumsOfX, kOwnRowsOfX, kOwnSumsOfX, kScalesOfX,
  kOwnIntegersOfX, kOwnIntegerSums, kOwnScalesOfX, kFloatsOfX, kWidenedTiles, kLowValues,  // linear
  kTileRowsOfX, kWeightTiles,  // linear in tiles
  kQueries, kScores, kWeights, kWideSlots, kSpans,  // attention
  kTurnedHead,  // rope, cache_write
  kCandidates,  // top_k
};

// A line of a core's caches, in which no vector and no row of a tile begins but at its start.
struct alignas(64) CacheLine {
  char bytes[64];
};

// Memory of the calling thread for one use, kept from call to call: a call like an earlier one
// allocates nothing. What is in it is left from the last use.
template <MemoryUse kUse, typename T>
T* ThreadMemory(int64_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  thread_local std::vector<CacheLine> memory;
  const size_t lines = (count * sizeof(T) + sizeof(CacheLine) - 1) / sizeof(CacheLine);
  if (memory.size() < lines) memory.resize(lines);
  return reinterpret_cast<T*>(memory.data());
}
