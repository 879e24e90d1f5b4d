// Memory that calls use one after the other.

#ifndef GRAPHGEN_KEPT_MEMORY_H_
#define GRAPHGEN_KEPT_MEMORY_H_

#include <cstdint>

namespace graphgen {

// Memory of a call for all its threads, aligned to 64 bytes. It is kept for later calls, so that a
// call like an earlier one allocates nothing; calls that run at once have one each.
class KeptMemory {
 public:
  explicit KeptMemory(int64_t bytes);
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace graphgen

#endif  // GRAPHGEN_KEPT_MEMORY_H_
