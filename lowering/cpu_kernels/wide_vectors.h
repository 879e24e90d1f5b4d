// Vectors of several registers. Included once per instruction set, inside of its namespace.
//
// GCC keeps a vector that is larger than a register in memory, wherever it is carried through a
// loop: sums went through the stack at every step. A pair of halves stays in registers.

#if defined(__AVX2__)
constexpr int kRegisters = 2;  // of sixteen lanes of 32 bits
#else
constexpr int kRegisters = 4;
#endif

// kLength lanes of T in kParts vectors of the compiler, a power of two.
template <typename T, int kLength, int kParts>
struct Wide;

template <typename T, int kLength, int kParts>
struct VectorOf {
  using Type = Wide<T, kLength, kParts>;
};

template <typename T, int kLength>
struct VectorOf<T, kLength, 1> {
  typedef T Type __attribute__((vector_size(kLength * sizeof(T))));
};

template <typename T, int kLength, int kParts>
struct Wide {
  using Half = typename VectorOf<T, kLength / 2, kParts / 2>::Type;
  using Flags = Wide<std::conditional_t<sizeof(T) == 4, int32_t, int16_t>, kLength, kParts>;

  Wide() = default;
  Wide(Half first, Half second) : low(first), high(second) {}

  // The same bits as other lanes.
  template <typename From, int kOther>
  explicit Wide(Wide<From, kOther, kParts> from) : low((Half)from.low), high((Half)from.high) {}

  T operator[](int64_t lane) const { return reinterpret_cast<const T*>(this)[lane]; }
  T& operator[](int64_t lane) { return reinterpret_cast<T*>(this)[lane]; }

  friend Wide operator-(Wide a) { return {-a.low, -a.high}; }
  friend Wide operator~(Wide a) { return {~a.low, ~a.high}; }

#define GRAPHGEN_OPERATOR(op)                                                                   \
  friend Wide operator op(Wide a, Wide b) { return {a.low op b.low, a.high op b.high}; }        \
  template <typename S, typename = std::enable_if_t<std::is_arithmetic_v<S>>>                   \
  friend Wide operator op(Wide a, S b) {                                                        \
    return {a.low op static_cast<T>(b), a.high op static_cast<T>(b)};                           \
  }                                                                                             \
  template <typename S, typename = std::enable_if_t<std::is_arithmetic_v<S>>>                   \
  friend Wide operator op(S a, Wide b) {                                                        \
    return {static_cast<T>(a) op b.low, static_cast<T>(a) op b.high};                           \
  }                                                                                             \
  template <typename Other>                                                                     \
  Wide& operator op##=(Other b) {                                                               \
    return *this = *this op b;                                                                  \
  }
  GRAPHGEN_OPERATOR(+)
  GRAPHGEN_OPERATOR(-)
  GRAPHGEN_OPERATOR(*)
  GRAPHGEN_OPERATOR(/)
  GRAPHGEN_OPERATOR(&)
  GRAPHGEN_OPERATOR(|)
  GRAPHGEN_OPERATOR(^)
  GRAPHGEN_OPERATOR(<<)
  GRAPHGEN_OPERATOR(>>)
#undef GRAPHGEN_OPERATOR

#define GRAPHGEN_COMPARISON(op)                                                                 \
  friend Flags operator op(Wide a, Wide b) { return {a.low op b.low, a.high op b.high}; }       \
  template <typename S, typename = std::enable_if_t<std::is_arithmetic_v<S>>>                   \
  friend Flags operator op(Wide a, S b) {                                                       \
    return {a.low op static_cast<T>(b), a.high op static_cast<T>(b)};                           \
  }
  GRAPHGEN_COMPARISON(==)
  GRAPHGEN_COMPARISON(!=)
  GRAPHGEN_COMPARISON(<)
  GRAPHGEN_COMPARISON(>)
  GRAPHGEN_COMPARISON(>=)
#undef GRAPHGEN_COMPARISON

  Half low, high;
};

template <typename T>
constexpr bool kIsWide = false;
template <typename T, int kLength, int kParts>
constexpr bool kIsWide<Wide<T, kLength, kParts>> = true;

template <typename T, typename From>
inline T Load(const From* from) {
  if constexpr (kIsWide<T>) {
    using Half = typename T::Half;
    const char* bytes = reinterpret_cast<const char*>(from);
    return {Load<Half>(bytes), Load<Half>(bytes + sizeof(Half))};
  } else {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
}

template <typename T, typename To>
inline void Store(To* to, T value) {
  if constexpr (kIsWide<T>) {
    char* bytes = reinterpret_cast<char*>(to);
    Store(bytes, value.low);
    Store(bytes + sizeof(value.low), value.high);
  } else {
    std::memcpy(to, &value, sizeof(T));
  }
}

// Each lane as a number of another type.
template <typename To, typename From>
inline To Convert(From from) {
  if constexpr (kIsWide<To>) {
    using Half = typename To::Half;
    return {Convert<Half>(from.low), Convert<Half>(from.high)};
  } else {
    return __builtin_convertvector(from, To);
  }
}

// A number in every lane. Not `T{} + x`: adding to zero would be computed, since it turns -0 into 0.
template <typename T, typename X>
inline T SplatAs(X x) {
  if constexpr (kIsWide<T>) {
    const auto half = SplatAs<typename T::Half>(x);
    return {half, half};
  } else {
    return x - T{};
  }
}

// Sixteen lanes, and as many as a vector of floats has bytes for.
#if defined(__AVX512F__)
template <typename T>
using Lanes = typename VectorOf<T, 16, 1>::Type;
template <typename T>
using Whole = typename VectorOf<T, 64 / static_cast<int>(sizeof(T)), 1>::Type;
#else
template <typename T>
using Lanes = typename VectorOf<T, 16, kRegisters>::Type;
template <typename T>
using Whole = typename VectorOf<T, 64 / static_cast<int>(sizeof(T)), kRegisters>::Type;
#endif
