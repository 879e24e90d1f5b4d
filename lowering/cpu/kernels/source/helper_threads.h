// Threads of the kernels themselves, which wait for the next call without sleeping.

#ifndef GRAPHGEN_HELPER_THREADS_H_
#define GRAPHGEN_HELPER_THREADS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace graphgen {

// Runs one loop at a time over threads that are made once. Between two calls they spin for about as
// long as a decode step takes from one kernel to the next, then sleep: waking a sleeping thread takes
// longer than its part of a small product. A call allocates nothing.
//
// A loop is published as `next_` = (number of the loop, first index). A thread takes an index by
// compare-and-swap, so it takes none of a loop that it has not seen; what it needs to know of the loop
// is written while `next_` is closed.
class HelperThreads {
 public:
  // The threads of this process.
  static HelperThreads& Get();

  // Calls run(body, i) for every i in [0, count), on the calling thread and on up to `helpers` more.
  // Returns when all calls have returned; false, having done nothing, while another loop runs.
  bool TryRun(int64_t helpers, int64_t count, void (*run)(const void*, int64_t), const void* body);

 private:
  void AddThreads(int64_t helpers);
  void Wait(uint64_t seen);
  // Runs indices of the loop that `next_` names, until none is left.
  void Work();

  std::atomic<uint64_t> next_{0};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<void (*)(const void*, int64_t)> run_{nullptr};
  std::atomic<const void*> body_{nullptr};
  std::atomic<bool> busy_{false};
  std::atomic<int64_t> sleeping_{0};
  int64_t threads_ = 0;  // changed by the one who is busy
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace graphgen

#endif  // GRAPHGEN_HELPER_THREADS_H_
