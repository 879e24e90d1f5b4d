// Splits work over the threads that the caller lends.

#ifndef GRAPHGEN_TASK_POOL_H_
#define GRAPHGEN_TASK_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

namespace graphgen {

// Runs a task on another thread, now or later.
using Schedule = std::function<void(std::function<void()>)>;

// Threads that may run tasks beside the calling one.
struct TaskPool {
  int64_t helpers = 0;
  Schedule schedule;
};

// Calls body(i) for every i in [0, count), on the calling thread and on helpers that come in time.
// Returns when all calls have returned. A helper that starts late finds nothing to do and touches
// nothing but the shared counters, so the caller never waits for a thread that does not come.
template <typename Body>
void ParallelFor(const TaskPool& pool, int64_t count, const Body& body) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  if (count <= 1 || pool.helpers == 0) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  auto shared = std::make_shared<Shared>();
  // By address: a helper reads it only while it holds an index, for which the caller waits.
  const Body* work = &body;
  auto run = [shared, work, count] {
    for (int64_t i = shared->next.fetch_add(1); i < count; i = shared->next.fetch_add(1)) {
      (*work)(i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int64_t others = count - 1 < pool.helpers ? count - 1 : pool.helpers;
  for (int64_t i = 0; i < others; ++i) pool.schedule(run);
  run();
  for (int64_t spins = 0; shared->done.load(std::memory_order_acquire) < count; ++spins) {
    // A helper that lost its processor needs it back.
    if (spins > 4096) std::this_thread::yield();
  }
}

}  // namespace graphgen

#endif  // GRAPHGEN_TASK_POOL_H_
