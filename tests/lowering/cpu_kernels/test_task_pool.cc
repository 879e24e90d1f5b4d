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

// Calls of Ask until there is nothing to ask for.
int64_t AsksOf(Fetcher& fetcher, const ReadOrder::Record* upcoming, int64_t member) {
  int64_t asks = 0;
  while (asks < 5000 && fetcher.Ask(upcoming, member, 2)) ++asks;
  return asks;
}

// Three loops in turn, of which two members read as much; and more loops than are remembered.
int CheckReadOrder() {
  constexpr int64_t kChunks = 5, kBytes = 2 * kChunks * ReadOrder::kChunk;
  static char memory[3][kBytes];
  const auto order = std::make_unique<ReadOrder>();
  const auto note = [&](int loop) {
    return order->Note({{{memory[loop], kBytes / 2, 2}, {memory[loop] + kBytes / 2, kBytes / 2, 1}}});
  };
  int wrong = 0;
  for (int loop = 0; loop < 3; ++loop) wrong += note(loop) != nullptr;
  const ReadOrder::Record* second = note(0);
  const ReadOrder::Record* third = note(1);
  if (!second || !third) return wrong + 1;
  wrong += third != second->next();
  wrong += third->next()->next() != second;
  // A turn of all three, each once; then only what has come closer.
  Fetcher fetcher;
  wrong += AsksOf(fetcher, second, 1) != 3 * kChunks;
  wrong += AsksOf(fetcher, third, 1) != kChunks;
  wrong += AsksOf(fetcher, nullptr, 1) != 0;
  // The chunks of both members are all lines, each once.
  std::vector<int> lines(kBytes / ReadOrder::kLine);
  for (int64_t member = 0; member < 2; ++member) {
    for (int64_t chunk = 0; chunk < second->chunks(2); ++chunk) {
      second->EachLine(chunk, member, 2, [&](uintptr_t address) {
        ++lines[(address - reinterpret_cast<uintptr_t>(memory[1])) / ReadOrder::kLine];
      });
    }
  }
  for (int count : lines) wrong += count != 1;
  // Not more than a cache holds.
  std::vector<Stretch> many(5000);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = {reinterpret_cast<const void*>(uintptr_t{1} << 20 | i << 12), 1 << 20};
    order->Note({{many[i]}});
  }
  order->Note({{many[4998]}});
  const ReadOrder::Record* last = order->Note({{many[4999]}});
  const int64_t asks = AsksOf(fetcher, last, 0);
  return wrong + (!last || asks < 1 || asks * ReadOrder::kChunk > 1 << 20);
}

// Loops that name what they read, so that threads ask for what the next one reads.
int CheckReading() {
  constexpr int64_t kBytes = 1 << 16;
  std::vector<std::vector<char>> memory(3, std::vector<char>(kBytes, 1));
  Threads threads(2);
  int64_t wrong = 0;
  for (int64_t loop = 0; loop < 300; ++loop) {
    const std::vector<char>& each = memory[loop % 3];
    const Reads reads = {{{each.data(), kBytes, 1}}};
    std::atomic<int64_t> sum{0};
    const auto body = [&](int64_t part) {
      int64_t of_part = 0;
      for (int64_t at = part * kBytes / 16; at < (part + 1) * kBytes / 16; ++at) of_part += each[at];
      sum += of_part;
    };
    ParallelFor(threads.pool, 16, body, &reads);
    wrong += sum != kBytes;
  }
  return static_cast<int>(wrong);
}

}  // namespace

int CheckTaskPool() {
  return CheckOneAfterTheOther() + CheckAtOnce() + CheckWithin() + CheckLate() + CheckReadOrder() +
         CheckReading();
}

}  // namespace graphgen
