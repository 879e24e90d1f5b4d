// Splits work over the threads that the caller lends.

#ifndef GRAPHGEN_TASK_POOL_H_
#define GRAPHGEN_TASK_POOL_H_

#include <cstdint>
#include <functional>

#include "read_order.h"

namespace graphgen {

// Runs a task on another thread, now or later.
using Schedule = std::function<void(std::function<void()>)>;

// Threads that may run tasks beside the calling one.
struct TaskPool {
  int64_t helpers = 0;
  Schedule schedule;
};

// Calls a body, whose type only the function knows, for one index.
using LoopCall = void (*)(const void* body, int64_t index);

// ParallelFor for more than one index and at least one helper.
void RunLoop(const TaskPool& pool, int64_t count, LoopCall call, const void* body,
             const Reads* reads);

// Calls body(i) for every i in [0, count), on the calling thread and on helpers that come in time.
// Each thread begins with a part of the indexes, the caller with the first, so that in loops of one
// size a thread finds in its caches what it wrote in the last; who is done helps the others.
// Returns when all calls have returned. A helper that starts late finds nothing to do and touches
// nothing but shared counters, so the caller never waits for a thread that does not come.
//
// With `reads`, what comes first of them is read for the first indexes. Threads that wait then ask for
// what the loop reads that came after this one the last time.
template <typename Body>
void ParallelFor(const TaskPool& pool, int64_t count, const Body& body,
                 const Reads* reads = nullptr) {
  if (count <= 1 || pool.helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const LoopCall call = [](const void* work, int64_t i) { (*static_cast<const Body*>(work))(i); };
  RunLoop(pool, count, call, &body, reads);
}

}  // namespace graphgen

#endif  // GRAPHGEN_TASK_POOL_H_
