// Loops over the threads of a pool: one after the other, at once, and within each other.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "task_pool.h"
#include "test_support.h"

namespace graphgen {
namespace {

// Runs a loop of `count` indexes; true if each was called once, all before the loop returned.
bool CallsEachOnce(const TaskPool& pool, int64_t count) {
  const auto calls = std::make_unique<std::atomic<int>[]>(count + 1);
  for (int64_t i = 0; i <= count; ++i) calls[i] = 0;
  ParallelFor(pool, count, [&](int64_t i) {
    // Some take longer, so that threads help each other.
    for (int64_t turn = 0; turn < (i % 7 ? 1 : 500); ++turn) calls[count].fetch_add(0);
    calls[i].fetch_add(1);
  });
  for (int64_t i = 0; i < count; ++i) {
    if (calls[i] != 1) return false;
  }
  return true;
}

int CheckOneAfterTheOther() {
  int wrong = 0;
  for (int64_t helpers : {0, 1, 3}) {
    Threads threads(helpers);
    for (int64_t loop = 0; loop < 300; ++loop) wrong += !CallsEachOnce(threads.pool, loop % 40);
    // Helpers leave meanwhile, and come again.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    wrong += !CallsEachOnce(threads.pool, 100);
  }
  // More than there are seats.
  Threads many(70);
  return wrong + !CallsEachOnce(many.pool, 200);
}

int CheckAtOnce() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      Threads threads(2);
      for (int loop = 0; loop < 60; ++loop) wrong += !CallsEachOnce(threads.pool, 9);
    });
  }
  for (std::thread& caller : callers) caller.join();
  return wrong;
}

// A body that runs a loop itself, in threads of its own.
int CheckWithin() {
  std::atomic<int> wrong{0};
  Threads threads(2);
  ParallelFor(threads.pool, 8, [&](int64_t) {
    Threads own(1);
    wrong += !CallsEachOnce(own.pool, 5);
  });
  return wrong;
}

// Loops whose helpers come only when all loops have returned.
int CheckLate() {
  std::vector<std::function<void()>> late;
  const TaskPool pool{3, [&](std::function<void()> task) { late.push_back(std::move(task)); }};
  int wrong = 0;
  for (int64_t count : {2, 3, 50}) wrong += !CallsEachOnce(pool, count);
  for (const std::function<void()>& task : late) task();
  return wrong + late.empty();
}

}  // namespace

int CheckTaskPool() {
  return CheckOneAfterTheOther() + CheckAtOnce() + CheckWithin() + CheckLate();
}

}  // namespace graphgen
