#include "task_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace graphgen {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than what lies between the kernels of a step, so that helpers sleep between steps only.
constexpr std::chrono::microseconds kStay{100};
// Turns of a waiting caller before it yields: a helper that lost its processor needs it back.
constexpr int64_t kSpins = 4096;
constexpr int64_t kSeats = 64;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Indexes of a loop that one member of the team begins with, and what to call for them. All that a
// member needs to begin lies in one line of a cache: a line takes longer from core to core than a
// small task.
struct alignas(64) Share {
  // The next index, and in the upper half the end. Who moves the first on has the index, and the
  // loop lasts until it reports so: the rest stays as it is meanwhile.
  std::atomic<uint64_t> indexes{0};
  LoopCall call = nullptr;
  const void* body = nullptr;
  // What a member that waits asks for, without an index.
  std::atomic<const ReadOrder::Record*> upcoming{nullptr};
  std::atomic<int64_t> members{0};

  static bool Some(uint64_t indexes) {
    return static_cast<uint32_t>(indexes) < static_cast<uint32_t>(indexes >> 32);
  }

  void Publish(int64_t first, int64_t end) {
    indexes.store(static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(first),
                  std::memory_order_release);
  }

  // Takes an index; false if there is none.
  bool Next(int64_t* index) {
    uint64_t now = indexes.load(std::memory_order_relaxed);
    while (Some(now)) {
      if (indexes.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
        *index = static_cast<uint32_t>(now);
        return true;
      }
    }
    return false;
  }
};

// Calls that a helper has done since it first came.
struct alignas(64) Report {
  std::atomic<int64_t> calls{0};
};

// Threads that go from loop to loop without sleeping in between. One caller has it at a time.
class Team {
 public:
  bool Take() {
    return !taken_.load(std::memory_order_relaxed) &&
           !taken_.exchange(true, std::memory_order_acquire);
  }

  void Leave() { taken_.store(false, std::memory_order_release); }

  // Runs a loop for the caller that has the team.
  void Run(const TaskPool& pool, int64_t count, LoopCall call, const void* body,
           const Reads* reads) {
    const int64_t members = 1 + std::min({pool.helpers, count - 1, kSeats - 1});
    if (reads) upcoming_ = order_.Note(*reads);
    int64_t reported = 0;
    for (int64_t member = members - 1; member >= 0; --member) {
      Share& share = shares_[member];
      share.call = call, share.body = body;
      share.members.store(members, std::memory_order_relaxed);
      share.upcoming.store(upcoming_, std::memory_order_relaxed);
      // Reports of the last loop were waited for: this is what is done before this one.
      reported += reports_[member].calls.load(std::memory_order_relaxed);
      share.Publish(count * member / members, count * (member + 1) / members);
    }
    Summon(pool, members);
    const int64_t others = count - Work(0);
    for (int64_t spins = 0; Reported(members) - reported < others; ++spins) {
      if (spins > kSpins) std::this_thread::yield();
      else if (!fetcher_.Ask(upcoming_, 0, members)) Pause();
    }
  }

 private:
  int64_t Reported(int64_t members) const {
    int64_t calls = 0;
    for (int64_t member = 1; member < members; ++member) {
      calls += reports_[member].calls.load(std::memory_order_acquire);
    }
    return calls;
  }

  // Asks for the helpers that are not there.
  void Summon(const TaskPool& pool, int64_t members) {
    const uint64_t there = there_.load(std::memory_order_acquire);
    for (int64_t member = 1; member < members; ++member) {
      const uint64_t bit = uint64_t{1} << member;
      if (there & bit) continue;
      there_.fetch_or(bit, std::memory_order_relaxed);
      pool.schedule([this, member] { Stay(member); });
    }
  }

  // Helps with all loops, until there was none for a while.
  void Stay(int64_t member) {
    const Share& own = shares_[member];
    Clock::time_point last = Clock::now();
    Fetcher fetcher;
    for (int64_t spins = 1;; ++spins) {
      if (Share::Some(own.indexes.load(std::memory_order_relaxed))) {
        const int64_t calls = Work(member);
        reports_[member].calls.fetch_add(calls, std::memory_order_release);
        last = Clock::now();
      } else if (spins % 64 == 0 && Clock::now() - last > kStay) {
        break;
      } else if (!fetcher.Ask(own.upcoming.load(std::memory_order_relaxed), member,
                              own.members.load(std::memory_order_relaxed))) {
        Pause();
      }
    }
    there_.fetch_and(~(uint64_t{1} << member), std::memory_order_release);
  }

  // Runs what is left of a member's share, then of the others'; returns the calls.
  int64_t Work(int64_t member) {
    int64_t calls = WorkOn(shares_[member]);
    // Without an index a helper has no loop: it may end, and the shares be another one's.
    if (calls == 0 && member != 0) return 0;
    const int64_t members = shares_[member].members.load(std::memory_order_relaxed);
    for (int64_t other = 1; other < members; ++other) {
      calls += WorkOn(shares_[(member + other) % members]);
    }
    return calls;
  }

  static int64_t WorkOn(Share& share) {
    int64_t calls = 0;
    for (int64_t index = 0; share.Next(&index); ++calls) share.call(share.body, index);
    return calls;
  }

  alignas(64) std::atomic<bool> taken_{false};
  // A bit for each helper that was asked for and has not left.
  alignas(64) std::atomic<uint64_t> there_{0};
  // Of the caller that has the team; helpers have shares of them.
  ReadOrder order_;
  const ReadOrder::Record* upcoming_ = nullptr;
  Fetcher fetcher_;
  Share shares_[kSeats];
  Report reports_[kSeats];
};

// Never destroyed, since a helper may stay until the process ends.
Team& TheTeam() {
  static auto* team = new Team;
  return *team;
}

// A loop for a caller that finds the team taken: helpers come for it alone.
void RunAlone(const TaskPool& pool, int64_t count, LoopCall call, const void* body) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  auto shared = std::make_shared<Shared>();
  // A helper reads the body only while it holds an index, for which the caller waits.
  auto run = [shared, call, body, count] {
    for (int64_t i = shared->next.fetch_add(1); i < count; i = shared->next.fetch_add(1)) {
      call(body, i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int64_t others = std::min(count - 1, pool.helpers);
  for (int64_t i = 0; i < others; ++i) pool.schedule(run);
  run();
  for (int64_t spins = 0; shared->done.load(std::memory_order_acquire) < count; ++spins) {
    if (spins > kSpins) std::this_thread::yield();
    else Pause();
  }
}

}  // namespace

void RunLoop(const TaskPool& pool, int64_t count, LoopCall call, const void* body,
             const Reads* reads) {
  Team& team = TheTeam();
  // Indexes of a share have 32 bits.
  if (count >= int64_t{1} << 31 || !team.Take()) return RunAlone(pool, count, call, body);
  team.Run(pool, count, call, body, reads);
  team.Leave();
}

}  // namespace graphgen
