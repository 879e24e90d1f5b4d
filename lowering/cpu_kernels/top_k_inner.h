// RunTopK, included once per instruction set, inside of its namespace, after elements_inner.h.
//
// An element is an integer of the same order: its bits, those of a negative number turned but for the
// sign. A candidate is that integer above the turned bits of its place, so that of equal elements the
// first is the largest.

// Candidates that are kept beside the k largest ones before they are sorted out.
constexpr int64_t kSpare = 512;

inline Ints InOrder(Ints bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// Sixteen elements from `at` on as integers of the same order; what is beyond the end is the least.
inline Ints OrderedAt(Type type, const void* from, int64_t at, int64_t end) {
  const int64_t lanes = std::min(kLanes, end - at);
  if (type == Type::kF32 && lanes == kLanes) {
    return InOrder(Load<Ints>(static_cast<const float*>(from) + at));
  }
  Ints bits = {};
  if (type == Type::kF32) {
    std::memcpy(&bits, static_cast<const float*>(from) + at, lanes * sizeof(float));
  } else {
    Halves halves = {};
    std::memcpy(&halves, static_cast<const uint16_t*>(from) + at, lanes * sizeof(uint16_t));
    // The bits of 16 above zeros are in the order of the bits themselves.
    bits = (Ints)(Convert<Words>(halves) << 16);
  }
  Ints ordered = InOrder(bits);
  for (int64_t lane = lanes; lane < kLanes; ++lane) ordered[lane] = INT32_MIN;
  return ordered;
}

inline uint64_t Candidate(int32_t ordered, int64_t place) {
  const uint32_t above = static_cast<uint32_t>(ordered) ^ 0x80000000u;
  return static_cast<uint64_t>(above) << 32 | static_cast<uint32_t>(~place);
}

inline int32_t OrderedOf(uint64_t candidate) {
  return static_cast<int32_t>(static_cast<uint32_t>(candidate >> 32) ^ 0x80000000u);
}

inline int32_t PlaceOf(uint64_t candidate) { return static_cast<int32_t>(~candidate & 0xffffffffu); }

inline void StoreCandidate(const TopK& t, int64_t row, int64_t i, uint64_t candidate) {
  const int64_t to = row * t.k + i, from = row * t.size + PlaceOf(candidate);
  const int64_t bytes = t.type == Type::kF32 ? 4 : 2;
  std::memcpy(static_cast<char*>(t.values) + to * bytes,
              static_cast<const char*>(t.x) + from * bytes, bytes);
  t.ids[to] = PlaceOf(candidate);
}

// The lanes.
constexpr int32_t kPlaces[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The largest of a row: of each lane first.
inline void Largest(const TopK& t, int64_t row) {
  const int64_t start = row * t.size, end = start + t.size;
  Ints best = OrderedAt(t.type, t.x, start, end);
  Ints places = Load<Ints>(kPlaces);
  Ints here = places;
  for (int64_t at = start + kLanes; at < end; at += kLanes) {
    const Ints ordered = OrderedAt(t.type, t.x, at, end);
    here += static_cast<int32_t>(kLanes);
    const Ints better = ordered > best;
    best = (ordered & better) | (best & ~better);
    places = (here & better) | (places & ~better);
  }
  uint64_t found = 0;
  const int64_t lanes = std::min(kLanes, t.size);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    found = std::max(found, Candidate(best[lane], places[lane]));
  }
  StoreCandidate(t, row, 0, found);
}

// The candidates of a row: those above the k-th of the ones so far, in the order of their places.
class Candidates {
 public:
  explicit Candidates(int64_t k) : k_(k), all_(ThreadMemory<kCandidates, uint64_t>(k + kSpare)) {}

  // Whether elements of this order may be among the k largest.
  Ints Above(Ints ordered) const { return full_ ? Ints(ordered > least_) : Ints{} - 1; }

  void Add(int32_t ordered, int64_t place) {
    if (full_ && ordered <= least_) return;
    all_[count_++] = Candidate(ordered, place);
    if (count_ == k_ + kSpare) Keep();
  }

  // The k largest, the largest first.
  const uint64_t* Sorted() {
    if (count_ > k_) Keep();
    std::sort(all_, all_ + k_, std::greater<uint64_t>());
    return all_;
  }

 private:
  // A later element equal to the k-th is not among the largest: its place is behind.
  void Keep() {
    std::nth_element(all_, all_ + k_ - 1, all_ + count_, std::greater<uint64_t>());
    least_ = OrderedOf(all_[k_ - 1]);
    count_ = k_;
    full_ = true;
  }

  int64_t k_;
  uint64_t* all_;
  int64_t count_ = 0;
  int32_t least_ = INT32_MIN;
  bool full_ = false;
};

inline bool AnyOf(Ints flags) {
  uint64_t parts[8];
  Store(parts, flags);
  uint64_t any = 0;
  for (const uint64_t part : parts) any |= part;
  return any != 0;
}

inline void LargestOnes(const TopK& t, int64_t row) {
  Candidates candidates(t.k);
  const int64_t start = row * t.size, end = start + t.size;
  for (int64_t at = start; at < end; at += kLanes) {
    const Ints ordered = OrderedAt(t.type, t.x, at, end);
    if (!AnyOf(candidates.Above(ordered))) continue;
    const int64_t lanes = std::min(kLanes, end - at);
    for (int64_t lane = 0; lane < lanes; ++lane) candidates.Add(ordered[lane], at - start + lane);
  }
  const uint64_t* sorted = candidates.Sorted();
  for (int64_t i = 0; i < t.k; ++i) StoreCandidate(t, row, i, sorted[i]);
}

void RunTopK(const TopK& top_k, const TaskPool& pool) {
  ParallelFor(pool, top_k.rows, [&](int64_t row) {
    if (top_k.k == 1) Largest(top_k, row);
    else LargestOnes(top_k, row);
  });
}
