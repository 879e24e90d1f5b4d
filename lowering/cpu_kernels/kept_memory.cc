#include "kept_memory.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace graphgen {
namespace {

constexpr std::align_val_t kAlignment{64};

struct Piece {
  void* data;
  int64_t bytes;
};

std::mutex mutex;

// Pieces that no call has; never destroyed, since a thread may run until the process ends.
std::vector<Piece>& Free() {
  static auto* pieces = new std::vector<Piece>;
  return *pieces;
}

}  // namespace

KeptMemory::KeptMemory(int64_t bytes) {
  if (bytes <= 0) return;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<Piece>& pieces = Free();
    const auto largest = std::max_element(
        pieces.begin(), pieces.end(),
        [](const Piece& left, const Piece& right) { return left.bytes < right.bytes; });
    if (largest != pieces.end()) {
      data_ = largest->data, bytes_ = largest->bytes;
      pieces.erase(largest);
    }
  }
  if (bytes_ >= bytes) return;
  // A piece that has become too small is replaced, so that there are no more than calls at once.
  if (data_) ::operator delete(data_, kAlignment);
  data_ = nullptr, bytes_ = 0;
  data_ = ::operator new(bytes, kAlignment);
  bytes_ = bytes;
}

KeptMemory::~KeptMemory() {
  if (!data_) return;
  const std::lock_guard<std::mutex> lock(mutex);
  Free().push_back({data_, bytes_});
}

}  // namespace graphgen
