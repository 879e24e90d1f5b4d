#include "helper_threads.h"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace graphgen {
namespace {

// Rounds of waiting before a thread sleeps, about 100 microseconds.
constexpr int kRounds = 4000;
// The index of a closed loop: none is left.
constexpr uint64_t kClosed = 0xffffffffu;

uint64_t LoopOf(uint64_t next) { return next >> 32; }

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

HelperThreads& HelperThreads::Get() {
  // Never deleted: its threads run until the process ends.
  static HelperThreads* const threads = new HelperThreads;
  return *threads;
}

void HelperThreads::AddThreads(int64_t helpers) {
  for (; threads_ < helpers; ++threads_) {
    std::thread([this] {
      for (;;) {
        const uint64_t seen = next_.load(std::memory_order_acquire);
        Work();
        Wait(LoopOf(seen));
      }
    }).detach();
  }
}

void HelperThreads::Wait(uint64_t seen) {
  const auto is_new = [&] { return LoopOf(next_.load()) != seen; };
  for (int round = 0; round < kRounds; ++round) {
    if (is_new()) return;
    Pause();
  }
  std::unique_lock<std::mutex> lock(mutex_);
  // Whoever publishes a loop looks here after it, so one of the two sees the other.
  sleeping_.fetch_add(1);
  wake_.wait(lock, is_new);
  sleeping_.fetch_sub(1);
}

void HelperThreads::Work() {
  uint64_t next = next_.load(std::memory_order_acquire);
  for (;;) {
    const int64_t index = static_cast<int64_t>(next & kClosed);
    if (index >= count_.load(std::memory_order_relaxed)) return;
    auto* const run = run_.load(std::memory_order_relaxed);
    const void* const body = body_.load(std::memory_order_relaxed);
    if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    run(body, index);
    done_.fetch_add(1, std::memory_order_release);
    next = next_.load(std::memory_order_acquire);
  }
}

bool HelperThreads::TryRun(int64_t helpers, int64_t count, void (*run)(const void*, int64_t),
                           const void* body) {
  if (count >= static_cast<int64_t>(kClosed) || busy_.exchange(true, std::memory_order_acquire)) {
    return false;
  }
  AddThreads(helpers);
  const uint64_t loop = LoopOf(next_.load(std::memory_order_relaxed)) + 1;
  next_.store(loop << 32 | kClosed, std::memory_order_release);
  // No thread holds an index of the last loop: all of its calls have returned.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  count_.store(count, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  run_.store(run, std::memory_order_relaxed);
  body_.store(body, std::memory_order_relaxed);
  next_.store((loop + 1) << 32);
  if (sleeping_.load() > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_all();
  }
  Work();
  for (int64_t rounds = 0; done_.load(std::memory_order_acquire) < count; ++rounds) {
    Pause();
    // A helper that lost its processor needs it back.
    if (rounds > kRounds) std::this_thread::yield();
  }
  busy_.store(false, std::memory_order_release);
  return true;
}

}  // namespace graphgen
