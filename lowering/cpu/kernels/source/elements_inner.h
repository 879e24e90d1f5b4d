// Sixteen elements of a type in memory, activations, and memory of a thread; included once per
// instruction set, inside of its namespace.

inline Halves Narrowed(Type type, Floats value) {
  return type == Type::kBf16 ? FloatsToBf16(value) : FloatsToF16(value);
}

// Stores sixteen elements from `at` on, none from `end` on.
inline void StoreWide(Type type, void* to, int64_t at, int64_t end, Floats value) {
  const int64_t lanes = std::min(kLanes, end - at);
  if (type == Type::kF32) {
    float* out = static_cast<float*>(to) + at;
    if (lanes == kLanes) return Store(out, value);
    std::memcpy(out, &value, lanes * sizeof(float));
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(to) + at;
  const Halves halves = Narrowed(type, value);
  if (lanes == kLanes) return Store(out, halves);
  std::memcpy(out, &halves, lanes * sizeof(uint16_t));
}

// Sixteen elements from `at` on; zeros from `end` on.
inline Floats LoadWide(Type type, const void* from, int64_t at, int64_t end) {
  const int64_t lanes = std::min(kLanes, end - at);
  if (type == Type::kF32) {
    const float* floats = static_cast<const float*>(from) + at;
    if (lanes == kLanes) return Load<Floats>(floats);
    Floats value = {};
    std::memcpy(&value, floats, lanes * sizeof(float));
    return value;
  }
  const uint16_t* halves = static_cast<const uint16_t*>(from) + at;
  Halves value = {};
  if (lanes == kLanes) value = Load<Halves>(halves);
  else std::memcpy(&value, halves, lanes * sizeof(uint16_t));
  return type == Type::kBf16 ? Bf16ToFloats(value) : F16ToFloats(value);
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
  kRowsOfX, kSumsOfX, kOwnRowsOfX, kOwnSumsOfX, kScalesOfX, kFloatsOfX, kWidenedTiles, kLowValues,  // linear
  kQueries, kScores, kWeights, kSums, kWideSlots,  // attention
  kTurnedHead,  // rope, cache_write
  kCandidates,  // top_k
};

// Memory of the calling thread for one use, kept from call to call: a call like an earlier one
// allocates nothing. What is in it is left from the last use.
template <MemoryUse kUse, typename T>
T* ThreadMemory(int64_t count) {
  thread_local std::vector<T> memory;
  if (static_cast<int64_t>(memory.size()) < count) memory.resize(count);
  return memory.data();
}
