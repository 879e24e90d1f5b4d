// The kernels' own threads: every index runs once, whoever calls, after any pause.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "test_support.h"

namespace graphgen {

int CheckThreads() {
  std::atomic<int> wrong{0};
  const auto loops = [&](int seed) {
    const TaskPool pool{3, [](std::function<void()> task) { task(); }, &HelperThreads::Get()};
    for (int round = 0; round < 300; ++round) {
      const int64_t count = (seed + round * 7) % 40;
      // Plain memory: what a helper writes is seen by the caller.
      std::vector<int> ran(count, 0);
      ParallelFor(pool, count, [&](int64_t i) { ran[i] += 1; });
      for (const int times : ran) wrong += times != 1;
      // Now and then the helpers fall asleep.
      if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  };
  std::vector<std::thread> callers;
  for (int seed = 0; seed < 3; ++seed) callers.emplace_back(loops, seed);
  for (std::thread& caller : callers) caller.join();
  if (wrong) std::printf("threads: %d indices\n", wrong.load());
  return wrong;
}

}  // namespace graphgen
